package coordinator_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/berth-scheduler/berth/coordinator/coordtest"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// TestAJobThatNamesSeveralPartitions gets the first that takes it, one that is
// up before one that is down; what none takes is refused with the word of each.
func TestAJobThatNamesSeveralPartitions(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	cc := c.Dial(0, "gate", "g")
	c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	for _, p := range []*apiv1.SetPartitionRequest{
		{Name: "short", Nodes: proto.String("n1"), MaxTime: durationpb.New(time.Minute)},
		{Name: "down", Nodes: proto.String("n1"), Down: proto.Bool(true)},
		{Name: "long", Nodes: proto.String("n1")},
	} {
		setPartition(t, cc, p)
	}
	for i, tc := range []struct{ named, want string }{
		{"short,long", "long"}, {"down,long", "long"}, {"long,short", "long"}, {"gone,down", "down"}, {"gone,,long", "long"}, {"down,short", "down"},
	} {
		s := in(tc.named, spec(10_000))
		s.TimeLimit = durationpb.New(time.Hour)
		ids, err := submit(t, cc, alice, reqID(1+i), s)
		if err != nil {
			t.Errorf("%s: %v", tc.named, err)
			continue
		}
		if j := job(t, cc, alice, ids[0]); j.Partition != tc.want {
			t.Errorf("%s: got into %q, want %q", tc.named, j.Partition, tc.want)
		}
	}
	for named, want := range map[string]string{
		"short,gone": `none of the partitions short, gone takes it: time: 1h is above`,
		"a b,long":   "may hold letters",
		",":          "names 0 partitions",
	} {
		s := in(named, spec(10_000))
		s.TimeLimit = durationpb.New(time.Hour)
		if _, err := submit(t, cc, alice, reqID(99), s); err == nil || !strings.Contains(status.Convert(err).Message(), want) {
			t.Errorf("%q: %v, want %q", named, err, want)
		}
	}
}

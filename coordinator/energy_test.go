package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/coordinator/coordtest"
	"github.com/berth-scheduler/berth/coordinator/lead"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
)

// TestJobsWaitForCheaperPower: from their submission on, as long as they may, and by what is
// said later; without a price for now they start. Who may not wait does not.
func TestJobsWaitForCheaperPower(t *testing.T) {
	t.Parallel()
	hour := time.Now().UTC().Truncate(time.Hour)
	var mu sync.Mutex
	cheap, broken, fails := 3, error(nil), 0
	say := func(at int, err error) {
		mu.Lock()
		defer mu.Unlock()
		cheap, broken = at, err
	}
	read := func(context.Context) ([]byte, error) {
		mu.Lock()
		defer mu.Unlock()
		text := ""
		for i := range 24 {
			price := 31
			if i == cheap {
				price = 12
			}
			text += fmt.Sprintf("%s,%d\n", hour.Add(time.Duration(i)*time.Hour).Format(time.RFC3339), price)
		}
		if cheap < 0 {
			text = "2020-01-01T00:00:00Z,1\n"
		}
		if broken != nil {
			fails++
		}
		return []byte(text), broken
	}
	c := coordtest.Start(t, coordtest.Options{N: 1, Energy: &lead.EnergySignal{Read: read, Every: time.Millisecond, Unit: "ct"}})
	cc := c.Dial(0, "gate", "g")
	a := c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	n := 0
	asks := func(within time.Duration) uint64 {
		t.Helper()
		n++
		s := spec(0)
		s.Expected = durationpb.New(30 * time.Minute)
		if within > 0 {
			s.Defer = durationpb.New(within)
		}
		ids := submitted(t, cc, alice, reqID(n), s)
		return ids[0]
	}
	begins := func(id uint64) time.Time { return job(t, cc, alice, id).GetSpec().GetBegin().AsTime() }
	eventually(t, "the signal to be read", func() bool { return begins(asks(12 * time.Hour)).Equal(hour.Add(3 * time.Hour)) })
	id := asks(12 * time.Hour)
	if got := begins(id); !got.Equal(hour.Add(3*time.Hour)) || job(t, cc, alice, id).State != "PENDING" {
		t.Errorf("it begins at %v", got)
	}
	why := func() string {
		r, err := apirpc.NewJobServiceClient(cc).ExplainJob(as(t, alice), &apiv1.ExplainJobRequest{Id: id})
		if err != nil {
			t.Fatal(err)
		}
		return r.String()
	}
	if got, want := why(), "waits for cheaper power: 12 instead of 31 ct at "+hour.Add(3*time.Hour).Format("2006-01-02 15:04"); !strings.Contains(got, want) {
		t.Errorf("why: %s", got)
	}
	assigned(t, a, asks(0))
	assigned(t, a, asks(90*time.Minute))
	bad := spec(0)
	bad.Defer, bad.Begin = durationpb.New(time.Hour), timestamppb.New(hour.Add(5*time.Hour))
	if _, err := submit(t, cc, alice, reqID(99), bad); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "defer and begin") {
		t.Errorf("with a time of its own: %v", err)
	}
	s := spec(0)
	s.Expected, s.Defer = durationpb.New(30*time.Minute), durationpb.New(12*time.Hour)
	more, err := apirpc.NewJobServiceClient(cc).SubmitJobs(as(t, alice), &apiv1.SubmitJobsRequest{RequestId: reqID(98), Jobs: slices.Repeat([]*apiv1.JobSpec{s}, 120)})
	if err != nil {
		t.Fatal(err)
	}
	say(5, nil)
	eventually(t, "the signal that changed to count for all, though not at once", func() bool {
		return begins(id).Equal(hour.Add(5*time.Hour)) && begins(more.Ids[119]).Equal(hour.Add(5*time.Hour))
	})
	say(6, errors.New("no answer")) // what was read before holds
	eventually(t, "it to be read in vain, and looked at who waits", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return fails >= 3
	})
	if got := begins(id); !got.Equal(hour.Add(5 * time.Hour)) {
		t.Errorf("with a signal that cannot be read it begins at %v", got)
	}
	say(-1, nil)
	assigned(t, a, id)
}

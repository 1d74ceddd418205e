package conv

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
	"github.com/berth-scheduler/berth/proto/conv/plainconv"
)

// TestSubmitWithoutProtobuf: what is written by hand says what protobuf's library would.
func TestSubmitWithoutProtobuf(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := genSpec(t)
		s.Account, s.QOS, s.Nice = "lab", rapid.SampledFrom([]string{"", "high"}).Draw(t, "qos"), rapid.Int32Range(-cluster.MaxNice, cluster.MaxNice).Draw(t, "nice")
		s.Nodes, s.Tasks, s.AllMem = rapid.IntRange(0, 9).Draw(t, "nodes"), rapid.IntRange(0, 9).Draw(t, "tasks"), rapid.Bool().Draw(t, "all memory")
		s.Where = genWhere(t, rapid.Bool().Draw(t, "all of where"))
		s.InPlace = rapid.Bool().Draw(t, "in place")
		s.Checkpoint = cluster.Checkpoint{Signal: "USR1", Grace: s.TimeLimit}
		for i := range s.Depends {
			d := &s.Depends[i]
			d.OneTask, d.Task, d.Delay = rapid.Bool().Draw(t, "one task"), rapid.Uint32Range(0, 300).Draw(t, "task"), s.Duration
		}
		want := &apiv1.SubmitJobsRequest{RequestId: rapid.StringN(0, 40, -1).Draw(t, "id"), Jobs: []*apiv1.JobSpec{apiconv.SpecToAPI(s)}}
		lost := want.GetJobs()[0].GetContainer() != nil
		if plainconv.Carries(s) == lost {
			t.Fatalf("carries %t, though the container is %v", !lost, s.Container)
		}
		want.GetJobs()[0].Container = nil
		var got apiv1.SubmitJobsRequest
		if err := proto.Unmarshal(plainconv.AppendSubmit([]byte{}, want.GetRequestId(), s), &got); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, &got, protocmp.Transform()); d != "" {
			t.Fatal(d)
		}
	})
}

// TestSubmittedWithoutProtobuf: an answer is read as protobuf's library reads it, with
// fields of later releases, and nothing that is sent does harm.
func TestSubmittedWithoutProtobuf(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := &apiv1.SubmitJobsResponse{
			Ids: rapid.SliceOf(rapid.Uint64()).Draw(t, "ids"), Index: rapid.Uint64().Draw(t, "index"),
			Warnings: rapid.SliceOf(rapid.StringN(0, 9, -1)).Draw(t, "warnings"), Promises: rapid.SliceOf(rapid.StringN(0, 9, -1)).Draw(t, "promises"),
		}
		b, err := proto.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		b = append(b, rapid.SampledFrom([]string{"", "\x50\x01", "\x52\x02hi", "\x55\x01\x02\x03\x04", "\x51\x01\x02\x03\x04\x05\x06\x07\x08"}).Draw(t, "unknown")...)
		s, err := plainconv.ReadSubmitted(b)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, &apiv1.SubmitJobsResponse{Ids: s.IDs, Index: want.GetIndex(), Warnings: s.Warnings, Promises: s.Promises}, protocmp.Transform()); d != "" {
			t.Fatal(d)
		}
		for n := range b { // one that is cut off
			_, err := plainconv.ReadSubmitted(b[:n])
			if proto.Unmarshal(b[:n], &apiv1.SubmitJobsResponse{}) == nil && err != nil {
				t.Fatalf("%x: %v", b[:n], err)
			}
		}
	})
}

// FuzzSubmitted: what no answer can be is an error or read as far as it is one.
func FuzzSubmitted(f *testing.F) {
	f.Add([]byte("\x0a\x02\x01\x02\x1a\x03abc"))
	f.Add([]byte("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := plainconv.ReadSubmitted(b)
		var m apiv1.SubmitJobsResponse
		if proto.Unmarshal(b, &m) != nil || err != nil {
			return
		}
		if d := cmp.Diff(m.GetWarnings(), s.Warnings) + cmp.Diff(m.GetPromises(), s.Promises); d != "" || len(s.IDs) != len(m.GetIds()) {
			t.Errorf("%x: %d ids, not %d; %s", b, len(s.IDs), len(m.GetIds()), d)
		}
	})
}

package figures

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// TestFigures: passes and requests are counted, and what is asked for is a copy.
func TestFigures(t *testing.T) {
	t.Parallel()
	since := time.Unix(1_700_000_000, 0)
	f := New(since)
	f.Planned("full", 300*time.Microsecond, 7)
	f.Planned("full", 100*time.Microsecond, 5)
	f.Started("full", 3)
	f.Started("release", 1)
	ends := f.Begins("/berth.api.v1.JobService/ListJobs")
	f.Begins("/berth.api.v1.JobService/SubmitJobs")(time.Millisecond)
	for range 2 {
		f.Begins("/berth.api.v1.ClusterService/GetStatus")(2 * time.Millisecond)
	}
	want := &apiv1.Figures{
		Since: timestamppb.New(since), InFlight: 1,
		Passes: []*apiv1.PassFigures{
			{Kind: "full", Count: 2, LastUs: 100, MaxUs: 300, TotalUs: 400, LastDepth: 5, TotalDepth: 12, Started: 3}, {Kind: "release", Started: 1},
		},
		Calls: []*apiv1.CallFigures{{Method: "GetStatus", Count: 2, TotalUs: 4000}, {Method: "SubmitJobs", Count: 1, TotalUs: 1000}},
	}
	got := f.ToAPI()
	ends(time.Second)
	if d := cmp.Diff(want, got, protocmp.Transform()); d != "" {
		t.Error(d)
	}
	if now := f.ToAPI(); now.InFlight != 0 || len(now.Calls) != 3 {
		t.Errorf("after the last request: %v", now)
	}
}

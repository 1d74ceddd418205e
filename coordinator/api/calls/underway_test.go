package calls

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"

	"github.com/berth-scheduler/berth/cluster/wait"
	"github.com/berth-scheduler/berth/coordinator/figures"
)

// TestACallInProgressIsKnown until it ended.
func TestACallInProgressIsKnown(t *testing.T) {
	var under wait.Underway
	c := New(Config{}, Needs{Figures: figures.New(time.Now()), Underway: &under, Registry: prometheus.NewRegistry()})
	ends := c.begins("/berth.api.v1.JobService/ListJobs")
	if got := slices.Collect(maps.Keys(under.Longer(0))); !slices.Equal(got, []string{"ListJobs"}) {
		t.Errorf("in progress: %q", got)
	}
	ends(codes.OK)
	if got := under.Longer(0); len(got) > 0 {
		t.Errorf("in progress after it ended: %v", got)
	}
}

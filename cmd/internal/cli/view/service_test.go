package view

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// TestServiceText of replicas that run and that wait, and of other jobs.
func TestServiceText(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	r := &apiv1.Replica{Service: "web", State: "unhealthy", Since: timestamppb.New(now.Add(-90 * time.Second)), Address: "10.0.0.1", Port: 20_001, Why: "GET /h: 503"}
	for want, j := range map[string]*apiv1.Job{
		"": {}, "web": {Replica: &apiv1.Replica{Service: "web"}}, "web, unhealthy for 1:30 at 10.0.0.1:20001: GET /h: 503": {Replica: r},
	} {
		if got := ServiceText(j, now); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

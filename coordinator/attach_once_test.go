package coordinator_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/coordinator/coordtest"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

func signalTo(job uint64, s *apiv1.AttachSignal) *apiv1.AttachOpen {
	return &apiv1.AttachOpen{Job: job, What: &apiv1.AttachOpen_Signal{Signal: s}}
}

// TestAttachKeepsRequestIDs: what is to be done once comes to the agent with the
// client's id, by whichever coordinator, and only what is bounded and allowed does.
func TestAttachKeepsRequestIDs(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 3, Steady: true})
	lead := c.Leader()
	cc := c.Dial(lead, "gate", "g")
	a := c.Agent(lead, "n1", "b1", coordtest.T4("GPU-1"))
	id, _ := runningJob(t, cc, a, 1)
	key := strings.Repeat("k", 64)
	again := shellIn(id)
	again.GetExec().RequestId, again.GetExec().Session = key, "request"
	for i := range 3 {
		for _, open := range []*apiv1.AttachOpen{again, signalTo(id, &apiv1.AttachSignal{RequestId: key, Number: 10, First: true})} {
			t.Run(fmt.Sprintf("%T over c%d", open.GetWhat(), i+1), func(t *testing.T) {
				user := attach(t, c.Dial(i, "gate", "g"), alice, open)
				v := visited(t, a)
				if !proto.Equal(v.Open, open) || v.Uid != alice {
					t.Errorf("the agent is asked for %v, want %v", v, open)
				}
				end := a.Answer(t.Context(), v.Id)
				m := &apiv1.AttachResponse{Kind: &apiv1.AttachResponse_Ended{Ended: &apiv1.AttachEnded{}}}
				if err := end.Send(&nodev1.RelayRequest{Kind: &nodev1.RelayRequest_Frame{Frame: m}}); err != nil {
					t.Fatal(err)
				}
				if m, err := user.Recv(); err != nil || m.GetEnded() == nil {
					t.Errorf("answered %v, %v", m, err)
				}
			})
		}
	}
	short, long, odd := shellIn(id), shellIn(id), shellIn(id)
	short.GetExec().RequestId, long.GetExec().RequestId, odd.GetExec().RequestId = "short", key+"k", strings.Repeat("a b", 10)
	for name, x := range map[string]struct {
		uid  uint32
		open *apiv1.AttachOpen
		code codes.Code
	}{
		"a short id":        {alice, short, codes.InvalidArgument},
		"a long id":         {alice, long, codes.InvalidArgument},
		"an odd id":         {alice, odd, codes.InvalidArgument},
		"no id":             {alice, signalTo(id, &apiv1.AttachSignal{Number: 10}), codes.InvalidArgument},
		"KILL":              {alice, signalTo(id, &apiv1.AttachSignal{RequestId: key, Number: 9}), codes.InvalidArgument},
		"no signal":         {alice, signalTo(id, &apiv1.AttachSignal{RequestId: key}), codes.InvalidArgument},
		"no such signal":    {alice, signalTo(id, &apiv1.AttachSignal{RequestId: key, Number: 65}), codes.InvalidArgument},
		"to first and all":  {alice, signalTo(id, &apiv1.AttachSignal{RequestId: key, Number: 10, First: true, All: true}), codes.InvalidArgument},
		"another user's":    {bob, signalTo(id, &apiv1.AttachSignal{RequestId: key, Number: 10}), codes.PermissionDenied},
		"a job that is not": {alice, signalTo(id+1, &apiv1.AttachSignal{RequestId: key, Number: 10}), codes.NotFound},
	} {
		t.Run(name, func(t *testing.T) {
			if m, err := attach(t, cc, x.uid, x.open).Recv(); status.Code(err) != x.code {
				t.Errorf("answered %v, %v", m, err)
			}
		})
	}
	select {
	case v := <-a.Visits:
		t.Errorf("the agent is asked for %v", v)
	default:
	}
}

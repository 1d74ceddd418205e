package e2e

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
)

// asker asks a cluster how jobs are doing while a test waits for them. A
// command would do, but it is a process each time: dozens of tests that wait by
// commands leave the machine no time for what they wait for.
type asker struct {
	conns []*grpc.ClientConn
	turn  atomic.Uint32
}

func newAsker(t *testing.T, sockets string) *asker {
	t.Helper()
	a := &asker{}
	for socket := range strings.SplitSeq(sockets, ",") {
		cc, err := grpc.NewClient("unix:"+strings.TrimSpace(socket), grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.6, MaxDelay: 200 * time.Millisecond},
				MinConnectTimeout: time.Minute,
			}))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cc.Close() })
		a.conns = append(a.conns, cc)
	}
	return a
}

// in reports whether a job is in one of the states. No answer, as while there is
// no leader, counts as no, and the next question goes to another socket.
func (a *asker) in(id uint64, states []string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	r, err := apirpc.NewJobServiceClient(a.conns[int(a.turn.Load())%len(a.conns)]).GetJob(ctx, &apiv1.GetJobRequest{Id: id})
	if err != nil {
		a.turn.Add(1)
		return false
	}
	return slices.Contains(states, r.GetJob().GetState())
}

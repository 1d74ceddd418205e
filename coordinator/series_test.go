package coordinator_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/berth-scheduler/berth/coordinator/coordtest"
	"github.com/berth-scheduler/berth/coordinator/limit"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

// showed asks what the GPU of a job showed.
func showed(t *testing.T, cc *grpc.ClientConn, job uint64) *apiv1.GPUSeries {
	t.Helper()
	resp, err := apirpc.NewSeriesServiceClient(cc).GetSeries(coordtest.As(t.Context(), alice), &apiv1.GetSeriesRequest{Id: job})
	if err != nil || len(resp.Gpus) != 1 {
		t.Fatalf("%v, %v", resp, err)
	}
	g := resp.Gpus[0]
	if n := len(g.At); len(g.UsedMib) != n || len(g.UtilMilli) != n || len(g.PowerW) != n || !slices.IsSorted(g.At) {
		t.Fatalf("lists of no one length, or of times that do not rise: %v", g)
	}
	return g
}

// tells has an agent answer what it is asked for its cards, and returns what that was.
func tells(t *testing.T, a *coordtest.Agent, frames ...*nodev1.RelayRequest) <-chan *nodev1.Visit {
	t.Helper()
	asked := make(chan *nodev1.Visit, 1)
	ctx := t.Context()
	go func() {
		select {
		case v := <-a.Visits:
			asked <- v
			end := a.Answer(ctx, v.Id)
			for _, f := range frames {
				_ = end.Send(f) // the leader may have heard enough
			}
			_, _ = end.Recv() // until the leader ends it
		case <-ctx.Done():
		}
	}()
	return asked
}

func seriesFrame(gpus ...*apiv1.GPUSeries) *nodev1.RelayRequest {
	return &nodev1.RelayRequest{Kind: &nodev1.RelayRequest_Frame{Frame: &apiv1.AttachResponse{Kind: &apiv1.AttachResponse_Series{Series: &apiv1.SeriesFrame{Gpus: gpus}}}}}
}

var seriesEnd = &nodev1.RelayRequest{Kind: &nodev1.RelayRequest_Frame{Frame: &apiv1.AttachResponse{Kind: &apiv1.AttachResponse_Ended{Ended: &apiv1.AttachEnded{}}}}}

// TestSeriesOutliveTheLeader: what the next one did not hear it asks the node for, which
// is believed as far as it can be.
func TestSeriesOutliveTheLeader(t *testing.T) {
	t.Parallel()
	var ahead atomic.Int64
	clock := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	c := coordtest.Start(t, coordtest.Options{N: 3, Steady: true, Clock: clock})
	lead := c.Leader()
	a := c.Agent(lead, "n1", "b1", coordtest.T4("GPU-1"))
	before := time.Now().Unix()
	id, asg := runningJob(t, c.Dial(lead, "gate", "g"), a, 1)
	a.Shows(&nodev1.GPUUsage{Uuid: "GPU-1", UsedMib: 70, UtilMilli: 300, PowerW: 50})
	for cc := c.Dial(lead, "gate", "g"); len(showed(t, cc, id).At) == 0; {
		time.Sleep(10 * time.Millisecond)
	}
	for range len(a.Visits) {
		<-a.Visits // before it showed anything
	}
	if g := showed(t, c.Dial(lead, "gate", "g"), id); g.UsedMib[0] != 70 || g.At[0] <= before && len(a.Visits) != 0 {
		t.Fatalf("%v; the agent is asked for what the leader knows: %d", g, len(a.Visits))
	}

	began := time.Now().Unix()
	c.Kill(lead) // and with it the visits that were asked for
	ahead.Store(int64(10 * time.Minute))
	next := c.Leader()
	cc := c.Dial(next, "gate", "g")
	a = c.Agent(next, "n1", "b1", coordtest.T4("GPU-1"))
	now := clock().Unix()
	coarse, fine := (began+299)/300*300, began+400
	good := &apiv1.GPUSeries{Gpu: "GPU-1", At: []int64{coarse, fine}, UsedMib: []int64{5, 6}, UtilMilli: []int32{-1, 7}, PowerW: []uint32{0, 8}}
	asked := tells(t, a, seriesFrame(&apiv1.GPUSeries{Gpu: "GPU-2", At: []int64{fine}, UsedMib: []int64{1}, UtilMilli: []int32{1}, PowerW: []uint32{1}}), seriesFrame(good), seriesEnd)
	g := showed(t, cc, id)
	if !slices.Equal(g.At, good.At) || !slices.Equal(g.UsedMib, good.UsedMib) || !slices.Equal(g.UtilMilli, good.UtilMilli) || !slices.Equal(g.PowerW, good.PowerW) {
		t.Errorf("after a change of leaders: %v", g)
	}
	if v := <-asked; v.Uid != alice || v.Of.Token != asg.Token || v.Open.GetJob() != id || !slices.Equal(v.Open.GetSeries().GetGpus(), []string{"GPU-1"}) ||
		v.Open.GetSeries().From > now || v.Open.GetSeries().From == 0 || v.Open.GetSeries().To < now {
		t.Errorf("the agent was asked for %v", v)
	}

	a.Shows(&nodev1.GPUUsage{Uuid: "GPU-1", UsedMib: 80})
	for len(g.At) != 1 {
		tells(t, a, seriesEnd)
		g = showed(t, cc, id)
	}
	tells(t, a, seriesFrame(good), seriesEnd)
	if g = showed(t, cc, id); !slices.Equal(g.UsedMib, []int64{5, 6, 80}) || g.At[2] < now/10*10 {
		t.Errorf("before what this leader heard itself: %v", g)
	}
	odd := &apiv1.GPUSeries{
		Gpu: "GPU-1", At: []int64{began - 3600, fine, fine, fine + 3000, fine + 1, fine + 2, fine + 3}, UsedMib: []int64{1, 6, 2, 3, -4, 5, 6},
		UtilMilli: []int32{1, 1, 1, 1, 1, 1001, 1}, PowerW: []uint32{1, 1, 1, 1, 1, 1, 1 << 16},
	}
	tells(t, a, seriesFrame(odd), seriesEnd)
	if g := showed(t, cc, id); !slices.Equal(g.UsedMib, []int64{6, 80}) || g.At[0] != fine {
		t.Errorf("of what no card shows: %v", g)
	}
	tells(t, a, seriesFrame(&apiv1.GPUSeries{Gpu: "GPU-1", At: []int64{fine}, UsedMib: []int64{1, 2}}), seriesEnd)
	if g := showed(t, cc, id); !slices.Equal(g.UsedMib, []int64{80}) {
		t.Errorf("of lists that differ in length: %v", g)
	}
}

// TestSeriesWithoutTheAgent are what the leader knows: the agent is of a release before,
// answers nothing, never ends, or is away.
func TestSeriesWithoutTheAgent(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	cc := c.Dial(0, "gate", "g")
	a := c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	id, _ := runningJob(t, cc, a, 1)
	within := func(what string, d time.Duration, frames ...*nodev1.RelayRequest) {
		t.Helper()
		asked := tells(t, a, frames...)
		began := time.Now()
		if g := showed(t, cc, id); len(g.At) != 0 || g.GivenMib == 0 || time.Since(began) > d {
			t.Errorf("of an agent that %s: %v after %v", what, g, time.Since(began))
		}
		<-asked
	}
	within("does not know the request", time.Minute, &nodev1.RelayRequest{Kind: &nodev1.RelayRequest_Refused{Refused: &nodev1.Refusal{Reason: "CONFLICT", Message: "older"}}})
	within("says nothing", time.Minute)
	within("never ends", time.Minute, slices.Repeat([]*nodev1.RelayRequest{seriesFrame(&apiv1.GPUSeries{Gpu: "GPU-1"})}, 1000)...)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	a.Silence()
	select {
	case <-a.Ended:
	case <-ctx.Done():
		t.Fatal("the session does not end")
	}
	if g := showed(t, cc, id); len(g.At) != 0 {
		t.Errorf("of an agent that is away: %v", g)
	}
}

// TestSeriesAreCharged: who asks in a loop what the GPUs of a job showed, which is more the
// more it has, is told to wait, as with lists.
func TestSeriesAreCharged(t *testing.T) {
	t.Parallel()
	l := limit.Unlimited()
	l.WorkMilli = 1
	c := coordtest.Start(t, coordtest.Options{N: 1, Steady: true, Limits: &l})
	a := c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	cc := c.Dial(0, "gate", "g")
	id, _ := runningJob(t, cc, a, 1)
	a.Shows(&nodev1.GPUUsage{Uuid: "GPU-1", UsedMib: 70, UtilMilli: 300, PowerW: 50})
	tells(t, a, seriesEnd) // what it is asked until the leader has heard it
	for n := 0; ; n++ {
		_, err := apirpc.NewSeriesServiceClient(cc).GetSeries(coordtest.As(t.Context(), alice), &apiv1.GetSeriesRequest{Id: id})
		if _, again := apiconv.RetryAfter(err); err != nil && (!again || !strings.Contains(err.Error(), "read_ms_per_second")) {
			t.Fatalf("%v, want a refusal that names the limit", err)
		}
		if err != nil {
			break
		}
		if n > 20_000 {
			t.Fatal("never refused")
		}
	}
}

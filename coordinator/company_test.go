package coordinator_test

import (
	"math"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/coordinator/coordtest"
	"github.com/berth-scheduler/berth/coordinator/learner"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// shared is a cluster with one card, on a clock of the test's.
type shared struct {
	*taught
	now *atomic.Int64
}

// startShared starts n coordinators that learn from every few samples.
func startShared(t *testing.T, n, few int) *shared {
	t.Helper()
	w := &shared{taught: &taught{t: t}, now: new(atomic.Int64)}
	w.now.Store(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano())
	w.c = coordtest.Start(t, coordtest.Options{
		N: n, Steady: true, Lease: 1000 * time.Hour, Learning: learner.Config{MinSamples: few, Every: time.Millisecond},
		Clock: func() time.Time { return time.Unix(0, w.now.Load()) }, MaxSlowdownMilli: 1300,
	})
	w.join()
	return w
}

// submit submits a job of a kind.
func (w *shared) submit(kind string) uint64 {
	w.t.Helper()
	w.sent++
	s := spec(1000)
	s.Command = [][]byte{[]byte(kind)}
	ids, err := submit(w.t, w.cc, alice, reqID(w.sent), s)
	if err != nil {
		w.t.Fatal(err)
	}
	return ids[0]
}

// together runs jobs of the given kinds beside each other for so long.
func (w *shared) together(d time.Duration, kinds ...string) {
	w.t.Helper()
	var asg []*nodev1.Assignment
	for _, k := range kinds {
		asg = append(asg, assigned(w.t, w.agent, w.submit(k)))
	}
	w.now.Add(int64(d))
	for _, a := range asg {
		w.agent.ReportUsage(a, completed, 0, &nodev1.Usage{GpuMemPeakMib: 900, GpuMilli: 100})
	}
	for _, a := range asg {
		await(w.t, w.cc, a.Job, "COMPLETED")
	}
}

func (w *shared) interference() *apiv1.Interference {
	w.t.Helper()
	resp, err := apirpc.NewModelServiceClient(w.c.Dial(w.lead, "gate", "g")).GetModel(as(w.t, bob), &apiv1.GetModelRequest{})
	if err != nil {
		w.t.Fatal(err)
	}
	return resp.Interference
}

// TestJobsThatSlowEachOtherDownAreKeptApart: two jobs that share run at half
// their speed; the cluster learns it, keeps it over the death of its leader and
// a restart of all, says so, and does not lay them together any more.
func TestJobsThatSlowEachOtherDownAreKeptApart(t *testing.T) {
	t.Parallel()
	w := startShared(t, 3, 15)
	for range 3 {
		w.together(100*time.Second, "greedy")
	}
	for range 6 {
		w.together(200*time.Second, "greedy", "greedy")
	}
	var in *apiv1.Interference
	w.until("something to be learned of 12 shared runs", func() bool {
		w.now.Add(int64(time.Second))
		in = w.interference()
		return in.Observations >= 8
	})
	w.c.Kill(w.lead)
	w.join()
	if got := w.interference(); got.Version < in.Version || got.Version == in.Version && got.Sha256 != in.Sha256 {
		t.Errorf("after the leader's death %v, want %v", got, in)
	}
	for i := range 3 {
		w.c.Stop(i)
	}
	for i := range 3 {
		w.c.Restart(i)
	}
	w.join()
	first := w.submit("greedy")
	alone := assigned(t, w.agent, first)
	second := w.submit("greedy")
	w.keptApart(first, second)
	w.predicted(first, second)
	w.agent.Report(alone, completed, 0)
	assigned(t, w.agent, second)
}

// keptApart waits until it is said why second waits.
func (w *shared) keptApart(first, second uint64) {
	w.t.Helper()
	js := apirpc.NewJobServiceClient(w.cc)
	var resp *apiv1.ExplainJobResponse
	w.until("the job to be planned", func() bool {
		var err error
		if resp, err = js.ExplainJob(as(w.t, alice), &apiv1.ExplainJobRequest{Id: second}); err != nil {
			w.t.Fatal(err)
		}
		return resp.Job.State == "QUEUED"
	})
	for _, e := range resp.Explanations {
		if e.Code == "Sharing" && strings.Contains(e.Detail, "the limit is 1.3×") && strings.Contains(e.Detail, "would slow job "+strconv.FormatUint(first, 10)+" down") {
			return
		}
	}
	w.t.Errorf("job %d waits for %v", second, resp.Explanations)
}

// predicted asks what the two would do to each other.
func (w *shared) predicted(first, second uint64) {
	w.t.Helper()
	js := apirpc.NewJobServiceClient(w.cc)
	resp, err := js.Predict(as(w.t, alice), &apiv1.PredictRequest{Beside: []uint64{first, second}})
	if err != nil {
		w.t.Fatal(err)
	}
	if len(resp.Sharing) != 1 || len(resp.Predictions) != 0 {
		w.t.Fatalf("%v", resp)
	}
	s := resp.Sharing[0]
	if s.GpuType != "T4" || s.Mode != "time-slicing" || s.Limit != 1.3 || len(s.Jobs) != 2 || s.Advice.Verdict != "unsure" {
		w.t.Fatalf("%v", s)
	}
	for _, j := range s.Jobs {
		if j.Slowdown < 1.5 || j.Slowdown > 2.1 || math.Abs(j.Speed*j.Slowdown-1) > 1e-9 || len(j.Parts) != 1 || !strings.Contains(j.Parts[0], "learned") {
			w.t.Errorf("%v, want about 2 times", j)
		}
	}
	resp, err = js.Predict(as(w.t, alice), &apiv1.PredictRequest{Spec: spec(1000), Beside: []uint64{first}})
	if err != nil || len(resp.Predictions) != 1 || len(resp.Sharing) != 1 || resp.Sharing[0].Jobs[0].Id != 0 || resp.Sharing[0].Jobs[1].Id != first {
		w.t.Errorf("%v, %v", resp, err)
	}
	for _, bad := range []*apiv1.PredictRequest{
		{}, {Beside: []uint64{first}}, {Beside: []uint64{first, first}}, {Beside: []uint64{first, 999}}, {Spec: spec(0), Beside: []uint64{first}},
		{Beside: []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9}},
	} {
		if _, err := js.Predict(as(w.t, alice), bad); err == nil {
			w.t.Errorf("%v is predicted", bad)
		}
	}
}

func TestInterferenceIsHeldByAPin(t *testing.T) {
	t.Parallel()
	w := startShared(t, 1, 9)
	if _, err := apirpc.NewModelServiceClient(w.cc).PinModel(as(t, admin), &apiv1.PinModelRequest{Pinned: true}); err != nil {
		t.Fatal(err)
	}
	w.together(100*time.Second, "a")
	for range 4 {
		w.together(150*time.Second, "a", "a")
	}
	x, y := w.submit("a"), w.submit("b")
	assigned(t, w.agent, y)
	// 2 % for each neighbour and the product of both utilizations, as built in.
	if j := job(t, w.cc, alice, x); math.Abs(j.PredictedSlowdown-1.03) > 1e-9 || len(j.Neighbours) != 1 {
		t.Errorf("job %d beside %v is predicted to slow down %v times", x, j.Neighbours, j.PredictedSlowdown)
	}
	w.now.Add(int64(time.Minute))
	if in := w.interference(); in.Version > 0 {
		t.Errorf("%v was learned under a pin", in)
	}
	if _, err := apirpc.NewModelServiceClient(w.cc).PinModel(as(t, admin), &apiv1.PinModelRequest{}); err != nil {
		t.Fatal(err)
	}
	w.until("it to be learned once nothing is pinned", func() bool {
		w.now.Add(int64(time.Second))
		return w.interference().Observations == 8
	})
}

package coordinator_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-scheduler/berth/coordinator/coordtest"
	"github.com/berth-scheduler/berth/coordinator/learner"
	"github.com/berth-scheduler/berth/model"
	"github.com/berth-scheduler/berth/model/learn"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// better answers a challenge with weights that differ from the champion.
func better(samples []model.Sample, champion model.Weights) (learn.Verdict, error) {
	champion.EstimateMarginMiB++
	return learn.Verdict{
		Weights: champion, Better: true, Reason: "the test says so", Trained: len(samples), Tested: 3, ChampionErr: 0.2, ChallengerErr: 0.1,
	}, nil
}

// taught is a cluster with an agent, on which jobs run and are measured.
type taught struct {
	t     *testing.T
	c     *coordtest.Cluster
	reg   *prometheus.Registry // of a cluster of one
	lead  int
	cc    *grpc.ClientConn
	agent *coordtest.Agent
	sent  int
}

func startTaught(t *testing.T, n int, l learner.Config) *taught {
	t.Helper()
	w := &taught{t: t, reg: prometheus.NewRegistry()}
	o := coordtest.Options{N: n, Steady: true, Learning: l}
	if n == 1 {
		o.Registry = w.reg
	}
	w.c = coordtest.Start(t, o)
	w.join()
	return w
}

func (w *taught) join() {
	w.t.Helper()
	w.lead = w.c.Leader()
	w.cc = w.c.Dial(w.lead, "gate", "g")
	w.agent = w.c.Agent(w.lead, "n1", "b1", coordtest.T4("GPU-1"))
}

// runs runs n jobs, one after the other, that hold peak MiB.
func (w *taught) runs(n int, peak int64) (last *apiv1.Job) {
	w.t.Helper()
	for range n {
		w.sent++
		s := spec(0)
		s.Gpus = 1
		ids, err := submit(w.t, w.cc, alice, reqID(w.sent), s)
		if err != nil {
			w.t.Fatal(err)
		}
		asg := assigned(w.t, w.agent, ids[0])
		w.agent.ReportUsage(asg, completed, 0, &nodev1.Usage{GpuMemPeakMib: peak, GpuMilli: 300})
		last = await(w.t, w.cc, ids[0], "COMPLETED")
	}
	return last
}

func (w *taught) models(i int) *apiv1.ListModelsResponse {
	w.t.Helper()
	resp, err := apirpc.NewModelServiceClient(w.c.Dial(i, "gate", "g")).ListModels(as(w.t, bob), &apiv1.ListModelsRequest{})
	if err != nil {
		w.t.Fatal(err)
	}
	return resp
}

// await waits until something has begun.
func (w *taught) await(began <-chan struct{}) {
	w.t.Helper()
	select {
	case <-began:
	case <-time.After(2 * time.Minute):
		w.t.Fatal("nothing was computed within two minutes")
	}
}

// awaitVersion waits until a version is in use.
func (w *taught) awaitVersion(version uint64) *apiv1.Model {
	w.t.Helper()
	var m *apiv1.Model
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if m = w.models(w.lead).Models[0]; m.Version == version {
			return m
		}
	}
	w.t.Fatalf("version %d is in use, want %d", m.Version, version)
	return nil
}

func TestTheSecondRunIsPredictedFromTheFirst(t *testing.T) {
	t.Parallel()
	w := startTaught(t, 1, learner.Config{})
	if j := w.runs(1, 4321); j.Predicted.Source == "history" {
		t.Fatalf("the first run is predicted from %s", j.Predicted.Source)
	}
	if j := w.runs(1, 4321); j.Predicted.GpuMemMib != 4321 || j.Predicted.Source != "history" {
		t.Errorf("the second is predicted to take %d MiB from %s, want 4321 from history", j.Predicted.GpuMemMib, j.Predicted.Source)
	}
	w.runs(1, 4500)
	resp, err := apirpc.NewModelServiceClient(w.cc).GetModel(as(t, bob), &apiv1.GetModelRequest{})
	if err != nil {
		t.Fatal(err)
	}
	// The first had no prediction; the second was exact; the third off by 179.
	if a := resp.Accuracy; a.Runs != 2 || math.Abs(a.MeanError-179.0/4500/2) > 1e-9 || a.WithinP95 != 1 || a.OutOfMemory != 0 {
		t.Errorf("accuracy %v", a)
	}
	if resp.Samples != 3 || resp.Model.Source != "built-in" || len(resp.Weights) != 0 {
		t.Errorf("%v", resp)
	}
}

// TestWhoWaitsIsPredictedFromTheFirstThatEnds: of equal jobs that nobody knows the
// first runs alone on the card; when it has ended those that were submitted with it,
// and tasks of an array alike, share the card, as one that is submitted then would.
func TestWhoWaitsIsPredictedFromTheFirstThatEnds(t *testing.T) {
	t.Parallel()
	for _, array := range []string{"", "0-5"} {
		w := startTaught(t, 1, learner.Config{})
		specs := []*apiv1.JobSpec{spec(0), spec(0), spec(0), spec(0), spec(0), spec(0)}
		if array != "" {
			specs = specs[:1]
			specs[0].Array = array
		}
		for _, s := range specs {
			s.Gpus = 1
		}
		ids := submitted(t, w.cc, alice, reqID(1), specs...)
		last := ids[0] + 5
		alone, together := 0, 0
		for together < 3 {
			as := next(t, w.agent)
			if m := as.Gpus[0].MemMib; m >= 2000 && m < 4000 {
				together++
				continue
			}
			// The second may begin before the others are predicted anew.
			if alone++; alone > 2 || together > 0 {
				t.Fatalf("array %q: job %d takes %d MiB after %d that ran alone and beside %d, want somewhat more than 2000", array, as.Job, as.Gpus[0].MemMib, alone-1, together)
			}
			w.agent.ReportUsage(as, completed, 0, &nodev1.Usage{GpuMemPeakMib: 2000, GpuMilli: 300})
			eventually(t, "the last one is predicted from the first", func() bool { return job(t, w.cc, alice, last).GetPredicted().GetSource() == "history" })
		}
	}
}

// TestOtherCommandsOfAProgramAreKnown: commands that differ in a learning rate alone are
// one program. When three of them took the same, those that wait share the card, and so
// does what is submitted then; one with another batch size is not known by them.
func TestOtherCommandsOfAProgramAreKnown(t *testing.T) {
	t.Parallel()
	w := startTaught(t, 1, learner.Config{})
	var specs []*apiv1.JobSpec
	for i := range 8 {
		s := spec(0)
		s.Gpus, s.Command = 1, [][]byte{[]byte("python"), []byte("train.py"), []byte("--lr"), []byte("0." + strconv.Itoa(i+1)), []byte("--batch-size=64")}
		specs = append(specs, s)
	}
	specs[7].Command[4] = []byte("--batch-size=128")
	ids := submitted(t, w.cc, alice, reqID(1), specs[:6]...)
	last := ids[0] + 5
	for range 3 {
		as := next(t, w.agent)
		if m := as.Gpus[0].MemMib; m < 4000 {
			t.Fatalf("job %d takes %d MiB, though nobody knows it", as.Job, m)
		}
		w.agent.ReportUsage(as, completed, 0, &nodev1.Usage{GpuMemPeakMib: 2000, GpuMilli: 300})
	}
	eventually(t, "the last one is predicted from its program", func() bool { return job(t, w.cc, alice, last).GetPredicted().GetSource() == "program" })
	for alone, together := 0, 0; together < 2; {
		as := next(t, w.agent)
		if m := as.Gpus[0].MemMib; m >= 2000 && m < 4000 {
			together++
		} else if alone++; alone > 1 { // the fourth may have begun before
			t.Fatalf("job %d takes %d MiB, want somewhat more than 2000", as.Job, m)
		} else {
			w.agent.ReportUsage(as, completed, 0, &nodev1.Usage{GpuMemPeakMib: 2000, GpuMilli: 300})
		}
	}
	more := submitted(t, w.cc, alice, reqID(2), specs[6:]...)
	if a, b := job(t, w.cc, alice, more[0]).GetPredicted(), job(t, w.cc, alice, more[0]+1).GetPredicted(); a.GetSource() != "program" || b.GetSource() != "none" {
		t.Errorf("another learning rate is known from %s, another batch size from %s", a.GetSource(), b.GetSource())
	}
}

func TestLearnedWeightsReachEveryReplicaAndSurviveTheLeader(t *testing.T) {
	t.Parallel()
	w := startTaught(t, 3, learner.Config{MinSamples: 4, Every: 10 * time.Millisecond, Challenge: better})
	w.runs(3, 4000)
	if v := w.models(w.lead).Models[0]; v.Version != 0 {
		t.Fatalf("after 3 samples of 4 version %d is in use", v.Version)
	}
	w.runs(1, 4000)
	m := w.awaitVersion(1)
	if m.Source != "learned" || m.Trained != 4 || m.Tested != 3 || m.Reason != "the test says so" || math.Abs(m.ErrorBefore-math.Expm1(0.2)) > 1e-6 || math.Abs(m.ErrorAfter-math.Expm1(0.1)) > 1e-6 {
		t.Errorf("published %v", m)
	}
	w.onAll(m)
	w.c.Kill(w.lead)
	w.join()
	if again := w.awaitVersion(1); again.Sha256 != m.Sha256 {
		t.Errorf("after the leader's death %v is in use, want %v", again, m)
	}
	w.runs(4, 4000) // the new leader learns on
	w.awaitVersion(2)
	for i := range 3 {
		w.c.Stop(i)
	}
	for i := range 3 {
		w.c.Restart(i)
	}
	w.join()
	w.onAll(w.awaitVersion(2))
	if got := w.models(w.lead).Models; len(got) != 3 || got[1].Sha256 != m.Sha256 || got[2].Source != "built-in" {
		t.Errorf("kept are %v", got)
	}
}

// onAll waits until every coordinator has the weights.
func (w *taught) onAll(m *apiv1.Model) {
	w.t.Helper()
	var st *apiv1.GetStatusResponse
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		var err error
		if st, err = apirpc.NewClusterServiceClient(w.cc).GetStatus(as(w.t, bob), &apiv1.GetStatusRequest{}); err != nil {
			w.t.Fatal(err)
		}
		have := 0
		for _, x := range st.Members {
			if x.ModelVersion == m.Version && x.ModelSha256 == m.Sha256 {
				have++
			}
		}
		if have == len(st.Members) {
			return
		}
	}
	w.t.Fatalf("not every coordinator has version %d with %s: %v", m.Version, m.Sha256, st.Members)
}

func TestNothingIsPublishedThatIsNotBetter(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	worse := func(kind int32, s []model.Sample, champion model.Weights) (learn.Verdict, error) {
		v, _ := better(s, champion)
		switch kind % 5 {
		case 0:
			v.Better = false
		case 1:
			return v, errors.New("cannot")
		case 2:
			return learn.Verdict{Weights: champion, Reason: "too few"}, nil
		case 3:
			v.Weights.EstimateMarginMiB = math.NaN()
		case 4:
			panic("a fault in the learner")
		}
		return v, nil
	}
	w := startTaught(t, 1, learner.Config{MinSamples: 1, Every: time.Millisecond, Challenge: func(s []model.Sample, c model.Weights) (learn.Verdict, error) {
		return worse(calls.Add(1)-1, s, c)
	}})
	for i := range int32(5) {
		w.runs(1, 4000)
		w.until(fmt.Sprintf("fit %d", i), func() bool { return calls.Load() > i })
	}
	w.runs(2, 4000) // the leader is still there
	for reason, want := range map[string]float64{"not_better": 1, "error": 2, "too_few": 1, "unusable": 1, "pinned": 0} {
		w.until(fmt.Sprintf("%v rejected as %s", want, reason), func() bool { return w.metric("berth_learner_rejected_total", reason) >= want })
	}
	if n := w.metric("berth_learner_refit_seconds", ""); n < 5 {
		t.Errorf("%v refits are counted, want at least 5", n)
	}
	if n := w.metric("berth_learner_published_total", ""); n != 0 {
		t.Errorf("%v are counted as published", n)
	}
	if v := w.models(0).Models[0]; v.Version != 0 {
		t.Errorf("%v is in use", v)
	}
}

// metric reads a counter, a gauge or the count of a histogram; label is the
// value of its only label, if it has one.
func (w *taught) metric(name, label string) float64 {
	w.t.Helper()
	families, err := w.reg.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() != name || label != "" && m.GetLabel()[0].GetValue() != label {
				continue
			}
			return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	w.t.Fatalf("no metric %s of %q", name, label)
	return 0
}

// TestAbsurdFiguresTeachNothing: the job ends, and the predictor is as before.
func TestAbsurdFiguresTeachNothing(t *testing.T) {
	t.Parallel()
	w := startTaught(t, 1, learner.Config{})
	w.runs(1, 4000)
	for range 3 {
		w.runs(1, 1<<40)
		w.runs(1, -1)
	}
	if n := w.models(0).Samples; n != 1 {
		t.Errorf("%d samples, want the 1 that can be", n)
	}
	w.until("6 to be counted", func() bool { return w.metric("berth_learner_absurd_samples_total", "") == 6 })
	if j := w.runs(1, 4000); j.Predicted.GpuMemMib != 4000 {
		t.Errorf("%d MiB are predicted, want 4000", j.Predicted.GpuMemMib)
	}
	w.until("2 samples", func() bool { return w.metric("berth_learner_samples", "") == 2 })
	w.until("the error to be shown", func() bool { return w.metric("berth_learner_within_p95_ratio", "") == 1 })
}

func (w *taught) until(what string, ok func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("not within two minutes: %s", what)
		}
	}
}

// TestWhatWasComparedWithOldWeightsIsDropped: an administrator imports while
// the learner computes.
func TestWhatWasComparedWithOldWeightsIsDropped(t *testing.T) {
	t.Parallel()
	began, goOn := make(chan struct{}, 10), make(chan struct{})
	w := startTaught(t, 1, learner.Config{MinSamples: 1, Every: time.Millisecond, Challenge: func(s []model.Sample, c model.Weights) (learn.Verdict, error) {
		began <- struct{}{}
		<-goOn
		return better(s, c)
	}})
	proceed := sync.OnceFunc(func() { close(goOn) })
	t.Cleanup(proceed) // a coordinator that stops waits for it
	w.runs(1, 4000)
	w.await(began)
	imported := model.DefaultWeights()
	imported.EstimateMarginMiB += 100
	ms := apirpc.NewModelServiceClient(w.cc)
	if _, err := ms.PublishModel(as(t, admin), &apiv1.PublishModelRequest{Weights: imported.Encode()}); err != nil {
		t.Fatal(err)
	}
	goOn <- struct{}{}
	w.runs(1, 4000)
	w.await(began) // the next fit, which starts from what was imported
	proceed()
	m := w.awaitVersion(2)
	got := w.models(0).Models
	if m.Source != "learned" || got[1].Source != "import" {
		t.Fatalf("%v", got)
	}
	resp, err := ms.GetModel(as(t, bob), &apiv1.GetModelRequest{WithWeights: true})
	if err != nil {
		t.Fatal(err)
	}
	if x, err := model.DecodeWeights(resp.Weights); err != nil || x.EstimateMarginMiB != imported.EstimateMarginMiB+1 {
		t.Errorf("in use are weights with margin %v (%v), want those learned on top of the imported ones", x.EstimateMarginMiB, err)
	}
}

// TestALeaderThatComputesCanBeLost: the next one is elected and learns at once.
func TestALeaderThatComputesCanBeLost(t *testing.T) {
	t.Parallel()
	began, goOn := make(chan struct{}, 10), make(chan struct{})
	var first atomic.Bool
	first.Store(true)
	w := startTaught(t, 3, learner.Config{MinSamples: 1, Every: time.Millisecond, Challenge: func(s []model.Sample, c model.Weights) (learn.Verdict, error) {
		if first.Swap(false) {
			began <- struct{}{}
			<-goOn
		}
		return better(s, c)
	}})
	proceed := sync.OnceFunc(func() { close(goOn) })
	t.Cleanup(proceed)
	w.runs(1, 4000)
	w.await(began)
	w.runs(2, 4000) // submits and ends go on meanwhile
	old := w.lead
	w.c.Cut(old)
	w.c.Elect(old)
	w.until("another leader", func() bool { return w.c.Leader() != old })
	w.join()
	w.awaitVersion(1)
	proceed()
}

func TestWhoMayChangeTheModel(t *testing.T) {
	t.Parallel()
	w := startTaught(t, 1, learner.Config{MinSamples: 2, Every: time.Millisecond, Challenge: better})
	ms := apirpc.NewModelServiceClient(w.cc)
	weights := model.DefaultWeights()
	weights.EstimateMarginMiB += 100
	good := weights.Encode()
	one, nine := uint64(1), uint64(9)
	weights.EstimateMarginMiB = math.NaN()
	older := bytes.Clone(good)
	older[4]++
	for name, tc := range map[string]struct {
		err  error
		want codes.Code
		says string
	}{
		"a user publishes":        {second(ms.PublishModel(as(t, alice), &apiv1.PublishModelRequest{Weights: good})), codes.PermissionDenied, "administrator"},
		"a user rolls back":       {second(ms.RollbackModel(as(t, alice), &apiv1.RollbackModelRequest{Version: 1})), codes.PermissionDenied, ""},
		"a user pins":             {second(ms.PinModel(as(t, alice), &apiv1.PinModelRequest{Pinned: true})), codes.PermissionDenied, ""},
		"nothing":                 {second(ms.PublishModel(as(t, admin), &apiv1.PublishModelRequest{})), codes.InvalidArgument, "weights"},
		"no weights":              {second(ms.PublishModel(as(t, admin), &apiv1.PublishModelRequest{Weights: []byte("PK\x03\x04")})), codes.InvalidArgument, "not a weights file"},
		"NaN":                     {second(ms.PublishModel(as(t, admin), &apiv1.PublishModelRequest{Weights: weights.Encode()})), codes.InvalidArgument, "NaN"},
		"cut short":               {second(ms.PublishModel(as(t, admin), &apiv1.PublishModelRequest{Weights: good[:len(good)-5]})), codes.InvalidArgument, ""},
		"another version":         {second(ms.PublishModel(as(t, admin), &apiv1.PublishModelRequest{Weights: older})), codes.InvalidArgument, "version"},
		"far too much":            {second(ms.PublishModel(as(t, admin), &apiv1.PublishModelRequest{Weights: make([]byte, 300<<10)})), codes.InvalidArgument, "bytes"},
		"rollback to the unknown": {second(ms.RollbackModel(as(t, admin), &apiv1.RollbackModelRequest{Version: 9})), codes.NotFound, "berth model list"},
		"pin of the unknown":      {second(ms.PinModel(as(t, admin), &apiv1.PinModelRequest{Version: &nine, Pinned: true})), codes.NotFound, ""},
		"unpin of a version":      {second(ms.PinModel(as(t, admin), &apiv1.PinModelRequest{Version: &one})), codes.InvalidArgument, ""},
		"get of the unknown":      {second(ms.GetModel(as(t, bob), &apiv1.GetModelRequest{Version: &nine})), codes.NotFound, ""},
	} {
		if status.Code(tc.err) != tc.want || !strings.Contains(fmt.Sprint(tc.err), tc.says) {
			t.Errorf("%s: %v, want %v with %q", name, tc.err, tc.want, tc.says)
		}
	}
	if v := w.models(0).Models[0]; v.Version != 0 {
		t.Fatalf("after refusals %v is in use", v)
	}
	for range 2 { // the second time nothing is left to do
		resp, err := ms.PublishModel(as(t, admin), &apiv1.PublishModelRequest{Weights: good})
		if err != nil || resp.Model.Version != 1 || resp.Model.Source != "import" || resp.Model.GetBy() != admin {
			t.Fatalf("%v, %v", resp, err)
		}
	}
	if resp, err := ms.PinModel(as(t, admin), &apiv1.PinModelRequest{Pinned: true}); err != nil || !resp.Model.Pinned || resp.Model.Version != 1 {
		t.Fatalf("%v, %v", resp, err)
	}
	w.runs(4, 4000)
	if v := w.models(0).Models[0]; v.Version != 1 || !v.Pinned {
		t.Errorf("%v replaced the pinned version", v)
	}
	zero := uint64(0)
	if resp, err := ms.PinModel(as(t, admin), &apiv1.PinModelRequest{Version: &zero, Pinned: true}); err != nil || resp.Model.Version != 2 || resp.Model.Reason == "" {
		t.Fatalf("pin of the built-in one: %v, %v", resp, err)
	}
	for range 2 {
		if resp, err := ms.RollbackModel(as(t, admin), &apiv1.RollbackModelRequest{Version: 1}); err != nil || resp.Model.Version != 3 || resp.Model.RolledBackTo != 1 {
			t.Fatalf("rollback: %v, %v", resp, err)
		}
	}
	if resp, err := ms.PinModel(as(t, admin), &apiv1.PinModelRequest{}); err != nil || resp.Model.Pinned {
		t.Fatalf("unpin: %v, %v", resp, err)
	}
	w.runs(2, 4000)
	if m := w.awaitVersion(4); m.Source != "learned" {
		t.Errorf("unpinned: %v", m)
	}
}

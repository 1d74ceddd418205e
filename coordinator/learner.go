package coordinator

import (
	"log/slog"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm"
	"github.com/berth-scheduler/berth/model"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// learner predicts for the leader. What it knows of past runs comes from the
// samples in the state machine, so that a new leader knows the same.
type learner struct {
	fsm *fsm.FSM
	log *slog.Logger

	mu      sync.Mutex
	pred    *model.Predictor
	samples uint64 // sequence number of the newest sample in pred
	weights uint64 // version of the weights in pred
	loaded  bool
}

func newLearner(f *fsm.FSM, log *slog.Logger) *learner {
	return &learner{fsm: f, log: log.With("component", "learner")}
}

// reload makes the next prediction read samples and weights anew.
func (l *learner) reload() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.loaded = false
}

// predictor returns one that knows all samples and the newest weights.
func (l *learner) predictor() *model.Predictor {
	l.mu.Lock()
	defer l.mu.Unlock()
	seq := l.fsm.SampleSeq()
	version, blob := l.fsm.Weights()
	if l.loaded && seq == l.samples && version == l.weights {
		return l.pred
	}
	w := model.DefaultWeights()
	if len(blob) > 0 {
		if got, err := model.DecodeWeights(blob); err == nil {
			w = got
		} else {
			l.log.Error("published weights cannot be used; the built-in ones are", "index", version, "err", err)
		}
	}
	p, err := model.NewPredictor(w, model.NewHistory(modelSamples(l.fsm.Samples())))
	if err != nil {
		l.log.Error("published weights cannot be used; the built-in ones are", "index", version, "err", err)
		// The built-in weights are checked by a test of their own.
		p, _ = model.NewPredictor(model.DefaultWeights(), nil)
	}
	l.pred, l.samples, l.weights, l.loaded = p, seq, version, true
	return p
}

func modelSamples(in []fsm.Sample) []model.Sample {
	out := make([]model.Sample, 0, len(in))
	for _, s := range in {
		out = append(out, model.Sample{
			Signature: s.Signature, GPUType: s.GPUType, PeakMiB: s.GPUMemPeakMiB, UtilMilli: s.Milli,
			Seconds: s.Duration.Seconds(), HostMiB: s.HostMemMiB, CPUMilli: s.CPUMilli, Censored: s.Censored,
		})
	}
	return out
}

// job makes a checked job with its estimates out of what a user sent. types
// are the cluster's, as gpuTypes lists them.
func (l *learner) job(who caller, js *apiv1.JobSpec, types []model.TypeInfo) (*cluster.Job, error) {
	spec, err := conv.SpecFromAPI(js)
	if err != nil {
		return nil, err
	}
	if err := spec.Check(); err != nil {
		return nil, err
	}
	preds, sig, err := l.predict(who, spec, types)
	if err != nil {
		return nil, err
	}
	spec.Signature = sig
	j := &cluster.Job{Owner: cluster.Owner{UID: who.uid, GID: who.gid, Name: who.name}, Spec: spec, State: cluster.JobPending}
	for _, p := range preds {
		j.Estimates = append(j.Estimates, estimate(p))
	}
	return j, nil
}

// predict answers for each of the cluster's GPU types.
func (l *learner) predict(who caller, spec *cluster.Spec, types []model.TypeInfo) ([]model.Prediction, string, error) {
	var features model.Features
	if len(spec.Features) > 0 {
		var err error
		if features, err = model.DecodeFeatures(spec.Features); err != nil {
			return nil, "", &cluster.Error{Code: cluster.CodeInvalid, Msg: "features: " + err.Error() + "; submit with the same version of berth as the coordinators"}
		}
	}
	sig := features.Signature(identity(who, spec))
	req := model.Request{
		Features: features, Signature: sig, Types: types,
		Declared: model.Declared{GPUMemMiB: spec.GPUMemMiB, UtilMilli: spec.GPUMilli, Seconds: spec.Duration.Seconds()},
	}
	if spec.GPUs == 0 {
		req.Types = []model.TypeInfo{{Name: cluster.CPUType}}
	}
	return l.predictor().Predict(req), sig, nil
}

// identity is what makes two runs the same job beyond their model: who runs
// what, in which image, on how many GPUs.
func identity(who caller, spec *cluster.Spec) string {
	return strings.Join(append([]string{
		strconv.FormatUint(uint64(who.uid), 10), spec.Image, strconv.Itoa(spec.GPUs),
	}, spec.Command...), "\x00")
}

// gpuTypes lists the cluster's GPU types with their memory, sorted.
func gpuTypes(nodes []*cluster.Node) []model.TypeInfo {
	mem := map[string]int64{}
	for _, n := range nodes {
		for i := range n.GPUs {
			mem[n.GPUs[i].Type] = max(mem[n.GPUs[i].Type], n.GPUs[i].MemMiB)
		}
	}
	out := make([]model.TypeInfo, 0, len(mem))
	for t, m := range mem {
		out = append(out, model.TypeInfo{Name: t, MemMiB: m})
	}
	sort.Slice(out, func(i, k int) bool { return out[i].Name < out[k].Name })
	return out
}

// estimate rounds a prediction to the integers that state is made of.
func estimate(p model.Prediction) cluster.Estimate {
	return cluster.Estimate{
		GPUType: p.GPUType, GPUMemMiB: p.GPUMemMiB, GPUMemP95MiB: p.GPUMemP95MiB, Milli: p.UtilMilli,
		Duration:   time.Duration(p.Seconds * float64(time.Second)).Round(time.Microsecond),
		HostMemMiB: p.HostMemMiB, CPUMilli: p.CPUMilli, PowerW: p.PowerW,
		ConfidenceMilli: int64(p.Confidence * 1000), Source: string(p.Source),
	}
}

// explain answers Predict: each type with the parts of its memory.
func (l *learner) explain(who caller, js *apiv1.JobSpec, nodes []*cluster.Node) ([]*apiv1.Prediction, error) {
	if js == nil {
		return nil, cluster.Errorf(cluster.CodeInvalid, "spec: is missing")
	}
	spec, err := conv.SpecFromAPI(js)
	if err != nil {
		return nil, err
	}
	preds, _, err := l.predict(who, spec, gpuTypes(nodes))
	if err != nil {
		return nil, err
	}
	out := make([]*apiv1.Prediction, 0, len(preds))
	for _, p := range preds {
		m := conv.EstimateToAPI(estimate(p))
		for _, part := range p.Parts {
			m.Parts = append(m.Parts, &apiv1.PredictionPart{Name: part.Name, Mib: part.MiB})
		}
		out = append(out, m)
	}
	return out, nil
}

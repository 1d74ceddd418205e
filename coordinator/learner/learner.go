package learner

import (
	"context"
	"log/slog"
	"math"
	"slices"

	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm"
	"github.com/berth-scheduler/berth/fsm/command"
	"github.com/berth-scheduler/berth/model"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
	"github.com/berth-scheduler/berth/scheduler"
)

// Learner predicts for the leader, and learns from measurements. What it knows of
// past runs comes from the samples in the state machine, so a new leader knows the
// same.
type Learner struct {
	// Company is what it knows of jobs that share a GPU.
	Company *Company

	fsm     *fsm.FSM
	prop    Proposer
	cfg     Config
	clock   func() time.Time
	log     *slog.Logger
	metrics *metrics

	// busy holds a token while a fit computes; fits tracks the goroutines that do.
	busy chan struct{}
	fits sync.WaitGroup

	mu      sync.Mutex
	pred    *model.Predictor
	samples uint64 // sequence number of the newest sample in pred
	weights uint64 // version in use when pred was made
	built   time.Time
	loaded  bool
	decoded []model.Sample      // those that the state last held, oldest first
	refused map[uint64]struct{} // versions that cannot be used, logged once

	types typesMemo
}

// Proposer commits a command and returns what the state machine answered;
// *proposer.Proposer does.
type Proposer interface {
	One(ctx context.Context, cmd *logv1.Command) (fsm.Result, error)
	// Version is that of the entries that every coordinator reads.
	Version() uint32
}

// Needs is what a learner depends on. All fields are required.
type Needs struct {
	FSM      *fsm.FSM
	Proposer Proposer
	Clock    func() time.Time
	Log      *slog.Logger
	Registry prometheus.Registerer
}

// New returns a learner. It predicts at once, and learns while it runs.
func New(cfg Config, n Needs) *Learner {
	return &Learner{
		fsm: n.FSM, prop: n.Proposer, cfg: cfg.withDefaults(), clock: n.Clock, log: n.Log,
		metrics: newMetrics(n.Registry), busy: make(chan struct{}, 1), refused: map[uint64]struct{}{},
		Company: &Company{fsm: n.FSM, log: n.Log},
	}
}

// Wait waits until no computation left over from a term is running.
func (l *Learner) Wait() { l.fits.Wait() }

// SawAbsurd counts an impossible measurement.
func (l *Learner) SawAbsurd() { l.metrics.absurd.Inc() }

// Reload makes the next prediction read samples and weights again.
func (l *Learner) Reload() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.loaded = false
}

// staleFor is how long samples of other jobs may be missing from a prediction:
// building a history takes milliseconds, and jobs may end by the hundred.
const staleFor = time.Second

// names are those under which a job's history is kept.
type names struct{ signature, program, numbers string }

// of reports whether a sample is of the job, or of its program.
func (n names) of(s *fsm.Sample) bool {
	return s.Signature == n.signature || s.Program == n.program && n.program != ""
}

// predictor returns one that knows the newest weights, all samples of the job with
// the given names, and recent ones of the others.
func (l *Learner) predictor(of names) *model.Predictor {
	l.mu.Lock()
	defer l.mu.Unlock()
	seq, now := l.fsm.SampleSeq(), l.clock()
	version, _ := l.fsm.Weights()
	if l.loaded && version == l.weights && (seq == l.samples || now.Sub(l.built) < staleFor && !l.news(of, seq)) {
		return l.pred
	}
	p, err := model.NewPredictor(l.usable(), model.NewHistory(l.modelSamples()))
	if err != nil { // usable checked them
		l.log.Error("weights cannot be used; the built-in ones are", "index", version, "err", err)
		p, _ = model.NewPredictor(model.DefaultWeights(), nil)
	}
	l.pred, l.samples, l.weights, l.built, l.loaded = p, seq, version, now, true
	return p
}

// news reports whether a sample of the job came since the predictor was built.
func (l *Learner) news(of names, seq uint64) bool {
	return slices.ContainsFunc(l.fsm.NewestSamples(int(min(seq-l.samples, math.MaxInt32))), func(s fsm.Sample) bool { return of.of(&s) })
}

// usable returns the newest weights that this program can read: those in use,
// or the last good ones before them, or the built-in ones. l.mu is held.
func (l *Learner) usable() model.Weights {
	for _, v := range l.fsm.WeightsState().Versions {
		w, err := model.DecodeWeights(v.Blob)
		if err == nil {
			// Imported ones may come from a cluster that counts its own samples.
			w.TrainedSeq = min(w.TrainedSeq, v.SampleSeq)
			return w
		}
		if _, said := l.refused[v.Version]; !said {
			l.refused[v.Version] = struct{}{}
			l.log.Error("published weights cannot be used; the last good ones are", "index", v.Version, "err", err)
		}
	}
	w := model.DefaultWeights()
	w.TrainedSeq = 0
	return w
}

// modelSamples returns the state's samples for the model, oldest first. l.mu is
// held.
func (l *Learner) modelSamples() []model.Sample {
	_, runs := l.pairedSamples()
	return runs
}

// pairedSamples returns the state's samples, oldest first, and each one's form for
// the model. Each is decoded once. l.mu is held.
func (l *Learner) pairedSamples() ([]fsm.Sample, []model.Sample) {
	in, old := l.fsm.Samples(), l.decoded
	out := make([]model.Sample, len(in)) // a fit may still read the last one
	for i := range in {
		for len(old) > 0 && old[0].Seq < in[i].Seq {
			old = old[1:] // dropped since
		}
		if len(old) > 0 && old[0].Seq == in[i].Seq {
			out[i] = old[0]
		} else {
			out[i] = modelSample(&in[i])
		}
	}
	l.decoded = out
	return in, out
}

func modelSample(s *fsm.Sample) model.Sample {
	m := model.Sample{
		Signature: s.Signature, Program: s.Program, Numbers: model.DecodeNumbers(s.Numbers), GPUType: s.GPUType, Driver: s.Driver, PeakMiB: s.GPUMemPeakMiB, UtilMilli: s.Milli,
		Seconds: s.Duration.Seconds(), Steps: s.Steps, HostMiB: s.HostMemMiB, CPUMilli: s.CPUMilli, Censored: s.Censored, HostCensored: s.HostCensored, PowerW: s.PowerW, Neighbours: s.Neighbours,
		Seq: s.Seq, User: strconv.FormatUint(uint64(s.UID), 10),
	}
	if len(s.Features) > 0 {
		// Features of another version are ignored; the rest is used.
		if f, err := model.DecodeFeatures(s.Features); err == nil {
			m.Features = f
		}
	}
	if m.Steps == 0 && s.Duration > 0 {
		m.Steps = m.Features.Steps // it ran to its end, so it took them all
	}
	return m
}

// Job builds a checked job with its estimates from what a user sent. types are the
// cluster's, as GPUTypes lists them.
func (l *Learner) Job(who cluster.Owner, js *apiv1.JobSpec, types []model.TypeInfo) (*cluster.Job, error) {
	spec, err := apiconv.SpecFromAPI(js)
	if err != nil {
		return nil, err
	}
	if err := spec.Check(); err != nil {
		return nil, err
	}
	preds, of, err := l.predict(who, spec, types)
	if err != nil {
		return nil, err
	}
	if spec.Signature = of.signature; l.prop.Version() >= command.ProgramVersion {
		spec.Program, spec.Numbers = of.program, of.numbers
	}
	j := &cluster.Job{Owner: who, Spec: spec, State: cluster.JobPending}
	for _, p := range preds {
		j.Estimates = append(j.Estimates, l.estimate(p))
	}
	return j, nil
}

// predict predicts for each of the cluster's GPU types, and for cores if the job
// may run on those.
func (l *Learner) predict(who cluster.Owner, spec *cluster.Spec, types []model.TypeInfo) ([]model.Prediction, names, error) {
	var features model.Features
	if len(spec.Features) > 0 {
		var err error
		if features, err = model.DecodeFeatures(spec.Features); err != nil {
			return nil, names{}, &cluster.Error{Code: cluster.CodeInvalid, Msg: "features: " + err.Error() + "; submit with the same version of berth as the coordinators"}
		}
	}
	command := slices.Clip(spec.Command)
	if text := scriptOf(spec); text != "" {
		command = append(command, text)
	}
	numbers := model.Numbers(command)
	of := names{features.Signature(identity(who, spec, command...)), features.Program(identity(who, spec), command), model.EncodeNumbers(numbers)}
	req := model.Request{
		Features: features, Signature: of.signature, Program: of.program, Numbers: numbers, User: strconv.FormatUint(uint64(who.UID), 10), Kin: model.KinSignature(strconv.FormatUint(uint64(who.UID), 10), spec.Name, spec.GPUs), Types: types,
		Declared: model.Declared{GPUMemMiB: spec.GPUMemMiB, UtilMilli: spec.GPUMilli, Seconds: spec.Duration.Seconds()},
	}
	switch {
	case spec.GPUs == 0:
		req.Types = []model.TypeInfo{{Name: cluster.CPUType}}
	case spec.OrCPU:
		onCores := model.TypeInfo{Name: cluster.CPUType, CPUMilli: spec.CPUMilli}
		if onCores.CPUMilli == 0 {
			onCores.CPUMilli = scheduler.Default().DefaultCPUMilli
		}
		req.GPUs, req.Types = spec.GPUs, append(slices.Clip(types), onCores)
	}
	return l.predictor(of).Predict(req), of, nil
}

// identity returns what makes two runs the same job beyond their model: who runs
// what, in which image, on how many GPUs.
func identity(who cluster.Owner, spec *cluster.Spec, command ...string) string {
	return strings.Join(append([]string{
		strconv.FormatUint(uint64(who.UID), 10), spec.Image, strconv.Itoa(spec.GPUs),
	}, command...), "\x00")
}

// estimate rounds a prediction to the integers of the state, as far as every
// coordinator stores it.
func (l *Learner) estimate(p model.Prediction) cluster.Estimate {
	e := cluster.Estimate{
		GPUType: p.GPUType, GPUMemMiB: p.GPUMemMiB, GPUMemP95MiB: p.GPUMemP95MiB, Milli: p.UtilMilli,
		Duration:   time.Duration(p.Seconds * float64(time.Second)).Round(time.Microsecond),
		HostMemMiB: p.HostMemMiB, CPUMilli: p.CPUMilli, PowerW: p.PowerW,
		ConfidenceMilli: int64(p.Confidence * 1000), Source: string(p.Source), HostConfidenceMilli: int64(p.HostConfidence * 1000),
		TimeConfidenceMilli: int64(p.TimeConfidence * 1000),
	}
	if l.prop.Version() < command.HostVersion {
		e.HostConfidenceMilli = 0
	}
	if l.prop.Version() < command.ProgramVersion {
		e.TimeConfidenceMilli = 0
	}
	return e
}

// Explain answers Predict: each type with the parts of its memory. It also returns
// the job as a possible sharer of a GPU.
func (l *Learner) Explain(who cluster.Owner, js *apiv1.JobSpec, nodes []*cluster.Node) ([]*apiv1.Prediction, *Sharer, error) {
	if js == nil {
		return nil, nil, cluster.Errorf(cluster.CodeInvalid, "spec: is missing")
	}
	spec, err := apiconv.SpecFromAPI(js)
	if err != nil {
		return nil, nil, err
	}
	preds, of, err := l.predict(who, spec, l.Types(nodes))
	if err != nil {
		return nil, nil, err
	}
	spec.Signature = of.signature
	one := &Sharer{Spec: spec}
	out := make([]*apiv1.Prediction, 0, len(preds))
	for _, p := range preds {
		e := l.estimate(p)
		one.Estimates = append(one.Estimates, e)
		m := apiconv.EstimateToAPI(e)
		m.TimeBy = p.TimeBy
		for _, f := range p.Floors {
			m.Floors = append(m.Floors, &apiv1.DriverFloor{Driver: f.Driver, Mib: f.MiB, Runs: uint32(f.Runs)})
		}
		for _, part := range p.Parts {
			m.Parts = append(m.Parts, &apiv1.PredictionPart{Name: part.Name, Mib: part.MiB})
		}
		out = append(out, m)
	}
	return out, one, nil
}

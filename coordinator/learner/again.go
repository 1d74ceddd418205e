package learner

import (
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/wait"
	"github.com/berth-scheduler/berth/fsm"
	"github.com/berth-scheduler/berth/model"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

const (
	// againEvery is the least time between two checks of the waiting jobs.
	againEvery = 200 * time.Millisecond
	// lookEvery is the least time between two checks for anything new.
	lookEvery = 20 * time.Millisecond
	// againJobs is how many jobs one command gives new estimates.
	againJobs = 1000
	// againSlice is how long it predicts without a pause, and againRest the pause
	// in multiples of that, and of a command's time: so jobs no two of which are
	// alike cost a tenth of a core, and one user's many that learn something new
	// with each end a tenth of the log.
	againSlice = 20 * time.Millisecond
	againRest  = 9
	// againRetry is when it checks again after a command that failed.
	againRetry = 5 * time.Second
)

// news is what predictions depend on, apart from the jobs.
type news struct {
	samples, weights uint64
	types            []model.TypeInfo
}

func (n *news) equal(o *news) bool {
	return n.samples == o.samples && n.weights == o.weights && slices.Equal(n.types, o.types)
}

// latest returns what predictions depend on now.
func (l *Learner) latest() news {
	version, _ := l.fsm.Weights()
	return news{samples: l.fsm.SampleSeq(), weights: version, types: l.Types(l.fsm.Nodes())}
}

// Again updates the predictions of waiting jobs when something is known that was
// not when they were submitted, until ctx ends: after a run those of its signature,
// after new weights, other GPU types and a change of leader all. The needs of an
// array's tasks and of similar jobs are predicted once (Fluid, MLSys 2021, does so
// for the trials of a search). It runs on the leader.
func (l *Learner) Again(ctx context.Context) error {
	var seen news
	all, runs := true, growth{}
	for {
		index := l.fsm.Index()
		if l.prop.Version() < fsm.EstimatesAnew {
			if !wait.Sleep(ctx, againEvery) {
				return ctx.Err()
			}
			continue
		}
		if now := l.latest(); all || !now.equal(&seen) {
			if err := l.again(ctx, l.touched(&seen, &now, all, runs), now.types); err != nil {
				l.log.WarnContext(ctx, "jobs that wait keep old estimates for now", "err", err)
				if !wait.Sleep(ctx, againRetry) {
					return ctx.Err()
				}
				continue
			}
			seen, all = now, false
			if !wait.Sleep(ctx, againEvery) {
				return ctx.Err()
			}
		}
		if err := l.fsm.WaitChange(ctx, index); err != nil {
			return err
		}
		if !wait.Sleep(ctx, lookEvery) { // nodes that register by the thousand are handled together
			return ctx.Err()
		}
	}
}

// growth counts the runs of users, in all and since their jobs were last checked.
type growth map[cluster.UID]*struct{ all, fresh int }

// due adds runs, and returns the users with so many more that their jobs should be
// checked: a quarter, and four at least.
func (g growth) due(fresh []fsm.Sample) map[cluster.UID]struct{} {
	for i := range fresh {
		n := g[fresh[i].UID]
		if n == nil {
			n = &struct{ all, fresh int }{}
			g[fresh[i].UID] = n
		}
		n.all, n.fresh = n.all+1, n.fresh+1
	}
	users := map[cluster.UID]struct{}{}
	for i := range fresh {
		if n := g[fresh[i].UID]; n.fresh >= max(4, n.all/4) {
			users[fresh[i].UID], n.fresh = struct{}{}, 0
		}
	}
	return users
}

// touched returns which jobs to check: those of a signature or program that ran,
// and those of a user each time the user's runs grew by a quarter, for what they
// say of the margins.
func (l *Learner) touched(seen, now *news, all bool, runs growth) func(*cluster.Job) bool {
	if all || seen.weights != now.weights || !slices.Equal(seen.types, now.types) {
		return func(*cluster.Job) bool { return true }
	}
	return concerned(l.fsm.NewestSamples(int(min(now.samples-seen.samples, math.MaxInt32))), runs)
}

// concerned is what touched returns for new samples alone.
func concerned(fresh []fsm.Sample, runs growth) func(*cluster.Job) bool {
	of := make(map[string]struct{}, len(fresh))
	for i := range fresh {
		if fresh[i].Predicted == (cluster.Estimate{}) {
			// Imported, with a name its user gave, whatever else that was.
			return func(*cluster.Job) bool { return true }
		}
		of[fresh[i].Signature], of[fresh[i].Program] = struct{}{}, struct{}{}
	}
	users := runs.due(fresh)
	return func(j *cluster.Job) bool {
		_, hit := of[j.Spec.Signature]
		if _, alike := of[j.Spec.Program]; alike && j.Spec.Program != "" {
			hit = true
		}
		_, grew := users[j.Owner.UID]
		return hit || grew
	}
}

// alike are jobs with the same predictions.
type alike struct {
	signature, name string
	uid             cluster.UID
	gpus            int
	mem, milli, cpu int64
	duration        time.Duration
	orCPU           bool
}

// again predicts the waiting jobs for which touched reports true, and proposes what
// changed.
func (l *Learner) again(ctx context.Context, touched func(*cluster.Job) bool, types []model.TypeInfo) error {
	jobs, _ := l.fsm.Jobs(fsm.Query{States: []cluster.JobState{cluster.JobPending, cluster.JobQueued}, Keep: touched})
	found := map[alike][]cluster.Estimate{}
	out, n := &batch{}, 0
	began := time.Now()
	for _, j := range jobs {
		s := j.Spec
		key := alike{s.Signature, s.Name, j.Owner.UID, s.GPUs, s.GPUMemMiB, s.GPUMilli, s.CPUMilli, s.Duration, s.OrCPU}
		es, done := found[key]
		if !done {
			if n++; n%16 == 0 && time.Since(began) > againSlice {
				if !wait.Sleep(ctx, againRest*time.Since(began)) {
					return ctx.Err()
				}
				began = time.Now()
			}
			es = l.estimates(j, types)
			found[key] = es
		}
		if es == nil || !differ(j.Estimates, es) {
			continue
		}
		if out.add(key, es, j.ID) == againJobs {
			began := time.Now()
			if err := l.propose(ctx, out); err != nil {
				return err
			}
			if !wait.Sleep(ctx, againRest*time.Since(began)) {
				return ctx.Err()
			}
			out = &batch{}
		}
	}
	return l.propose(ctx, out)
}

// estimates returns those of a job now; nil if it cannot be predicted any more.
func (l *Learner) estimates(j *cluster.Job, types []model.TypeInfo) []cluster.Estimate {
	preds, of, err := l.predict(j.Owner, j.Spec, types)
	if err != nil || of.signature != j.Spec.Signature {
		return nil // described by another version of berth
	}
	es := make([]cluster.Estimate, 0, len(preds))
	for _, p := range preds {
		es = append(es, l.estimate(p))
	}
	slices.SortFunc(es, func(a, b cluster.Estimate) int { return strings.Compare(a.GPUType, b.GPUType) })
	return es
}

// Known returns running jobs with what is now known of their durations: for those
// without a prediction at placement of which an equal one has ended since. It
// serves users; what was reserved stays as it is.
func (l *Learner) Known(running []*cluster.Job, nodes []*cluster.Node) []*cluster.Job {
	out, types := running, []model.TypeInfo(nil)
	found := map[alike][]cluster.Estimate{}
	for i, j := range running {
		a, s := j.Live(), j.Spec
		if a == nil || a.Estimate.Duration > 0 || s.Duration > 0 {
			continue
		}
		if types == nil {
			types, out = GPUTypes(nodes), slices.Clone(running)
		}
		key := alike{s.Signature, s.Name, j.Owner.UID, s.GPUs, s.GPUMemMiB, s.GPUMilli, s.CPUMilli, s.Duration, s.OrCPU}
		es, done := found[key]
		if !done {
			es = l.estimates(j, types)
			found[key] = es
		}
		if e, ok := cluster.EstimateFor(es, a.Estimate.GPUType); ok && e.Duration > 0 {
			now := j.Clone()
			was := &now.Last().Estimate
			was.Duration, was.ConfidenceMilli, was.TimeConfidenceMilli = e.Duration, e.ConfidenceMilli, e.TimeConfidenceMilli
			out[i] = now
		}
	}
	return out
}

// batch is a command being built.
type batch struct {
	cmd  logv1.EstimateJobs
	at   map[alike]int
	jobs int
}

func (b *batch) add(key alike, es []cluster.Estimate, id cluster.JobID) int {
	i, there := b.at[key]
	if !there {
		if b.at == nil {
			b.at = map[alike]int{}
		}
		i = len(b.cmd.Groups)
		b.at[key] = i
		b.cmd.Groups = append(b.cmd.Groups, &logv1.EstimatedJobs{Estimates: conv.EstimatesToLog(es)})
	}
	g := b.cmd.Groups[i]
	g.Jobs = append(g.Jobs, uint64(id))
	b.jobs++
	return b.jobs
}

func (l *Learner) propose(ctx context.Context, b *batch) error {
	if b.jobs == 0 {
		return nil
	}
	if _, err := l.prop.One(ctx, &logv1.Command{Kind: &logv1.Command_EstimateJobs{EstimateJobs: &b.cmd}}); err != nil {
		return err
	}
	l.metrics.again.Add(float64(b.jobs))
	l.log.DebugContext(ctx, "jobs that wait were predicted again", "jobs", b.jobs, "kinds", len(b.cmd.Groups))
	return nil
}

// differ reports whether estimates are so far from others that a plan could change:
// by a twentieth.
func differ(a, b []cluster.Estimate) bool {
	return !slices.EqualFunc(a, b, func(x, y cluster.Estimate) bool {
		return x.GPUType == y.GPUType && x.Source == y.Source && near(x.GPUMemMiB, y.GPUMemMiB) && near(x.GPUMemP95MiB, y.GPUMemP95MiB) &&
			near(x.Milli, y.Milli) && near(int64(x.Duration), int64(y.Duration)) && near(x.HostMemMiB, y.HostMemMiB) && near(x.CPUMilli, y.CPUMilli) &&
			near(x.PowerW, y.PowerW) && near(x.ConfidenceMilli, y.ConfidenceMilli) && near(x.HostConfidenceMilli, y.HostConfidenceMilli) && near(x.TimeConfidenceMilli, y.TimeConfidenceMilli)
	})
}

func near(a, b int64) bool {
	d := max(a, b) - min(a, b)
	return d == 0 || d <= max(a, b)/20
}

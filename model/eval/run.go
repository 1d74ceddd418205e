package eval

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/berth-scheduler/berth/model"
)

// Options say what to compare.
type Options struct {
	Targets  []Target // empty for all
	Splits   []Split  // empty for all that apply
	Trainers []Trainer
	Seed     uint64 // of the random split
}

// Result is one comparison of predictions with measurements.
type Result struct {
	Dataset string
	Target  Target
	Split   Split
	Trainer string
	// TrainedN is the number of rows trained on: in cross-validation the smallest
	// of the folds.
	TrainedN int
	// Skipped counts lines of the data set that yield no row, Censored those whose
	// measurement a limit ended.
	Skipped, Censored int
	Points            []Point
	scores            scores
}

// Point is one prediction and its measurement: MiB, percent or milliseconds. P95 is
// 0 for targets other than memory. A censored point's Actual is a lower bound.
type Point struct {
	Model, GPU             string
	Actual, Predicted, P95 float64
	Censored               bool
}

// Run compares. If test is nil, each set of train is cross-validated; otherwise all
// of a train set is trained on and the test set of the same data set and target is
// scored. A test set without its own train set is scored with training on all
// others of its target. Results are sorted by data set, target, split and trainer,
// in the orders of Targets, Splits and opt.
func Run(train, test []Set, opt Options) ([]Result, error) {
	if len(opt.Trainers) == 0 {
		return nil, errors.New("compare predictions: no trainer is named")
	}
	sets, cross := train, true
	if test != nil {
		sets, cross = test, false
	}
	var out []Result
	for i := range sets {
		s := &sets[i]
		if len(opt.Targets) > 0 && !slices.Contains(opt.Targets, s.Target) {
			continue
		}
		for _, sp := range Splits() {
			if len(opt.Splits) > 0 && !slices.Contains(opt.Splits, sp) {
				continue
			}
			folds := crossFolds(s, sp, opt.Seed)
			if !cross {
				folds = []fold{trainFor(train, s, sp)}
			}
			for _, t := range opt.Trainers {
				r, err := compare(s, sp, folds, t)
				if errors.Is(err, ErrNoSamples) {
					continue
				}
				if err != nil {
					return nil, fmt.Errorf("%s, %s, split %s, trainer %s: %w", s.Dataset, s.Target, sp, t.Name(), err)
				}
				if len(r.Points) > 0 {
					out = append(out, r)
				}
			}
		}
	}
	return out, nil
}

// fold is a training set and the rows to score after training on it.
type fold struct{ train, test []Row }

func crossFolds(s *Set, sp Split, seed uint64) []fold {
	if sp == Both {
		return nil // within one set it adds nothing to leaving out either
	}
	var out []fold
	for _, f := range Folds(s.Rows, sp, seed) {
		out = append(out, fold{pick(s.Rows, f.Train), pick(s.Rows, f.Test)})
	}
	return out
}

func pick(rows []Row, at []int) []Row {
	out := make([]Row, len(at))
	for i, j := range at {
		out[i] = rows[j]
	}
	return out
}

// trainFor returns the rows to train on for a test set.
func trainFor(train []Set, s *Set, sp Split) fold {
	var rows []Row
	for i := range train {
		if train[i].Dataset == s.Dataset && train[i].Target == s.Target {
			rows = train[i].Rows
		}
	}
	if len(rows) == 0 {
		rows = others(train, s)
	}
	return fold{rows, pick(s.Rows, Between(rows, s.Rows, sp))}
}

// others returns the rows of all sets of a target except those of models in the
// test set: another data set may have measured the same.
func others(train []Set, s *Set) []Row {
	models := keysOf(s.Rows, Model)
	var rows []Row
	for i := range train {
		if train[i].Target != s.Target {
			continue
		}
		for j := range train[i].Rows {
			if r := &train[i].Rows[j]; !has(models, Model.key(r)) {
				rows = append(rows, *r)
			}
		}
	}
	return rows
}

// compare scores a trainer over all folds.
func compare(s *Set, sp Split, folds []fold, t Trainer) (Result, error) {
	r := Result{Dataset: s.Dataset, Target: s.Target, Split: sp, Trainer: t.Name(), Skipped: s.skippedTotal(), Censored: s.Censored(), TrainedN: -1}
	points := make([][]Point, len(folds))
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i, f := range folds {
		if len(f.test) == 0 {
			continue
		}
		if r.TrainedN < 0 || len(f.train) < r.TrainedN {
			r.TrainedN = len(f.train)
		}
		g.Go(func() (err error) {
			points[i], err = scoreFold(s.Target, sp, f, t)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return Result{}, err
	}
	for _, p := range points { // in the order of the folds, whichever was ready first
		r.Points = append(r.Points, p...)
	}
	r.scores = score(r.Points, s.Target.memory())
	return r, nil
}

// scoreFold trains on one part and predicts the other.
func scoreFold(target Target, sp Split, f fold, t Trainer) ([]Point, error) {
	if err := Guard(f.train, f.test, sp); err != nil {
		return nil, err
	}
	e, err := t.Train(samples(f.train, f.test[0].Dataset))
	if err != nil {
		return nil, fmt.Errorf("train on %d rows: %w", len(f.train), err)
	}
	out := make([]Point, len(f.test))
	for i := range f.test {
		out[i] = point(e, &f.test[i], target)
	}
	return out, nil
}

// samples converts rows to samples. Those of the data set to be scored come from
// its own machine, like a cluster's own runs, and have a number.
func samples(rows []Row, scored string) []model.Sample {
	out := make([]model.Sample, len(rows))
	for i := range rows {
		if out[i] = rows[i].Sample; rows[i].Dataset == scored {
			out[i].Seq = 1
		}
	}
	return out
}

// point makes an estimate, hiding what was measured.
func point(e Estimator, r *Row, t Target) Point {
	asked := model.Sample{
		Signature: r.Sample.Signature, GPUType: r.Sample.GPUType, Steps: r.Sample.Steps, Features: r.Sample.Features, User: r.Sample.User,
	}
	got := e.Estimate(&asked)
	p := Point{Model: r.Model, GPU: r.GPU, Actual: r.actual(t), Censored: r.Sample.Censored}
	switch t {
	case Util:
		p.Predicted = got.UtilMilli / 10
	case Time:
		p.Predicted = 1e3 * got.StepSeconds
	default:
		p.Predicted = max(0, got.MemMiB-float64(r.OffsetMiB))
		p.P95 = max(0, got.P95MiB-float64(r.OffsetMiB))
	}
	return p
}

// Title returns the heading of a result.
func (r *Result) Title() string {
	return strings.Join([]string{r.Dataset, string(r.Target), string(r.Split), r.Trainer}, " ")
}

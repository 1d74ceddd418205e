package learn

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/berth-scheduler/berth/model"
	"github.com/berth-scheduler/berth/model/fit"
)

// Verdict is how a challenger, trained on older samples, compares with the weights
// in use on newer ones that neither was trained on.
type Verdict struct {
	// Weights are the challenger's; the champion's if there was none.
	Weights model.Weights
	// Better reports whether the challenger should replace the champion, Reason why
	// or why not, in words for an operator.
	Better bool
	Reason string
	// Trained and Tested count samples.
	Trained, Tested int
	// ChampionErr and ChallengerErr are the median of |log(predicted/measured)|
	// over jobs, averaged over the targets that could be compared.
	ChampionErr, ChallengerErr float64
	// ChampionCover and ChallengerCover are the fractions of memory peaks under the
	// predicted upper quantile, averaged over the tested jobs.
	ChampionCover, ChallengerCover float64
}

// Requirements on a challenger.
const (
	// minTested is how many new samples a comparison needs.
	minTested = 8
	// gain is the required ratio of errors, loss the highest allowed ratio for one
	// target.
	gain, loss = 0.98, 1.15
	// slack is how much less of the peaks its upper quantile may cover.
	slack = 0.05
	// sure is by how many standard deviations of a fair coin it must be closer more
	// often than not: half of all challengers that are no better have the smaller
	// error by chance.
	sure = 2.5
)

// Challenge trains a challenger and compares it with champion. samples are oldest
// first, their Seq rising. Of the samples that champion was not trained on, the
// newer half is the test; the challenger trains on the rest and the champion's.
// Runs of one job count once, however often it ran, and the jobs of one user for no
// more than they do in training, so that neither a job that runs all the time nor a
// user with unusual jobs decides alone. Upper quantiles must keep their coverage.
// Equal arguments give equal bytes.
//
// Too few samples are a verdict (not better), not an error.
func Challenge(samples []model.Sample, champion model.Weights, opt Options) (Verdict, error) {
	v := Verdict{Weights: champion}
	fresh := 0
	for i := range samples {
		if samples[i].Seq > champion.TrainedSeq {
			fresh++
		}
	}
	tested := fresh / 2
	if tested < minTested {
		v.Reason = fmt.Sprintf("%d new samples, %d are needed", fresh, 2*minTested)
		return v, nil
	}
	train, test := samples[:len(samples)-tested], samples[len(samples)-tested:]
	w, err := Fit(train, champion, opt)
	if errors.Is(err, ErrTooFew) {
		v.Reason = fmt.Sprintf("%d samples, too few that name their model", len(train))
		return v, nil
	}
	if err != nil {
		return v, err
	}
	for i := range train {
		w.TrainedSeq = max(w.TrainedSeq, train[i].Seq)
	}
	v.Weights, v.Trained, v.Tested = w, len(train), len(test)
	a, err := assess(train, test, champion)
	if err != nil {
		return v, err
	}
	b, err := assess(train, test, w)
	if err != nil {
		return v, err
	}
	v.decide(a, b)
	return v, nil
}

// decide fills in the verdict from the results of champion and challenger.
func (v *Verdict) decide(champion, challenger assessment) {
	targets, won, lost, squares := 0, 0.0, 0.0, 0.0
	for _, t := range model.Targets() {
		a, b := champion.err[t], challenger.err[t]
		if len(a.jobs) < minTested {
			continue
		}
		targets++
		for j := range a.jobs {
			switch w := a.weight(j); {
			case b.jobs[j] < a.jobs[j]:
				won += w
				squares += float64(w * w)
			case b.jobs[j] > a.jobs[j]:
				lost += w
				squares += float64(w * w)
			}
		}
		v.ChampionErr += a.median
		v.ChallengerErr += b.median
		if b.median > float64(a.median*loss)+0.005 && v.Reason == "" {
			v.Reason = fmt.Sprintf("%s got worse: error %.1f %%, was %.1f %%", t, 100*b.median, 100*a.median)
		}
	}
	v.ChampionCover, v.ChallengerCover = champion.cover, challenger.cover
	if targets == 0 {
		v.Reason = fmt.Sprintf("the new samples name too few jobs to compare, %d are needed", minTested)
		return
	}
	v.ChampionErr /= float64(targets)
	v.ChallengerErr /= float64(targets)
	switch {
	case v.Reason != "":
	case v.ChallengerErr > gain*v.ChampionErr:
		v.Reason = fmt.Sprintf("no better: error %.1f %%, was %.1f %%", 100*v.ChallengerErr, 100*v.ChampionErr)
	case won-lost < sure*math.Sqrt(squares):
		v.Reason = fmt.Sprintf("no better: closer for %.0f numbers of jobs, further off for %.0f", won, lost)
	case v.ChallengerCover < min(v.ChampionCover, 0.95)-slack:
		v.Reason = fmt.Sprintf("its upper quantile covers %.0f %% of the peaks, was %.0f %%", 100*v.ChallengerCover, 100*v.ChampionCover)
	default:
		v.Better = true
		v.Reason = fmt.Sprintf("error %.1f %%, was %.1f %%, on %d samples that neither had seen", 100*v.ChallengerErr, 100*v.ChampionErr, v.Tested)
	}
}

// assessment is how well weights predict samples.
type assessment struct {
	err   [3]medianError
	cover float64
}

// medianError is the median of jobs' errors, which are in the order of the jobs.
// weights are how much each job counts, nil if all count 1.
type medianError struct {
	median        float64
	jobs, weights []float64
}

func (e *medianError) weight(j int) float64 {
	if e.weights == nil {
		return 1
	}
	return e.weights[j]
}

// mean returns the mean of a figure over the jobs.
func (e *medianError) mean(of []float64) float64 {
	sum, all := 0.0, 0.0
	for j, v := range of {
		sum += float64(e.weight(j) * v)
		all += e.weight(j)
	}
	if all == 0 {
		return 0
	}
	return sum / all
}

// medianOf weighs jobs' errors by the jobs' users.
func medianOf(errs []float64, users []string) medianError {
	perUser := make(map[string]float64)
	for _, u := range users {
		perUser[u]++
	}
	most := fit.UserCap(perUser)
	e, order, all := medianError{jobs: errs, weights: make([]float64, len(errs))}, make([]int, len(errs)), 0.0
	for j := range errs {
		e.weights[j], order[j] = min(1, most/perUser[users[j]]), j
		all += e.weights[j]
	}
	if all == float64(len(errs)) {
		return medianError{median: fit.Quantile(slices.Clone(errs), 0.5), jobs: errs}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(errs[a], errs[b]) })
	below := 0.0
	for _, j := range order {
		e.median = errs[j]
		if below += e.weights[j]; below >= all/2 {
			break
		}
	}
	return e
}

// assess predicts each sample with what earlier ones show of the floors, without the
// history of its job. Runs of one job on one type are averaged.
func assess(earlier, samples []model.Sample, w model.Weights) (assessment, error) {
	p, err := model.NewPredictor(w, model.NewHistory(earlier))
	if err != nil {
		return assessment{}, fmt.Errorf("assess weights: %w", err)
	}
	type jobKey struct {
		t              model.Target
		signature, gpu string
	}
	at := make(map[jobKey]int)
	var sums [3][]float64
	var users [3][]string
	var counts [3][]int
	var covered []float64 // runs by job, as sums[Memory]
	for i := range samples {
		s := &samples[i]
		if !s.Features.Known() {
			continue
		}
		q := p.Predict(model.Request{Features: s.Features, Types: []model.TypeInfo{{Name: s.GPUType, Drivers: s.Driver}}})[0]
		for _, t := range model.Targets() {
			label, ok := t.Label(s)
			if !ok {
				continue
			}
			k := jobKey{t, s.Signature, s.GPUType}
			if s.Signature == "" {
				k.signature = fmt.Sprintf("#%d", i)
			}
			j, seen := at[k]
			if !seen {
				j = len(sums[t])
				at[k] = j
				sums[t], counts[t], users[t] = append(sums[t], 0), append(counts[t], 0), append(users[t], s.User)
				if t == model.Memory {
					covered = append(covered, 0)
				}
			}
			if t == model.Memory && float64(q.GPUMemP95MiB) >= label {
				covered[j]++
			}
			sums[t][j] += math.Abs(fit.Log(predicted(t, &q) / label))
			counts[t][j]++
		}
	}
	var a assessment
	for t := range sums {
		for j := range sums[t] {
			sums[t][j] /= float64(counts[t][j])
		}
		a.err[t] = medianOf(sums[t], users[t])
	}
	for j, n := range counts[model.Memory] {
		covered[j] /= float64(n)
	}
	a.cover = a.err[model.Memory].mean(covered)
	return a, nil
}

// predicted returns a prediction's number for a target, in the unit of its labels.
func predicted(t model.Target, q *model.Prediction) float64 {
	switch t {
	case model.Memory:
		return float64(q.GPUMemMiB)
	case model.Util:
		return float64(q.UtilMilli) / 1000
	default:
		return q.StepSeconds
	}
}

package place

import (
	"slices"
	"time"

	"github.com/berth-scheduler/berth/scheduler/policies/scene"
)

// maxTeam is the largest group whose stages are interleaved.
const maxTeam = 4

// Stages is how long an iteration of a job spends on its GPUs, on cores and disk to
// load and prepare data, and on the network. All zero is unknown.
type Stages = [3]time.Duration

// Period returns how long an iteration of a group takes that shares its GPUs, each
// job doing one of its own in it: the model of Muri (Zhao et al., SIGCOMM 2022,
// section 4.1, and its simulator). A period has four slots. In each one job
// computes, one is on the network, and two load and prepare, which takes two slots,
// one after the other; a slot is as long as the longest of these, and the jobs are
// in the best possible order. A job alone is not interleaved: its period is the
// sum. Groups of more than four take turns.
func Period(group []Stages) time.Duration {
	if len(group) < 2 || len(group) > maxTeam {
		sum := time.Duration(0)
		for _, s := range group {
			sum += s[0] + s[1] + s[2]
		}
		return sum
	}
	var buf [maxTeam]Stages
	order := append(buf[:0], group...)
	best := time.Duration(-1)
	first := 0
	if len(group) == maxTeam {
		first = 1 // whichever has the first slot, it is a circle
	}
	permute(order, first, func() {
		if t := periodOf(order); best < 0 || t < best {
			best = t
		}
	})
	if len(group) == 2 { // one computes and sends while the other prepares
		a, b := &group[0], &group[1]
		best = min(best, max(a[1], b[0]+b[2])+max(b[1], a[0]+a[2]))
	}
	return best
}

// Contention returns how much longer a period is than its stages, for two, three
// and four jobs, in thousandths: as measured by Muri's authors, relative to their
// figure for one job. Four do cost less than three there.
func Contention(jobs int) int64 {
	switch jobs {
	case 0, 1:
		return 1000
	case 2:
		return 1310
	case 3:
		return 1478
	}
	return 1350
}

// periodOf simulates the slots until they repeat and returns the length of four.
func periodOf(order []Stages) time.Duration {
	const rounds = 4
	var ends [4*rounds + 2]time.Duration // slot i is from ends[i+1] to ends[i+2]
	for i := range 4 * rounds {
		began := ends[i+1]
		end := began
		if k := (i + 1) % 4; k < len(order) {
			end = max(end, began+order[k][2])
		}
		if k := (i + 2) % 4; k < len(order) {
			end = max(end, began+order[k][0])
		}
		if k := (i + 3) % 4; k < len(order) && i > 0 {
			end = max(end, ends[i]+order[k][1])
		}
		ends[i+2] = end
	}
	return (ends[4*rounds+1] - ends[4*rounds-7]) / 2 // two rounds: it may take both to repeat
}

// permute calls f with every order of xs[k:].
func permute(xs []Stages, k int, f func()) {
	if k >= len(xs)-1 {
		f()
		return
	}
	for i := k; i < len(xs); i++ {
		xs[k], xs[i] = xs[i], xs[k]
		permute(xs, k+1, f)
		xs[k], xs[i] = xs[i], xs[k]
	}
}

// cohort is a group of kinds of job, sorted, to cache results by.
type cohort [maxTeam]Stages

// interleaved appends how fast each of a group runs by its stages; false if some
// are unknown. Periods are computed once in a pass.
func (m *muri) interleaved(p *scene.Scene, group []Member, out []float64) (speeds []float64, known bool) {
	if len(group) > maxTeam {
		return out, false
	}
	var key cohort
	var alone [maxTeam]time.Duration
	for i := range group {
		x := p.Snap.Terms[group[i].Job.ID]
		if x.Iteration <= 0 || x.Stages == (Stages{}) {
			return out, false
		}
		key[i], alone[i] = x.Stages, x.Iteration
	}
	part := key[:len(group)]
	slices.SortFunc(part, func(a, b Stages) int { return slices.Compare(a[:], b[:]) })
	t, ok := m.periods[key]
	if !ok {
		t = float64(Period(part)) * float64(Contention(len(part))) / 1000
		m.periods[key] = t
	}
	for i := range group {
		out = append(out, float64(alone[i])/t)
	}
	return out, true
}

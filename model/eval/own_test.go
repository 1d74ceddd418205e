package eval

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/berth-scheduler/berth/model"
)

// TestMarginsThatRunsEarnCover: in a cluster whose user runs one model of a data set
// after the other, nineteen in twenty stay under what is reserved, by the built-in
// weights and the user's own runs so far; and so do most when the user goes over from
// one data set to another. What is reserved beside the built-in margin is logged.
func TestMarginsThatRunsEarnCover(t *testing.T) {
	t.Parallel()
	rows := map[string][]Row{}
	var names []string
	for _, s := range loadReal(t) {
		var usable []Row
		for _, r := range s.Rows {
			if s.Target.memory() && !r.Sample.Censored && r.Sample.PeakMiB > 0 {
				usable = append(usable, r)
			}
		}
		if len(usable) >= 30 {
			name := s.Dataset + "/" + string(s.Target)
			rows[name], names = usable, append(names, name)
		}
	}
	for _, from := range names {
		for _, to := range names {
			c := earn(t, rows[from], rows[to])
			t.Logf("%-28s to %-28s %3d runs: %.3f stay under %.2f times what they took; by the weights alone %.3f under %.2f",
				from, to, c.runs, c.covers(), c.reserves(), c.builtCovers(), c.builtReserves())
			if least := min(0.95, c.builtCovers()-0.06); from == to && c.covers() < 0.95 || c.covers() < least {
				t.Errorf("%s to %s: %.3f stay under what is reserved", from, to, c.covers())
			}
		}
	}
}

type earned struct {
	runs, under, builtUnder int
	sum, builtSum           float64
}

func (e *earned) covers() float64        { return float64(e.under) / float64(e.runs) }
func (e *earned) builtCovers() float64   { return float64(e.builtUnder) / float64(e.runs) }
func (e *earned) reserves() float64      { return e.sum / float64(e.runs) }
func (e *earned) builtReserves() float64 { return e.builtSum / float64(e.runs) }

// earn has users run fifteen models of one set and then thirty of another, and says
// how those fared.
func earn(t *testing.T, from, to []Row) (e earned) {
	t.Helper()
	for seed := range uint64(12) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var ran []model.Sample
		run := func(r *Row) {
			s := r.Sample
			s.User, s.Signature, s.Seq = "ann", fmt.Sprint(len(ran)), uint64(len(ran)+1)
			ran = append(ran, s)
		}
		for _, i := range rng.Perm(len(from))[:15] {
			run(&from[i])
		}
		for _, i := range rng.Perm(len(to))[:30] {
			r := &to[i]
			w := model.DefaultWeights()
			w.TrainedSeq = 0
			p, err := model.NewPredictor(w, model.NewHistory(ran))
			if err != nil {
				t.Fatal(err)
			}
			req := model.Request{Features: r.Sample.Features, Types: []model.TypeInfo{{Name: r.Sample.GPUType, MemMiB: 1 << 20}}}
			built := p.Predict(req)[0].GPUMemP95MiB
			req.User = "ann"
			own := p.Predict(req)[0].GPUMemP95MiB
			e.runs++
			e.sum, e.builtSum = e.sum+float64(own)/float64(r.Sample.PeakMiB), e.builtSum+float64(built)/float64(r.Sample.PeakMiB)
			if r.Sample.PeakMiB <= own {
				e.under++
			}
			if r.Sample.PeakMiB <= built {
				e.builtUnder++
			}
			run(r)
		}
	}
	return e
}

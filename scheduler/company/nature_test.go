package company

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
)

// TestNaturesSayWhatSharingSays: with what was learned looked up beforehand, all of it
// or with the victims known, offsets are exactly those of Sharing, and Suits is Judge.
func TestNaturesSayWhatSharingSays(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(6, 6))
	signatures := []string{"a", "b", "c", "d", ""}
	paired, against := 0, 0
	for range 4000 {
		x := &dispatch.Interference{MaxBend: 1.6, BandwidthPerUtil: rnd.Float64() * 2, Jobs: map[string]dispatch.Temper{}}
		for _, sig := range signatures[:4] {
			x.Jobs[sig] = dispatch.Temper{Self: rnd.Uint64N(5), Family: rnd.Uint64N(5)}
		}
		s := &dispatch.Sharing{Switch: 0.02, Compute: rnd.Float64(), Memory: rnd.Float64(), Bandwidth: rnd.Float64(), Effects: map[uint64]dispatch.Effect{}, Histories: map[[2]uint64]float64{}}
		for name := range uint64(5) { // what has the name 0 counts for nobody
			s.Effects[name] = dispatch.Effect{Sensitivity: rnd.Float64() - 0.5, Aggression: rnd.Float64() - 0.5}
		}
		for range rnd.IntN(6) {
			s.Histories[[2]uint64{rnd.Uint64N(5), rnd.Uint64N(5)}] = rnd.Float64() - 0.5
		}
		victims := Victims(s)
		for _, v := range signatures {
			for _, n := range signatures {
				want := s.Offset(x.Jobs[v], x.Jobs[n])
				for _, known := range []map[uint64]struct{}{nil, victims} {
					a, b := NatureOf(x, s, v, known), NatureOf(x, s, n, known)
					if got := offset(s, &a, &b); got != want {
						t.Fatalf("%q beside %q: %v, want %v of %+v", v, n, got, want, s)
					}
					if known != nil && a.paired {
						paired++
					}
				}
			}
		}
		of := func(id cluster.JobID) Sharer {
			j := &cluster.Job{ID: id, Spec: &cluster.Spec{}}
			util, nature := rnd.Int64N(1200), NatureOf(x, s, signatures[rnd.IntN(5)], victims)
			return SharerOf(j, id, util, &nature)
		}
		var on []Sharer
		for i := range rnd.IntN(4) {
			on = Insert(on, of(cluster.JobID(i+1)))
		}
		newcomer := of(0)
		v := Judge(x, s, slices.Clone(on), newcomer, 1500)
		if Suits(x, s, on, &newcomer, 1500) == v.Against() {
			t.Fatalf("%d there: suits, and %+v is against it, or neither", len(on), v)
		}
		if v.Against() {
			against++
		}
	}
	if paired == 0 || against < 400 {
		t.Errorf("%d victims of certain others, %d verdicts against: too few to tell", paired, against)
	}
}

package jobs

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/draws"
)

var _ = draws.Fixed()

// TestSetsAreIndependentOfTheirClones: a set and its clones hold what was put into
// each, whichever of them changes.
func TestSetsAreIndependentOfTheirClones(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		type pair struct {
			set  *Set
			want map[cluster.JobID]*cluster.Job
		}
		all := []pair{{&Set{}, map[cluster.JobID]*cluster.Job{}}}
		for id := range cluster.JobID(3 * blockLen) {
			j := &cluster.Job{ID: 2 * id}
			all[0].set.Put(j)
			all[0].want[j.ID] = j
		}
		for range 60 {
			p := all[rapid.IntRange(0, len(all)-1).Draw(t, "set")]
			id := cluster.JobID(rapid.IntRange(0, 6*blockLen).Draw(t, "job"))
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0:
				c := p.set.Clone()
				all = append(all, pair{&c, maps.Clone(p.want)})
			case 1:
				p.set.Remove(id)
				delete(p.want, id)
			default:
				j := &cluster.Job{ID: id}
				p.set.Put(j)
				p.want[id] = j
			}
		}
		for i, p := range all {
			got := p.set.List()
			if len(got) != len(p.want) || p.set.Len() != len(got) || !slices.IsSortedFunc(got, func(a, b *cluster.Job) int { return int(a.ID) - int(b.ID) }) {
				t.Fatalf("set %d of %d has %d jobs, want %d in order", i, len(all), len(got), len(p.want))
			}
			for _, j := range got {
				if p.want[j.ID] != j {
					t.Fatalf("set %d of %d has another job %d", i, len(all), j.ID)
				}
			}
		}
	})
}

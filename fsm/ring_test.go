package fsm

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
)

// ringEntry is the most changes of one entry in TestRingProperties.
const ringEntry = 6

// TestRingProperties: a watcher that asks for the changes after an index gets
// all of them or is told that some are gone, never some of them; and whoever
// is not further behind than the ring is long gets them.
func TestRingProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 20).Draw(t, "size")
		f := New(Options{ChangeRing: size})
		var all []Change
		index, reset, job := uint64(0), uint64(0), cluster.JobID(0)
		for range rapid.IntRange(1, 60).Draw(t, "entries") {
			index += uint64(rapid.IntRange(1, 3).Draw(t, "gap"))
			f.st.at.Index = index
			if rapid.IntRange(0, 30).Draw(t, "restore") == 0 {
				f.ring.reset(index)
				all, reset = nil, index
				continue
			}
			cs := make([]Change, rapid.IntRange(0, ringEntry).Draw(t, "changes"))
			for i := range cs {
				job++
				cs[i].Job = job
			}
			f.ring.add(cs, index)
			all = append(all, cs...)
			if n := len(f.ring.items); n > size+size/4 {
				t.Fatalf("%d changes are held in a ring of %d", n, size)
			}
			for after := uint64(0); after <= index+1; after++ {
				checkChanges(t, f, all, after, reset, size)
			}
		}
	})
}

func checkChanges(t *rapid.T, f *FSM, all []Change, after, reset uint64, size int) {
	got, upTo, ok := f.Changes(after)
	if upTo != f.st.at.Index {
		t.Fatalf("up to %d, the state is at %d", upTo, f.st.at.Index)
	}
	var want []Change
	for _, c := range all {
		if c.Index > after {
			want = append(want, c)
		}
	}
	same := func(a, b Change) bool { return a.Index == b.Index && a.Job == b.Job }
	if ok && !slices.EqualFunc(want, got, same) {
		t.Fatalf("changes after %d: %v, want %v", after, got, want)
	}
	switch {
	case after < reset && ok:
		t.Fatalf("changes after %d are told, those up to %d were never seen", after, reset)
	case !ok && after >= reset && len(want) == 0:
		t.Fatalf("nothing came after %d, and it is refused", after)
	case !ok && after >= reset && len(want)+ringEntry <= size: // an entry is cut off whole
		t.Fatalf("the last %d changes are refused by a ring of %d", len(want), size)
	}
	if ok && len(got) > 0 {
		got[0].Job = 0 // what callers get is theirs
		if again, _, _ := f.Changes(after); again[0].Job == 0 {
			t.Fatalf("callers can change what is held")
		}
	}
}

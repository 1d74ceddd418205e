package graph

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func readFile(t testing.TB, path string) *Graph {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	g, err := Read(f)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestTracesAreWellFormed: every Free has its Alloc with the same size, no
// block is freed twice, nothing negative, equal calls give equal traces, and
// the reserved peak is never below the most that is allocated at once.
func TestTracesAreWellFormed(t *testing.T) {
	t.Parallel()
	for _, file := range zooFiles(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			g := readFile(t, file)
			opt := Options{Batch: 8, Training: true, Precision: AMP, Optimizer: AdamW}
			ev, err := Trace(g, opt)
			if err != nil {
				t.Fatal(err)
			}
			live := map[int32]int64{}
			var now, most int64
			for i, e := range ev {
				switch e.Kind {
				case Alloc:
					if _, dup := live[e.Tensor]; dup || e.Bytes < 0 {
						t.Fatalf("event %d: %+v allocates a living block", i, e)
					}
					live[e.Tensor] = e.Bytes
					now += e.Bytes
					most = max(most, now)
				case Free:
					if b, ok := live[e.Tensor]; !ok || b != e.Bytes {
						t.Fatalf("event %d: %+v frees what is not there", i, e)
					}
					delete(live, e.Tensor)
					now -= e.Bytes
				case Compute:
					if e.FLOPs < 0 || e.Moved < 0 {
						t.Fatalf("event %d: %+v", i, e)
					}
				default:
					t.Fatalf("event %d: kind %d", i, e.Kind)
				}
			}
			if peak := Peak(ev); peak < most || peak > 2*most+64<<20 {
				t.Errorf("reserved %d for %d allocated at once", peak, most)
			}
			again, err := Trace(g, opt)
			if d := cmp.Diff(ev, again); err != nil || d != "" {
				t.Errorf("a second trace differs: %v %s", err, d)
			}
		})
	}
}

func TestTrainingTakesMoreThanInference(t *testing.T) {
	t.Parallel()
	g := readFile(t, "../zoo/onnx/resnet18.onnx")
	// most returns the allocated and the reserved peak.
	most := func(o Options) (allocated, reserved int64) {
		ev, err := Trace(g, o)
		if err != nil {
			t.Fatal(err)
		}
		var now int64
		for _, e := range ev {
			switch e.Kind {
			case Alloc:
				now += e.Bytes
				allocated = max(allocated, now)
			case Free:
				now -= e.Bytes
			case Compute:
			}
		}
		return allocated, Peak(ev)
	}
	inferA, inferR := most(Options{Batch: 16})
	sgdA, sgdR := most(Options{Batch: 16, Training: true, Optimizer: SGD})
	adamA, adamR := most(Options{Batch: 16, Training: true, Optimizer: Adam})
	if !(inferA < sgdA && inferR < sgdR && sgdR < adamR) {
		t.Errorf("reserved: inference %d, SGD %d, Adam %d: must rise", inferR, sgdR, adamR)
	}
	// Adam keeps two floats per parameter; segments may add to what is
	// reserved, never to what is allocated.
	if want := int64(2 * 4 * 11_689_512); adamA-sgdA != want {
		t.Errorf("Adam allocates %d bytes more, want %d", adamA-sgdA, want)
	}
}

func TestPeak(t *testing.T) {
	t.Parallel()
	a := func(id int32, bytes int64) Event { return Event{Kind: Alloc, Tensor: id, Bytes: bytes} }
	f := func(id int32) Event { return Event{Kind: Free, Tensor: id} }
	const m = 1 << 20
	for _, tc := range []struct {
		name string
		ev   []Event
		want int64
	}{
		{"nothing", nil, 0},
		{"one byte takes a small segment", []Event{a(1, 1)}, 2 * m},
		{"small blocks share a segment", []Event{a(1, m/2), a(2, m/2), a(3, m)}, 2 * m},
		{"a middle block takes 20 MiB", []Event{a(1, 3*m)}, 20 * m},
		{"middle blocks share it", []Event{a(1, 9*m), a(2, 9*m)}, 20 * m},
		{"a large block is rounded to 2 MiB", []Event{a(1, 11*m)}, 12 * m},
		{"a freed block is used again", []Event{a(1, 50*m), f(1), a(2, 50*m)}, 50 * m},
		{"a freed block is split", []Event{a(1, 50*m), f(1), a(2, 20*m), a(3, 30*m)}, 50 * m},
		{"neighbours join", []Event{a(1, 50*m), f(1), a(2, 20*m), a(3, 30*m), f(2), f(3), a(4, 50*m)}, 50 * m},
		{"freed memory stays cached", []Event{a(1, 50*m), f(1), a(2, 60*m)}, 110 * m},
		{"a free of nothing is ignored", []Event{f(9), a(1, 1)}, 2 * m},
		{"zero bytes are free", []Event{a(1, 0)}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := Peak(tc.ev); got != tc.want {
				t.Fatalf("Peak = %d, want %d", got, tc.want)
			}
		})
	}
}

// TestAllocatorKeepsItsBooks: after any sequence, used and cached blocks
// together are exactly what the driver gave.
func TestAllocatorKeepsItsBooks(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		al := newAllocator()
		var ids []int32
		for i := range rapid.IntRange(1, 80).Draw(t, "n") {
			if len(ids) > 0 && rapid.Bool().Draw(t, "free") {
				j := rapid.IntRange(0, len(ids)-1).Draw(t, "which")
				al.release(ids[j])
				ids = append(ids[:j], ids[j+1:]...)
				continue
			}
			al.alloc(int32(i), 1+rapid.Int64Range(0, 1<<rapid.IntRange(1, 28).Draw(t, "bits")).Draw(t, "bytes"))
			ids = append(ids, int32(i))
		}
		var sum int64
		for _, b := range al.used {
			sum += b.size
		}
		for _, pool := range al.free {
			for i, b := range pool {
				sum += b.size
				if i > 0 && bySize(pool[i-1], b) >= 0 {
					t.Fatal("a pool is out of order")
				}
				if (b.next != nil && !b.next.used) || (b.prev != nil && !b.prev.used) {
					t.Fatal("free neighbours did not join")
				}
			}
		}
		if sum != al.reserved {
			t.Fatalf("%d in blocks, %d from the driver", sum, al.reserved)
		}
	})
}

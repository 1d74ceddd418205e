package scheduler_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler"
	. "github.com/berth-scheduler/berth/scheduler/schedtest"
)

// siege is a stream of arrivals that never ends, and one victim in it.
type siege struct {
	nodes   []*cluster.Node
	victim  []JobOption
	arrival func(id cluster.JobID) []JobOption
	each    time.Duration // between arrivals
	slower  float64       // how many times longer than predicted runs take
	bound   time.Duration // the victim must have started by then
	at      cluster.JobID // the victim's place in the stream, 0 means 500
}

// hold runs the siege with the calls that a coordinator makes: the fast path
// after each end, an arrival pass after two of three arrivals, a full pass
// after the third. It returns how long the victim waited.
func (s *siege) hold(t interface {
	Fatalf(string, ...any)
	Fatal(...any)
}, pol scheduler.Policy) time.Duration {
	victim := cluster.JobID(500)
	if s.at > 0 {
		victim = s.at
	}
	w := NewWorld(s.nodes)
	w.Runs = func(j *cluster.Job) time.Duration {
		d := time.Duration(float64(j.Spec.Duration) * max(1, s.slower))
		if j.Spec.TimeLimit > 0 {
			d = min(d, j.Spec.TimeLimit)
		}
		return d
	}
	var began cluster.Time
	id := cluster.JobID(0)
	for tick := 0; ; tick++ {
		freed := w.Advance(s.each)
		p := scheduler.OnRelease(w, freed, pol)
		w.Apply(&p)
		if id++; id == victim {
			w.Submit(Job(id, append(s.victim, func(j *cluster.Job) { j.Eligible = w.Clock })...))
			began = w.Clock
		} else {
			w.Submit(Job(id, append(s.arrival(id), func(j *cluster.Job) { j.Eligible = w.Clock })...))
		}
		snap := w.Snapshot()
		if tick%3 != 0 { // an arrival pass sees those without a queue alone
			snap.Waiting = slices.DeleteFunc(snap.Waiting, func(j *cluster.Job) bool { return j.State == cluster.JobQueued })
		}
		p = scheduler.Schedule(snap, pol)
		w.Apply(&p)
		if len(w.Rejected) > 0 {
			t.Fatalf("rejected: %v", w.Rejected)
		}
		maps.DeleteFunc(w.Jobs, func(_ cluster.JobID, j *cluster.Job) bool { return j.State.Terminal() && j.ID != victim })
		if id < victim {
			continue
		}
		if j, _ := w.Job(victim); !j.State.Waiting() {
			if err := w.Check(); err != nil {
				t.Fatal(err)
			}
			return w.Clock.Sub(began)
		}
		if waited := w.Clock.Sub(began); waited > s.bound {
			j, _ := w.Job(victim)
			t.Fatalf("still waits after %s, %d jobs later; in queue %q, expected start %s after its arrival; %d wait",
				waited, id-victim, j.Queue, j.EstStart.Sub(began), len(w.Snapshot().Waiting))
		}
	}
}

// starves reports whether the siege wins.
func (s *siege) starves(pol scheduler.Policy) (yes bool) {
	defer func() {
		if r := recover(); r != nil {
			if _, yes = r.(starved); !yes {
				panic(r)
			}
		}
	}()
	s.hold(dying{}, pol)
	return false
}

type starved struct{}

// dying turns the failure of a test into a panic that starves catches.
type dying struct{}

func (dying) Fatalf(string, ...any) { panic(starved{}) }
func (dying) Fatal(a ...any)        { panic(fmt.Sprint(a...)) }

func TestNobodyStarves(t *testing.T) {
	t.Parallel()
	m := time.Minute
	pol := scheduler.Default()
	pol.FIFOAge = 2 * time.Hour
	ageless := pol
	ageless.FIFOAge, ageless.ReserveAge = 0, 1<<55
	oneShare := func(cluster.JobID) []JobOption { return []JobOption{Mem(30000), Util(300), Lasts(20 * m)} }
	for _, c := range []struct {
		name string
		s    siege
		dies bool // without the rules of age
	}{
		{"a large share among small ones", siege{
			nodes: []*cluster.Node{Node("n1", 2, a100)}, victim: []JobOption{Mem(70000), Util(900), Lasts(10 * m)},
			arrival: oneShare, each: 5 * m, bound: 4 * time.Hour,
		}, true},
		{"a small share among large ones", siege{
			nodes: []*cluster.Node{Node("n1", 2, a100)}, victim: []JobOption{Mem(20000), Util(200), Lasts(10 * m)},
			arrival: func(cluster.JobID) []JobOption { return []JobOption{Mem(70000), Util(900), Lasts(20 * m)} },
			each:    10 * m, bound: 4 * time.Hour,
		}, false},
		{"a whole card among shares", siege{
			nodes: []*cluster.Node{Node("n1", 2, a100)}, victim: []JobOption{Exclusive, Lasts(10 * m)},
			arrival: oneShare, each: 5 * m, bound: 4 * time.Hour,
		}, true},
		{"a whole node among single cards", siege{
			nodes: []*cluster.Node{Node("n1", 4, a100), Node("n2", 4, a100)}, victim: []JobOption{GPUs(4), Exclusive, Lasts(10 * m)},
			arrival: func(id cluster.JobID) []JobOption {
				return []JobOption{Exclusive, Lasts(time.Duration(20+id%17) * m)}
			},
			each: 4 * m, bound: 4 * time.Hour,
		}, true},
		{"a whole node among shares that take twice as long as predicted", siege{
			nodes: []*cluster.Node{Node("n1", 2, a100)}, victim: []JobOption{GPUs(2), Exclusive, Lasts(10 * m)},
			arrival: oneShare, each: 12 * m, slower: 2, bound: 6 * time.Hour,
		}, true},
		{"one under more arrivals than there is room for", siege{
			nodes: []*cluster.Node{Node("n1", 1, a100)}, victim: []JobOption{Mem(70000), Util(900), Lasts(10 * m)},
			arrival: func(id cluster.JobID) []JobOption {
				return []JobOption{Mem(30000), Util(300), Lasts(time.Duration(5+id%40) * m)}
			},
			each: 10 * m, bound: 24 * time.Hour, at: 60,
		}, false},
		{"many cores without GPU among few cores", siege{
			nodes: []*cluster.Node{Node("n1", 1, a100, Host(8000, 1<<20))}, victim: []JobOption{GPUs(0), Cores(8000), Lasts(10 * m)},
			arrival: func(cluster.JobID) []JobOption { return []JobOption{GPUs(0), Cores(2000), Lasts(20 * m)} },
			each:    5 * m, bound: 6 * time.Hour,
		}, true},
		{"many cores with a GPU among few cores", siege{
			nodes: []*cluster.Node{Node("n1", 2, a100, Host(8000, 1<<20))}, victim: []JobOption{Mem(100), Util(10), Cores(8000), Lasts(10 * m)},
			arrival: func(id cluster.JobID) []JobOption {
				return []JobOption{GPUs(int(id % 2)), Cores(2000), Lasts(20 * m), func(j *cluster.Job) {
					if j.Spec.GPUs > 0 {
						j.Spec.GPUMemMiB, j.Spec.GPUMilli = 100, 10
					}
				}}
			},
			each: 5 * m, bound: 6 * time.Hour,
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			t.Logf("started after %s", c.s.hold(t, pol))
			if starves := c.s.starves(ageless); starves != c.dies {
				t.Errorf("without the rules of age it starves: %t, want %t", starves, c.dies)
			}
		})
	}
}

// TestNobodyStarvesAnywhere draws the victim, the stream and the cluster.
// Loads stay below what the cluster can bear, or else somebody must wait for
// ever whatever the order.
func TestNobodyStarvesAnywhere(t *testing.T) {
	t.Parallel()
	m := time.Minute
	rapid.Check(t, func(t *rapid.T) {
		cards := rapid.IntRange(1, 4).Draw(t, "cards")
		pol := scheduler.Default()
		pol.FIFOAge = 90 * m
		longest := rapid.IntRange(5, 40).Draw(t, "longest")
		s := siege{
			nodes: []*cluster.Node{Node("n1", cards, a100), Node("n2", cards, a100)},
			each:  time.Duration(longest)*m/time.Duration(2*cards) + m,
			bound: 12 * time.Hour, slower: rapid.SampledFrom([]float64{1, 1, 1.5}).Draw(t, "slower"),
		}
		s.victim = rapid.SampledFrom([][]JobOption{
			{Exclusive}, {GPUs(cards), Exclusive}, {Mem(75000), Util(100)}, {Mem(1000), Util(950)}, {Mem(100), Util(10), Cores(60_000)},
		}).Draw(t, "victim")
		s.victim = append(s.victim, Lasts(10*m))
		seed := rapid.IntRange(0, 1000).Draw(t, "seed")
		s.arrival = func(id cluster.JobID) []JobOption {
			x := mix(int(id) + 7919*seed)
			d := Lasts(time.Duration(1+x%longest) * m)
			switch x % 5 {
			case 0:
				return []JobOption{Exclusive, d}
			case 1:
				return []JobOption{Mem(int64(1000 + x)), Util(600), Cores(4000), d}
			}
			return []JobOption{Mem(int64(1000 + x/3)), Util(int64(1 + x%400)), Cores(2000), d}
		}
		s.hold(t, pol)
	})
}

func ExampleSchedule() {
	w := NewWorld([]*cluster.Node{Node("n1", 1, "A100-SXM4-80GB")},
		Job(1, Mem(50000), Util(500), Lasts(time.Hour)), Job(2, Mem(20000), Util(300), Lasts(time.Hour)), Job(3, Exclusive, Lasts(time.Hour)))
	p := scheduler.Schedule(w.Snapshot(), scheduler.Default())
	for _, st := range p.Starts {
		fmt.Println("job", st.Job, "starts:", st.Why)
	}
	for _, u := range p.Unplaced {
		fmt.Println("job", u.Job, "waits:", u.Reason)
	}
	// Output:
	// job 3 starts: alone on A100-SXM4-80GB, on the node with the fewest free; expected ~60 min
	// job 1 waits: GPUMemory: A100-SXM4-80GB: at most 0 MiB free on one GPU, needs 48.8 GiB
	// job 2 waits: GPUMemory: A100-SXM4-80GB: at most 0 MiB free on one GPU, needs 19.5 GiB
}

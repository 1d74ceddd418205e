package agent_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-scheduler/berth/agent"
	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// metered is cards that draw their limit, on which a job steps by it.
type metered struct{ *tuned }

func (d metered) Usage(ctx context.Context) ([]gpu.Usage, error) {
	out, err := d.deck.Usage(ctx)
	d.tmu.Lock()
	defer d.tmu.Unlock()
	for i := range out {
		out[i].PowerW, out[i].EnergyMJ = d.watts[out[i].UUID], gpu.Unknown
	}
	return out, err
}

// rate is how many steps a job takes in a second on the first card.
func (d metered) rate() float64 {
	d.tmu.Lock()
	defer d.tmu.Unlock()
	return 10 * math.Pow(float64(d.watts["GPU-0"])/70, 0.3)
}

// training is a rig with a job that says its steps while it runs, twice a second.
type training struct {
	*rig
	*watched
	d       metered
	scripts string
	steps   float64
}

func train(t *testing.T) *training {
	tr := &training{d: metered{newTuned()}, scripts: t.TempDir()}
	tr.rig, tr.watched = virtual(t, func(c *agent.Config) { c.GPUs, c.CapMode, c.Scripts = tr.d, "watch", tr.scripts })
	return tr
}

func (tr *training) begin(as *nodev1.Assignment) {
	tr.t.Helper()
	as.Uid, as.Gid = uint32(os.Getuid()), uint32(os.Getgid())
	tr.leader.Assign(as)
	time.Sleep(time.Second)
	synctest.Wait()
	if last := tr.leader.Last(id(as.Job)); last.GetState() != running {
		tr.t.Fatalf("job %d is reported as %v", as.Job, last)
	}
}

// on has a job run on for so many seconds, and returns what was reported last of it.
func (tr *training) on(job uint64, seconds int) *nodev1.Report {
	tr.t.Helper()
	paths, err := filepath.Glob(filepath.Join(tr.scripts, "*", "progress"))
	if err != nil || len(paths) != 1 {
		tr.t.Fatalf("files: %v, %v", paths, err)
	}
	for range 2 * seconds {
		rate := tr.d.rate()
		time.Sleep(500 * time.Millisecond)
		tr.steps += rate / 2
		line := fmt.Sprintf("{\"step\": %d}\n", int64(100*tr.steps))
		if err := errors.Join(os.WriteFile(paths[0]+"+", []byte(line), 0o600), os.Chtimes(paths[0]+"+", time.Now(), time.Now()), os.Rename(paths[0]+"+", paths[0])); err != nil {
			tr.t.Fatal(err)
		}
		synctest.Wait()
	}
	return tr.leader.Last(id(job))
}

func (tr *training) end(job uint64) *nodev1.Report {
	tr.t.Helper()
	tr.rt.Exit(id(job), 0, true)
	time.Sleep(time.Minute)
	synctest.Wait()
	tr.d.has(tr.t, "in the end", 70, 70, nil)
	return tr.leader.Last(id(job))
}

// TestACapIsFound: the job is left with the cap at which its steps take the least energy,
// and told what they take; the card goes no lower than that. It holds while the next agent
// is there, and is gone with the job.
func TestACapIsFound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tr := train(t)
		tr.begin(capped(1, "auto", "", 0))
		tr.d.has(t, "before a step", 70, 70, nil)
		got := tr.on(1, 120)
		tr.d.has(t, "once it is found", 60, 70, nil)
		s := got.GetSearch()
		if s.GetCapW() != 60 || s.DefaultW != 70 || s.Why != "" || len(got.Power) != 1 || got.Power[0].CapW != 60 {
			t.Fatalf("told: %v", got)
		}
		near := func(what string, got, want float64) {
			if math.Abs(got-want) > 0.03*want {
				t.Errorf("%s: %.4f, want about %.4f", what, got, want)
			}
		}
		after := 1000 * math.Pow(60.0/70, 0.3)
		near("steps before", s.StepsBefore, 1000)
		near("joules before", s.JoulesBefore, 0.07)
		near("steps after", s.StepsAfter, after)
		near("joules after", s.JoulesAfter, 60/after)

		tr.stop() // with its word kept by the leader
		known := capped(1, "auto", "", 0)
		known.Uid, known.Gid, known.Found = uint32(os.Getuid()), uint32(os.Getgid()), s
		tr.leader.Assign(known)
		tr.start()
		for range 3 { // it never has its limit back
			tr.on(1, 10)
			tr.d.has(t, "with the next agent", 60, 70, nil)
		}
		if got = tr.end(1); got.GetState() != completed || got.GetSearch().GetCapW() != 60 {
			t.Errorf("told in the end: %v", got)
		}
	})
}

// TestAnAgentDiesWhileItSearches: the next one begins anew with the limit before, and what
// ended meanwhile has its cards as they were.
func TestAnAgentDiesWhileItSearches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tr := train(t)
		tr.begin(capped(1, "auto:20%", "900", 0))
		tr.on(1, 50)
		low := tr.d.watts["GPU-0"]
		if low >= 70 {
			t.Fatalf("no cap was tried in 50 s")
		}
		tr.stop()
		tr.on(1, 10)
		tr.d.has(t, "without an agent", low, 70, map[string]int64{"GPU-0": 900})
		tr.start()
		tr.on(1, 20)
		tr.d.has(t, "measured anew", 70, 70, map[string]int64{"GPU-0": 900})
		if got := tr.on(1, 120); got.GetSearch().GetCapW() != 60 || got.Search.DefaultW != 70 {
			t.Errorf("told: %v", got)
		}
		tr.d.has(t, "once it is found", 60, 70, map[string]int64{"GPU-0": 900})
		tr.stop()
		tr.rt.Exit(id(1), 0, false)
		tr.start()
		time.Sleep(time.Minute)
		synctest.Wait()
		tr.d.has(t, "after an end that nobody saw", 70, 70, nil)
	})
}

// TestNoCapIsFound, the cards are left alone and why is told: of a job that says no steps,
// that ends too early, that is on several nodes, and where the driver refuses.
func TestNoCapIsFound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, why string
		silent    bool
		seconds   int
		change    func(as *nodev1.Assignment, d metered)
	}{
		{"no steps", "it says no steps in BERTH_PROGRESS", true, 150, nil},
		{"too short", "it ended before one was found", false, 40, nil},
		{"several nodes", "it runs on several nodes", false, 60, func(as *nodev1.Assignment, _ metered) {
			as.Ranks = &nodev1.Ranks{Nodes: []string{"n1", "n2"}, Tasks: 1, Go: true}
		}},
		{"refused", "no cap: no permission", false, 60, func(_ *nodev1.Assignment, d metered) { d.refuses(errors.New("no permission")) }},
		{"shared", "its GPUs are not its own alone", false, 60, func(as *nodev1.Assignment, _ metered) { as.Gpus[0].Exclusive, as.Gpus[0].MemMib = false, 3000 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				tr := train(t)
				as := capped(1, "auto", "", 0)
				if c.change != nil {
					c.change(as, tr.d)
				}
				tr.begin(as)
				if c.silent {
					time.Sleep(time.Duration(c.seconds) * time.Second)
					synctest.Wait()
					if got := tr.leader.Last(id(1)); got.GetSearch().GetWhy() != c.why {
						t.Errorf("told while it runs: %v", got)
					}
					tr.d.has(t, "while it runs", 70, 70, nil)
				} else {
					tr.on(1, c.seconds)
				}
				tr.d.refuses(nil)
				if got := tr.end(1); !strings.Contains(got.GetSearch().GetWhy(), c.why) || got.Search.CapW != 0 || len(got.Search.Why) > cluster.MaxPowerWhy {
					t.Errorf("told in the end: %v", got)
				}
			})
		})
	}
}

// TestASearchThatTakesTooLongIsGivenUp: a job that stands still under a cap has its cards as
// they were, but for the clock that it asked for.
func TestASearchThatTakesTooLongIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tr := train(t)
		tr.begin(capped(1, "auto", "900", 0))
		tr.on(1, 36)
		tr.d.has(t, "under the first cap", 66, 70, map[string]int64{"GPU-0": 900})
		time.Sleep(31 * time.Minute)
		synctest.Wait()
		tr.d.has(t, "after half an hour without a step", 70, 70, map[string]int64{"GPU-0": 900})
		if got := tr.leader.Last(id(1)); got.GetState() != running || !strings.Contains(got.GetSearch().GetWhy(), "take too long to measure") || got.Power[0].CapW != 0 {
			t.Errorf("told: %v", got)
		}
		tr.end(1)
	})
}

// TestTheNextRunBeginsNearby: with what the attempt before it found, few caps are tried.
func TestTheNextRunBeginsNearby(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tr := train(t)
		as := capped(1, "auto", "", 0)
		as.FoundBefore = &nodev1.CapSearch{DefaultW: 70, CapW: 63}
		tr.begin(as)
		tr.on(1, 36)
		tr.d.has(t, "first of all", 66, 70, nil)
		if got := tr.on(1, 70); got.GetSearch().GetCapW() != 60 {
			t.Errorf("told: %v", got)
		}
		tr.end(1)
	})
}

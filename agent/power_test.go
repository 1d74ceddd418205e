package agent_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-scheduler/berth/agent"
	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// tuned is a deck whose power limits and clocks outlive agents.
type tuned struct {
	*deck
	tmu    sync.Mutex
	watts  map[string]int64
	clocks map[string]int64
	refuse error
}

func newTuned() *tuned {
	return &tuned{deck: newDeck(), watts: map[string]int64{"GPU-0": 70, "GPU-1": 70}, clocks: map[string]int64{}}
}

func (d *tuned) Tuning(_ context.Context, uuid string) (gpu.Tuning, error) {
	d.tmu.Lock()
	defer d.tmu.Unlock()
	return gpu.Tuning{LimitMilliW: 1000 * d.watts[uuid], DefaultMilliW: 70_000, MinMilliW: 60_000, MaxMilliW: 70_000, ClocksMHz: []int64{1590, 900, 300}}, nil
}

func (d *tuned) SetPowerLimit(_ context.Context, uuid string, milliW int64) error {
	d.tmu.Lock()
	defer d.tmu.Unlock()
	if d.refuse == nil {
		d.watts[uuid] = milliW / 1000
	}
	return d.refuse
}

func (d *tuned) LockClock(_ context.Context, uuid string, mhz int64) error {
	d.tmu.Lock()
	defer d.tmu.Unlock()
	if d.refuse == nil {
		if d.clocks[uuid] = mhz; mhz == 0 {
			delete(d.clocks, uuid)
		}
	}
	return d.refuse
}

func (d *tuned) refuses(err error) {
	d.tmu.Lock()
	defer d.tmu.Unlock()
	d.refuse = err
}

func (d *tuned) has(t *testing.T, when string, watts0, watts1 int64, clocks map[string]int64) {
	t.Helper()
	d.tmu.Lock()
	defer d.tmu.Unlock()
	if d.watts["GPU-0"] != watts0 || d.watts["GPU-1"] != watts1 || !maps.Equal(d.clocks, clocks) {
		t.Errorf("%s the cards have %v, %v; want %d and %d W, %v", when, d.watts, d.clocks, watts0, watts1, clocks)
	}
}

func capped(job uint64, watts, freq string, cards ...int) *nodev1.Assignment {
	as := dealt(job, 8000, cards...)
	as.PowerCap, as.GpuFreq = watts, freq
	return as
}

// TestPowerIsSetWhileItRuns and told, on the cards of the attempt that are its own, and is
// back before the end is: however it ends, and whatever dies meanwhile.
func TestPowerIsSetWhileItRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newTuned()
		r, w := virtual(t, func(c *agent.Config) { c.GPUs, c.CapMode = d, "watch" })
		runs := func(as *nodev1.Assignment) *nodev1.Report {
			t.Helper()
			r.leader.Assign(as)
			time.Sleep(time.Second)
			synctest.Wait()
			last := r.leader.Last(id(as.Job))
			if last.GetState() != running {
				t.Fatalf("job %d is reported as %v", as.Job, last)
			}
			return last
		}
		over := func(job uint64) *nodev1.Report {
			t.Helper()
			time.Sleep(time.Minute)
			synctest.Wait()
			last := r.leader.Last(id(job))
			if last.GetState() < completed {
				t.Fatalf("job %d is reported as %v", job, last)
			}
			return last
		}
		two := map[string]int64{"GPU-0": 900, "GPU-1": 900}

		got := runs(capped(1, "65W", "900", 0, 1))
		d.has(t, "while it runs", 65, 65, two)
		if len(got.Power) != 2 || got.Power[1].Uuid != "GPU-1" || got.Power[1].CapW != 65 || got.Power[1].ClockMhz != 900 || got.Power[1].Why != "" {
			t.Errorf("told: %v", got.Power)
		}
		r.rt.Exit(id(1), 0, true)
		if got := over(1); len(got.Power) != 2 {
			t.Errorf("told at its end: %v", got)
		}
		d.has(t, "after its end", 70, 70, nil)

		runs(capped(2, "90%", "", 1)) // killed
		d.has(t, "of another", 70, 63, nil)
		stop := capped(2, "90%", "", 1)
		stop.Stop = true
		r.leader.Assign(stop)
		over(2)
		d.has(t, "after a kill", 70, 70, nil)

		runs(capped(3, "65W", "low", 0)) // the agent dies, and the job goes on
		r.stop()
		d.has(t, "without an agent", 65, 70, map[string]int64{"GPU-0": 300})
		r.start()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		d.has(t, "with the next agent", 65, 70, map[string]int64{"GPU-0": 300})
		if last := r.leader.Last(id(3)); len(last.GetPower()) != 1 || last.Power[0].ClockMhz != 300 {
			t.Errorf("told by the next agent: %v", last)
		}
		r.stop()
		r.rt.Exit(id(3), 0, false) // it ends while there is none
		r.start()
		over(3)
		d.has(t, "after an end that nobody saw", 70, 70, nil)
		w.mu.Lock()
		defer w.mu.Unlock()
		for job := uint64(1); job <= 3; job++ {
			if w.began[id(job)] != 1 {
				t.Errorf("job %d began %d times", job, w.began[id(job)])
			}
		}
	})
}

// TestADriverThatRefusesCostsNothingElse: the job runs, and why its cap is not set is told.
func TestADriverThatRefusesCostsNothingElse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newTuned()
		d.refuses(errors.New("nvmlDeviceSetPowerManagementLimit: no permission (code 4)"))
		r, _ := virtual(t, func(c *agent.Config) { c.GPUs, c.CapMode = d, "watch" })
		r.leader.Assign(capped(1, "65W", "", 0))
		shared := dealt(2, 3000, 1)
		shared.PowerCap = "65W" // of a coordinator that should know better
		r.leader.Assign(shared)
		time.Sleep(time.Second)
		synctest.Wait()
		if last := r.leader.Last(id(1)); last.GetState() != running || len(last.Power) != 1 || last.Power[0].CapW != 0 || !strings.Contains(last.Power[0].Why, "no permission") || len(last.Power[0].Why) > cluster.MaxPowerWhy {
			t.Errorf("reported as %v", last)
		}
		if last := r.leader.Last(id(2)); last.GetState() != running || last.Power != nil {
			t.Errorf("one that shares its card: %v", last)
		}
		d.refuses(nil)
		r.rt.Exit(id(1), 0, true)
		time.Sleep(time.Minute)
		synctest.Wait()
		d.has(t, "in the end", 70, 70, nil)
	})
}

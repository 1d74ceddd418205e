package profile_test

import (
	"context"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/agent/cards"
	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/agent/gpu/sim"
	"github.com/berth-scheduler/berth/agent/gpu/sim/simclient"
	"github.com/berth-scheduler/berth/agent/profile"
	"github.com/berth-scheduler/berth/cluster"
)

// phase is work at a utilization with some memory held.
type phase struct {
	gib, util int64
	work      time.Duration
}

// TestSampledAgainstAccounts runs two attempts on a simulated card, which
// keeps exact accounts, and compares what four looks a second made of them.
// A look stands for the time since the one before, so that each change of the
// utilization may count a quarter of a second too early or too late.
func TestSampledAgainstAccounts(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("/tmp", "prof") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	log := slog.New(slog.DiscardHandler)
	p, err := sim.New(sim.Config{Node: "n1", Specs: []sim.Spec{{Count: 1, Type: "A100-SXM4-80GB"}}, Socket: filepath.Join(dir, "s"), Log: log})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	found, err := p.Inventory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	idle, err := p.Usage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	rec, sampler := profile.New(filepath.Join(dir, "profiles.json"), log), cards.NewSampler(p, log)
	sampler.Observe(rec.Observe)
	defer sampler.Hold()()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = sampler.Run(ctx) }) // ends with ctx
	defer wg.Wait()
	defer cancel()

	b := &simBench{t: t, p: p, rec: rec, uuid: found[0].UUID}
	var jobs sync.WaitGroup
	began := time.Now()
	busyBefore := b.busy()
	jobs.Go(func() { b.run(1, []phase{{2, 500, 2 * time.Second}, {6, 200, 3 * time.Second}, {1, 0, 0}}) })
	jobs.Go(func() { b.run(2, []phase{{4, 300, 2 * time.Second}}) })
	jobs.Wait()
	took, busy := time.Since(began), b.busy()-busyBefore
	// The longer one was there all the time, the card's use is theirs.
	limit := float64(found[0].PowerLimitW - int(idle[0].PowerW))
	want := float64(idle[0].PowerW)*took.Seconds() + limit*busy.Seconds()
	if math.Abs(b.energy-want) > 0.1*want {
		t.Errorf("both used %.0f J, want %.0f within a tenth", b.energy, want)
	}
}

type simBench struct {
	t      *testing.T
	p      *sim.Provider
	rec    *profile.Recorder
	uuid   string
	mu     sync.Mutex
	energy float64
}

func (b *simBench) busy() time.Duration {
	d, _, err := b.p.Busy(b.uuid)
	if err != nil {
		b.t.Error(err)
	}
	return d
}

func (b *simBench) run(job cluster.JobID, phases []phase) {
	t, ctx := b.t, b.t.Context()
	id := cluster.AttemptID{Job: job, No: 1}
	env, err := b.p.Admit(ctx, gpu.Grant{Attempt: id.String(), UID: uint32(os.Getuid()), Cards: []gpu.GrantCard{{UUID: b.uuid, MemMiB: 20 << 10, Milli: 500}}})
	if err != nil {
		t.Error(err)
		return
	}
	b.rec.Begin(profile.Attempt{ID: id, Started: time.Now(), Cards: []string{b.uuid}})
	changes, memSum, memChanges := b.work(ctx, env, phases)
	acc, err := b.p.Account(ctx, id.String())
	res := b.rec.End(id, time.Now())
	if err != nil || res == nil || len(acc) != 1 {
		t.Errorf("job %d: account %v, %v, measured %+v", job, acc, err, res)
		return
	}
	seconds, most := acc[0].Elapsed.Seconds(), int64(0)
	for _, ph := range phases {
		most = max(most, ph.gib<<10)
	}
	mean := memSum/seconds + float64(acc[0].PeakMiB-most) // of its context, too
	exact := 1000 * acc[0].Busy.Seconds() / seconds
	tolerance := 10 + 0.25*float64(changes)/seconds
	t.Logf("job %d: mean %d, exactly %.0f (within %.0f); peak %d MiB, exactly %d; mean memory %d MiB, exactly %.0f; %d J",
		job, res.Milli, exact, tolerance, res.GPUMemPeakMiB, acc[0].PeakMiB, res.Profile.GpuMemMeanMib, mean, res.Profile.EnergyJ)
	if math.Abs(float64(res.Milli)-exact) > tolerance {
		t.Errorf("job %d: mean utilization %d, want %.0f within %.0f", job, res.Milli, exact, tolerance)
	}
	if res.GPUMemPeakMiB != acc[0].PeakMiB {
		t.Errorf("job %d: peak %d MiB, want %d", job, res.GPUMemPeakMiB, acc[0].PeakMiB)
	}
	if math.Abs(float64(res.Profile.GpuMemMeanMib)-mean) > 50+0.25*float64(memChanges)/seconds {
		t.Errorf("job %d: mean memory %d MiB, want %.0f", job, res.Profile.GpuMemMeanMib, mean)
	}
	b.mu.Lock()
	b.energy += float64(res.Profile.EnergyJ)
	b.mu.Unlock()
}

// work goes through the phases. It returns the sum of all changes of the
// utilization, the integral of the memory held in MiB·s, and the sum of its
// changes.
func (b *simBench) work(ctx context.Context, env []string, phases []phase) (changes int64, memSum float64, memChanges int64) {
	cfg, err := simclient.FromEnv(env)
	if err != nil {
		b.t.Error(err)
		return
	}
	c, err := simclient.Connect(ctx, cfg)
	if err != nil {
		b.t.Error(err)
		return
	}
	defer c.Close()
	was := int64(0)
	for _, ph := range phases {
		at := time.Now()
		block, err := c.Alloc(ctx, 0, ph.gib<<30)
		if err != nil {
			b.t.Error(err)
			return
		}
		if ph.util > 0 {
			if err := c.Run(ctx, ph.util, ph.work, nil); err != nil {
				b.t.Error(err)
				return
			}
		}
		if err := c.Free(ctx, block); err != nil {
			b.t.Error(err)
			return
		}
		memSum += float64(ph.gib<<10) * time.Since(at).Seconds()
		changes += max(ph.util-was, was-ph.util)
		memChanges += 2 * ph.gib << 10
		was = ph.util
	}
	return changes + was, memSum, memChanges
}

package cards

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berth-scheduler/berth/agent/gpu"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

const (
	// strayAfter is how long a stray process must be on a GPU to count: an administrator's look
	// at a GPU takes less.
	strayAfter = 5 * time.Second
	// strayShrink is how long strays must hold less memory before it is offered again.
	strayShrink = 10 * time.Second
	// strayStep rounds their memory up: small changes are not news for the leader.
	strayStep = 128
	// straysTold is how many are named; the memory of all counts.
	straysTold = 16
)

// strayWatch tracks the processes on GPUs that were not started here through Berth. It is safe
// for concurrent use; observe has one caller.
type strayWatch struct {
	log     *slog.Logger
	changed func() // called when the leader should be told

	mu    sync.Mutex
	cards map[string]*strayCard
}

// strayCard is the state of one GPU.
type strayCard struct {
	since map[int]time.Time // by pid, when it was first seen
	told  []gpu.Process     // those that count, largest first
	mib   int64             // memory not offered because of them
	lower time.Time         // since when they have held less than that; zero: they do not
}

func newStrayWatch(log *slog.Logger, changed func()) *strayWatch {
	return &strayWatch{log: log, changed: changed, cards: map[string]*strayCard{}}
}

// observe takes a sample of the GPUs. A missing GPU was not read, which says nothing about it.
func (w *strayWatch) observe(now time.Time, usage []gpu.Usage) {
	w.mu.Lock()
	defer w.mu.Unlock()
	news := false
	for i := range usage {
		u := &usage[i]
		c := w.cards[u.UUID]
		procs, _ := u.Strays()
		if c == nil {
			if len(procs) == 0 {
				continue
			}
			c = &strayCard{since: map[int]time.Time{}}
			w.cards[u.UUID] = c
		}
		if c.take(now, procs, func(msg string, p gpu.Process) {
			w.log.Warn(msg, "gpu", u.UUID, "pid", p.PID, "user", p.User, "command", p.Command, "mem_mib", p.MemMiB)
		}) {
			news = true
		}
	}
	if news {
		w.changed()
	}
}

func roundStrays(mib int64) int64 { return (mib + strayStep - 1) / strayStep * strayStep }

// take updates c with the strays of a GPU, and reports whether what is reported about it
// changed.
func (c *strayCard) take(now time.Time, procs []gpu.Process, say func(string, gpu.Process)) bool {
	here := make(map[int]struct{}, len(procs))
	var count []gpu.Process
	var mib int64
	for _, p := range procs {
		here[p.PID] = struct{}{}
		if _, known := c.since[p.PID]; !known {
			c.since[p.PID] = now
		}
		if now.Sub(c.since[p.PID]) >= strayAfter {
			count = append(count, p)
			mib += max(0, p.MemMiB)
		}
	}
	for pid := range c.since {
		if _, ok := here[pid]; !ok {
			delete(c.since, pid)
		}
	}
	mib = roundStrays(mib)
	slices.SortFunc(count, func(a, b gpu.Process) int {
		return cmp.Or(cmp.Compare(b.MemMiB, a.MemMiB), cmp.Compare(a.PID, b.PID))
	})
	byPID := func(in []gpu.Process, pid int) bool {
		return slices.ContainsFunc(in, func(p gpu.Process) bool { return p.PID == pid })
	}
	news := false
	for _, p := range count {
		if !byPID(c.told, p.PID) {
			news = true
			say("a process that was not started through Berth uses a GPU; its memory is not sold", p)
		}
	}
	for _, p := range c.told {
		if !byPID(count, p.PID) {
			news = true
			say("a process that was not started through Berth no longer uses a GPU", p)
		}
	}
	c.told = count
	switch {
	case mib >= c.mib:
		news = news || mib > c.mib
		c.mib, c.lower = mib, time.Time{}
	case c.lower.IsZero():
		c.lower = now
	case now.Sub(c.lower) >= strayShrink:
		c.mib, c.lower, news = mib, time.Time{}, true
	}
	return news
}

// of returns what is reported about a GPU.
func (w *strayWatch) of(uuid string) (procs []gpu.Process, mib int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.cards[uuid]
	if c == nil {
		return nil, 0
	}
	return slices.Clone(c.told), c.mib
}

// migText says whether a GPU is in MIG mode, or an instance of one that is.
func migText(c *gpu.Card) string {
	if strings.HasPrefix(c.UUID, "MIG-") {
		return "instance"
	}
	return c.MIG.String()
}

// detailCard adds to g details of c for display, and what strays hold.
func (w *strayWatch) detailCard(g *nodev1.GPU, c *gpu.Card) {
	d := &apiv1.GPUDetail{
		Name: c.Name, Driver: c.Driver, Cuda: c.CUDA, PowerLimitW: uint32(max(0, c.PowerLimitW)), NvlinkGroup: uint32(max(0, c.NVLinkGroup)),
		Mig: migText(c), Persistence: c.Persistence.String(),
	}
	if c.ComputeMajor > 0 {
		d.Compute = fmt.Sprintf("%d.%d", c.ComputeMajor, c.ComputeMinor)
	}
	for _, in := range c.Instances {
		d.Instances = append(d.Instances, &apiv1.GPUInstance{Uuid: in.UUID, Profile: in.Profile, MemMib: in.MemMiB, Sms: uint32(max(0, in.SMs))})
	}
	procs, mib := w.of(c.UUID)
	for i, p := range procs {
		if i == straysTold {
			break
		}
		d.Strays = append(d.Strays, &apiv1.StrayProcess{Pid: int64(p.PID), User: p.User, Command: p.Command, MemMib: p.MemMiB})
	}
	g.StrayMib, g.Detail = mib, d
}

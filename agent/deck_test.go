package agent_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/berth-scheduler/berth/agent"
	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/agent/hooks"
	"github.com/berth-scheduler/berth/agent/journal"
	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/agent/runtime"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// deck is cards of 8000 MiB whose figures the test sets.
type deck struct {
	events chan gpu.Event

	mu      sync.Mutex
	on      map[string][]gpu.Process
	leak    map[string]int64
	mute    map[string]bool // a card that says nothing
	retired []string
	looks   int
}

func newDeck() *deck {
	return &deck{events: make(chan gpu.Event, 10), on: map[string][]gpu.Process{}, leak: map[string]int64{}, mute: map[string]bool{}}
}

func (d *deck) Close() error             { return nil }
func (d *deck) Events() <-chan gpu.Event { return d.events }

func (d *deck) Inventory(context.Context) (out []gpu.Card, err error) {
	for i := range 2 {
		out = append(out, gpu.Card{UUID: fmt.Sprintf("GPU-%d", i), Type: "T4", Name: "T4", Index: i, MemMiB: 8000, NUMA: gpu.Unknown, PCI: fmt.Sprintf("00000000:%02x:00.0", i+1)})
	}
	return out, nil
}

func (d *deck) Usage(context.Context) (out []gpu.Usage, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.looks++
	for i := range 2 {
		u := gpu.Usage{UUID: fmt.Sprintf("GPU-%d", i), Processes: slices.Clone(d.on[fmt.Sprintf("GPU-%d", i)])}
		if d.mute[u.UUID] {
			continue
		}
		u.UsedMiB = d.leak[u.UUID]
		for _, p := range u.Processes {
			u.UsedMiB += p.MemMiB
		}
		out = append(out, u)
	}
	return out, nil
}

func (d *deck) Admit(context.Context, gpu.Grant) ([]string, error) { return nil, nil }

func (d *deck) Retire(_ context.Context, attempt string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.retired = append(d.retired, attempt)
	return nil
}

func (d *deck) set(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
}

// looked is how often it is looked at the cards in a minute.
func (d *deck) looked() int {
	n := 0
	d.set(func() { n = -d.looks })
	time.Sleep(time.Minute)
	d.set(func() { n += d.looks })
	return n
}

func dealt(job uint64, mib int64, cards ...int) *nodev1.Assignment {
	as := assignment(job)
	for _, c := range cards {
		as.Gpus = append(as.Gpus, &nodev1.Share{Uuid: fmt.Sprintf("GPU-%d", c), MemMib: mib, Milli: 200, Exclusive: mib == 8000})
	}
	return as
}

// TestCardsAreGivenBack: the end of an attempt is reported once nothing of it has been on
// its cards for a while, whatever stood there before it; then they are looked at as
// rarely as before, and the provider has nothing of it.
func TestCardsAreGivenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDeck()
		r, _ := virtual(t, func(c *agent.Config) {
			c.GPUs, c.CapMode = d, "watch"
			c.Health = agent.HealthConfig{Quiet: 2 * time.Second, Blame: 5 * time.Second, Within: time.Minute, SlackMiB: 100}
		})
		rarely := d.looked()
		d.set(func() { d.leak["GPU-0"] = 500 }) // of whatever was there before
		ends := func(job uint64, code int, mine int64) (took time.Duration, last *nodev1.Report) {
			t.Helper()
			as := dealt(job, 3000, 0)
			r.leader.Assign(as)
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			if last := r.leader.Last(id(job)); last.GetState() != running {
				t.Fatalf("job %d is reported as %v", job, last)
			}
			if often := d.looked(); often <= 2*rarely {
				t.Errorf("while job %d runs it is looked %d times a minute, before %d times", job, often, rarely)
			}
			d.set(func() { d.leak["GPU-0"] += mine })
			began := time.Now()
			r.rt.Exit(id(job), code, true)
			for r.leader.Last(id(job)).GetState() < completed {
				if time.Sleep(100 * time.Millisecond); time.Since(began) > 30*time.Second {
					d.set(func() { d.leak["GPU-0"] -= mine })
					mine = 0
				}
				synctest.Wait()
			}
			return time.Since(began), r.leader.Last(id(job))
		}
		for job, c := range []struct {
			code     int
			mine     int64
			from, to time.Duration
		}{
			{0, 0, 2 * time.Second, 3 * time.Second},     // at once
			{3, 0, 5 * time.Second, 6 * time.Second},     // it failed: the driver may have a word
			{0, 90, 2 * time.Second, 3 * time.Second},    // within the slack
			{0, 400, 32 * time.Second, 34 * time.Second}, // its memory comes back late
		} {
			took, last := ends(uint64(job+1), c.code, c.mine)
			if took < c.from || took > c.to || last.Exit.GetCode() != int32(c.code) {
				t.Errorf("case %d: reported after %s as %v, want from %s to %s", job, took, last, c.from, c.to)
			}
			if c.mine < 100 {
				d.set(func() { d.leak["GPU-0"] = 500 })
			}
		}
		time.Sleep(time.Minute)
		if n := d.looked(); n > rarely {
			t.Errorf("with nobody on the cards it is looked %d times a minute, before %d times", n, rarely)
		}
		synctest.Wait()
		if want := []string{"j1-a1", "j2-a1", "j3-a1", "j4-a1"}; !slices.Equal(slices.Compact(slices.Sorted(slices.Values(d.retired))), want) {
			t.Errorf("retired: %q", d.retired)
		}
	})
}

// TestFaultsAreBlamedForSure: an end that the hardware is to blame for is journaled as
// that before it is told, and is the same after a restart.
func TestFaultsAreBlamedForSure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDeck()
		r, _ := virtual(t, func(c *agent.Config) { c.GPUs, c.CapMode = d, "watch" })
		r.leader.Assign(dealt(1, 3000, 0))
		r.leader.Assign(dealt(2, 3000, 1)) // on another card
		time.Sleep(time.Second)
		r.leader.MuteAcks(true)
		d.events <- gpu.Event{At: time.Now(), UUID: "GPU-0", Kind: gpu.EventXid, Xid: 79, Detail: "fell off the bus"}
		time.Sleep(time.Second)
		r.rt.Exit(id(1), 1, true)
		r.rt.Exit(id(2), 1, true)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		got := r.leader.Last(id(1))
		if got.GetState() != lost || got.Reason != "GPUFault" || !strings.Contains(got.Detail, "GPU-0") {
			t.Fatalf("reported as %v", got)
		}
		if other := r.leader.Last(id(2)); other.GetState() != failed || strings.Contains(other.Detail, "Xid") {
			t.Errorf("on another card: %v", other)
		}
		n := len(r.leader.Reports(id(1)))
		r.stop()
		j, err := journal.Open(r.dir)
		if err != nil {
			t.Fatal(err)
		}
		if end := j.Records()[id(1)].End; !proto.Equal(end, got) {
			t.Errorf("told is %v, and the journal has %v", got, end)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		r.start()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		rs := r.leader.Reports(id(1))
		if len(rs) == n || !proto.Equal(rs[len(rs)-1], got) {
			t.Errorf("after a restart %v, before %v", rs[len(rs)-1], got)
		}
	})
}

// TestStrangersOnACard keep whoever wants it alone from beginning, and no share; a card
// that says nothing keeps its place among the figures of before.
func TestStrangersOnACard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDeck()
		r, _ := virtual(t, func(c *agent.Config) {
			c.GPUs, c.CapMode = d, "watch"
			c.Health = agent.HealthConfig{Quiet: time.Second, SlackMiB: 64}
		})
		d.set(func() {
			d.on["GPU-0"] = []gpu.Process{{PID: 77, Stray: true, User: "eve", Command: "miner", MemMiB: 300}}
			d.mute["GPU-0"] = true // for now
			d.leak["GPU-1"] = 900
		})
		r.leader.Assign(dealt(1, 8000, 0, 1))
		time.Sleep(time.Second)
		if last := r.leader.Last(id(1)); last.GetState() != running {
			t.Fatalf("two cards, one of which says nothing: %v", last)
		}
		d.set(func() { d.mute["GPU-0"] = false })
		began := time.Now()
		r.rt.Exit(id(1), 0, true)
		for r.leader.Last(id(1)).GetState() < completed && time.Since(began) < time.Hour {
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("what stood on the second card before counts as its own: %s", took)
		}
		r.leader.Assign(dealt(2, 8000, 0))
		r.leader.Assign(dealt(3, 3000, 0))
		time.Sleep(10 * time.Second)
		if last := r.leader.Last(id(2)); last.GetState() != lost || last.Reason != "GPUCheckFailed" || !strings.Contains(last.Detail, "process 77 (miner) of eve") || !strings.Contains(last.Detail, "300 MiB") {
			t.Errorf("alone beside a stranger: %v", last)
		}
		if last := r.leader.Last(id(3)); last.GetState() != running {
			t.Errorf("a share beside a stranger: %v", last)
		}
	})
}

// script is hooks whose ends the test sets, and the order in which all happens.
type script struct {
	mu    sync.Mutex
	order []string
	fail  map[hooks.Kind][]error
}

func (s *script) Has(hooks.Kind) bool { return true }

func (s *script) Run(_ context.Context, kind hooks.Kind, j *hooks.Job) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	what := string(kind) + " " + j.Attempt
	if j.End != nil {
		what += " " + j.End.State
	}
	s.order = append(s.order, what)
	if errs := s.fail[kind]; len(errs) > 0 {
		s.fail[kind] = errs[1:]
		return errs[0]
	}
	return nil
}

// ordered is a runtime that tells a script what it does.
type ordered struct {
	runtime.Runtime
	s *script
}

func (o ordered) Create(ctx context.Context, l *launch.Launch) error {
	o.s.mu.Lock()
	o.s.order = append(o.s.order, "create "+l.ID.String())
	o.s.mu.Unlock()
	return o.Runtime.Create(ctx, l)
}

// TestHooksRunOnce: whatever is tried again around them, and the epilog only where the
// prolog began and when no process is left; what they say of the node survives.
func TestHooksRunOnce(t *testing.T) {
	t.Parallel()
	busy, bad := errors.New("busy"), errors.New("no scratch")
	for name, c := range map[string]struct {
		fail    map[string][]error // of the runtime
		hooks   map[hooks.Kind][]error
		stop    bool // from the first moment
		restart bool // when its end was told, and not heard
		want    []string
		state   nodev1.AttemptState
		drain   string
	}{
		"all is well": {want: []string{"prolog j1-a1", "create j1-a1", "epilog j1-a1 COMPLETED"}, state: completed},
		"the runtime is busy": {fail: map[string][]error{"create": {busy, busy}, "start": {busy}},
			want: []string{"prolog j1-a1", "create j1-a1", "create j1-a1", "create j1-a1", "epilog j1-a1 COMPLETED"}, state: completed},
		"its end is cleared up twice": {fail: map[string][]error{"delete": {nil, busy, busy}},
			want: []string{"prolog j1-a1", "create j1-a1", "epilog j1-a1 COMPLETED"}, state: completed},
		"it is not wanted before it began": {stop: true, want: nil, state: cancelled},
		"the epilog fails, and a restart": {hooks: map[hooks.Kind][]error{hooks.Epilog: {bad}}, restart: true,
			want: []string{"prolog j1-a1", "create j1-a1", "epilog j1-a1 COMPLETED"}, state: completed, drain: "epilog failed after job 1: no scratch"},
		"both fail": {hooks: map[hooks.Kind][]error{hooks.Prolog: {bad}, hooks.Epilog: {busy}},
			want: []string{"prolog j1-a1", "epilog j1-a1 LOST"}, state: lost, drain: "prolog failed before job 1: no scratch"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &script{fail: c.hooks}
				if s.fail == nil {
					s.fail = map[hooks.Kind][]error{}
				}
				r, _ := virtual(t, func(cfg *agent.Config) { cfg.Hooks, cfg.Host = s, ordered{cfg.Host, s} })
				for op, errs := range c.fail {
					r.rt.Fail(op, errs...)
				}
				r.leader.MuteAcks(c.restart)
				as := assignment(1)
				as.Stop = c.stop
				r.leader.Assign(as)
				time.Sleep(time.Minute)
				r.rt.Exit(id(1), 0, true)
				time.Sleep(time.Minute)
				if c.restart {
					r.stop()
					r.start()
					time.Sleep(time.Minute)
				}
				synctest.Wait()
				last := r.leader.Last(id(1))
				if !slices.Equal(s.order, c.want) || last.GetState() != c.state || last.GetDrain() != c.drain {
					t.Errorf("%q, reported %v; want %q, %s %q", s.order, last, c.want, c.state, c.drain)
				}
				deletes := slices.Index(r.rt.Calls(), "delete j1-a1")
				if c.state == completed && deletes < 0 {
					t.Errorf("calls %q", r.rt.Calls())
				}
			})
		})
	}
}

// TestTheEpilogFindsNoProcess: what the runtime has of an attempt is gone by then.
func TestTheEpilogFindsNoProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &script{fail: map[hooks.Kind][]error{}}
		var r *rig
		left := runtime.Running
		r, _ = virtual(t, func(cfg *agent.Config) {
			cfg.Hooks = hookFunc(func(kind hooks.Kind, _ *hooks.Job) error {
				if kind == hooks.Epilog {
					left = r.rt.Phase(id(1))
				}
				return s.Run(t.Context(), kind, &hooks.Job{})
			})
		})
		r.leader.Assign(assignment(1))
		time.Sleep(time.Second)
		r.rt.Exit(id(1), 0, true)
		time.Sleep(time.Minute)
		synctest.Wait()
		if left != runtime.Absent {
			t.Errorf("when the epilog ran, it was %s", left)
		}
	})
}

type hookFunc func(hooks.Kind, *hooks.Job) error

func (f hookFunc) Has(hooks.Kind) bool                                        { return true }
func (f hookFunc) Run(_ context.Context, kind hooks.Kind, j *hooks.Job) error { return f(kind, j) }

// TestGangsAtTheBarrier: ready is said once, a part that is to make room before it began
// ends, and one of which the runtime knows that nothing ran fails as that.
func TestGangsAtTheBarrier(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, w := virtual(t, nil)
		gang := func(job uint64) *nodev1.Assignment {
			as := assignment(job)
			as.Ranks = &nodev1.Ranks{Nodes: []string{"n1", "n2"}, Tasks: 1}
			return as
		}
		r.leader.Assign(gang(1))
		room := gang(2)
		room.Preempt = &nodev1.Preempt{Signal: "USR1", Grace: durationpb.New(time.Minute)}
		r.leader.Assign(room)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		ready := 0
		for _, rep := range r.leader.Reports(id(1)) {
			if rep.Ready {
				ready++
			}
		}
		if ready != 1 || w.began[id(1)] != 0 {
			t.Errorf("ready is said %d times, and it began %d times", ready, w.began[id(1)])
		}
		if rs := r.leader.Reports(id(2)); len(rs) != 1 || rs[0].State != cancelled || w.began[id(2)] != 0 {
			t.Errorf("one that is to make room: %v", rs)
		}
		r.rt.Fail("start", &launch.Error{Code: 126, Reason: "COMMAND", Err: errors.New("not executable")})
		r.leader.Assign(assignment(3))
		time.Sleep(time.Minute)
		synctest.Wait()
		if last := r.leader.Last(id(3)); last.GetState() != failed || last.Exit.GetCode() != 126 || w.began[id(3)] != 0 {
			t.Errorf("of a start that is sure to have failed: %v", last)
		}
		// The answer of a start is lost: since when it runs is not.
		r.rt.Fail("answer of start", errors.New("connection reset"))
		r.rt.Fail("inspect", errors.New("busy"), errors.New("busy"), errors.New("busy"))
		began := time.Now()
		r.leader.Assign(assignment(4))
		time.Sleep(time.Minute)
		synctest.Wait()
		if last := r.leader.Last(id(4)); last.GetState() != running || !last.Started.AsTime().Equal(began) || w.began[id(4)] != 1 {
			t.Errorf("of a start whose answer was lost: %v, it began at %s", last, began)
		}
	})
}

// TestNothingIsLeftOfAnAttempt: of its files, once its end is committed.
func TestNothingIsLeftOfAnAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		r, _ := virtual(t, func(c *agent.Config) { c.Scripts = dir })
		as := assignment(1)
		as.Uid, as.Gid, as.Credential = uint32(os.Getuid()), uint32(os.Getgid()), "secret"
		r.leader.Assign(as)
		time.Sleep(time.Second)
		there, err := os.ReadDir(dir)
		if err != nil || len(there) != 1 {
			t.Fatalf("%v, %v", there, err)
		}
		r.rt.Exit(id(1), 0, true)
		time.Sleep(time.Minute)
		if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
			t.Errorf("left are %v, %v", left, err)
		}
	})
}

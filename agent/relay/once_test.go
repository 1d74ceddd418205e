package relay_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/berth-scheduler/berth/agent/journal"
	"github.com/berth-scheduler/berth/agent/processrt"
	"github.com/berth-scheduler/berth/agent/runtime"
	"github.com/berth-scheduler/berth/cluster"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

// counter counts the signals that it gets, and says when it is told to.
const counter = "trap 'echo one >>signals' USR1; trap 'echo told >>signals' USR2; echo hi; while :; do sleep 0.02; done"

// counting runs counter until it counts: a signal before that would end it.
func (r *rig) counting() *nodev1.Assignment {
	r.Helper()
	as := r.job(counter)
	r.until("the job to count", func() bool {
		said, _ := os.ReadFile(r.path(as, "out")) // it may not be there yet
		return len(said) > 0
	})
	return as
}

func idOf(n string) string { return strings.Repeat("x", 16) + n }

func toFirst(id string, sig syscall.Signal) *apiv1.AttachOpen {
	return &apiv1.AttachOpen{Job: 1, What: &apiv1.AttachOpen_Signal{Signal: &apiv1.AttachSignal{RequestId: id, Number: uint32(sig), First: true}}}
}

// lines are those of a file that a job writes, once there are n.
func (r *rig) lines(name string, n int) (out []string) {
	r.Helper()
	r.until(name, func() bool {
		data, _ := os.ReadFile(filepath.Join(r.out, name)) // it may not be there yet
		out = strings.Fields(string(data))
		return len(out) >= n
	})
	return out
}

// unheard asks for something and goes away once it was done, with the answer.
func (r *rig) unheard(as *nodev1.Assignment, open *apiv1.AttachOpen, file string) {
	r.Helper()
	g := r.visit(as, open, nil)
	r.lines(file, 1)
	g.Leave()
}

// restart runs another agent in place of the one that runs.
func (r *rig) restart(between func()) {
	r.Helper()
	r.stop()
	between()
	hellos := r.leader.Hellos()
	r.start()
	r.until("the next agent", func() bool { return r.leader.Hellos() > hellos })
}

// watched is a runtime that calls before when it is about to act.
type watched struct {
	*processrt.Runtime
	before func()
}

// Signal implements runtime.Runtime.
func (w watched) Signal(ctx context.Context, id cluster.AttemptID, sig syscall.Signal) error {
	w.before()
	return w.Runtime.Signal(ctx, id, sig)
}

// Exec implements runtime.Executor.
func (w watched) Exec(ctx context.Context, id cluster.AttemptID, x *runtime.Exec) (*runtime.Process, error) {
	w.before()
	return w.Runtime.Exec(ctx, id, x)
}

// count is how often the job was signalled by now, which another signal tells.
func (r *rig) count(as *nodev1.Assignment, id string) int {
	r.Helper()
	of := func(word string) (n int) {
		for _, l := range r.lines("signals", 1) {
			n += strings.Count(l, word)
		}
		return n
	}
	told := of("told")
	if h := all(r.visit(as, toFirst(id, syscall.SIGUSR2), nil)); h.ended == nil {
		r.Fatalf("the signal that asks is refused: %v", h.refused)
	}
	r.until("the count", func() bool { return of("told") > told })
	return of("one")
}

// TestSignalIsSentOnce has the answer to a signal get lost, once with the stream and
// once with the agent, and asks again.
func TestSignalIsSentOnce(t *testing.T) {
	r := newRig(t)
	as := r.counting()
	r.unheard(as, toFirst(idOf("a"), syscall.SIGUSR1), "signals")
	for range 3 {
		if h := all(r.visit(as, toFirst(idOf("a"), syscall.SIGUSR1), nil)); h.ended == nil {
			t.Fatalf("asked again: %v %v", h.refused, h.broken)
		}
	}
	r.restart(func() {})
	if h := all(r.visit(as, toFirst(idOf("a"), syscall.SIGUSR1), nil)); h.ended == nil {
		t.Fatalf("asked the next agent: %v %v", h.refused, h.broken)
	}
	if n := r.count(as, idOf("b")); n != 1 {
		t.Errorf("it got the signal %d times", n)
	}
	if h := all(r.visit(as, toFirst(idOf("c"), syscall.SIGUSR1), nil)); h.ended == nil || r.count(as, idOf("d")) != 2 {
		t.Errorf("another signal did not arrive: %v", h.refused)
	}
}

// TestUnknownOutcome has the agent die after it wrote down what it was about to do,
// which it does first: whether it did is not known, and it is not done again.
func TestUnknownOutcome(t *testing.T) {
	r := newRig(t)
	as := r.counting()
	journaled := journal.Path(r.cfg.Dir)
	var image []byte // the journal's, when the agent acts
	r.restart(func() {
		r.cfg.Host = watched{r.cfg.Host.(*processrt.Runtime), func() {
			var err error
			if image, err = os.ReadFile(journaled); err != nil {
				t.Error(err)
			}
		}}
	})
	for name, ask := range map[string]*apiv1.AttachOpen{
		"signals": toFirst(idOf("a"), syscall.SIGUSR1),
		"command": command(&apiv1.AttachExec{RequestId: idOf("x"), Keep: durationpb.New(time.Hour)}, "sh", "-c", "echo ran >>command; sleep 1000"),
	} {
		r.unheard(as, ask, name)
		r.restart(func() {
			if err := os.WriteFile(journaled, image, 0o600); err != nil {
				t.Fatal(err)
			}
		})
		if h := all(r.visit(as, ask, nil)); h.ended != nil || h.opened != nil || !strings.Contains(h.refused.GetMessage(), "is not known") {
			t.Errorf("%s: answered %v, %v, %v", name, h.opened, h.ended, h.refused)
		}
	}
	if n := r.count(as, idOf("b")); n != 1 {
		t.Errorf("it got the signal %d times", n)
	}
	if got := r.lines("command", 1); len(got) != 1 {
		t.Errorf("the command ran %d times", len(got))
	}
}

// TestRequestIDsAreOfOneRequest uses ids again, as another user and for another
// request.
func TestRequestIDsAreOfOneRequest(t *testing.T) {
	r := newRig(t)
	as := r.counting()
	if h := all(r.visit(as, toFirst(idOf("a"), syscall.SIGUSR1), nil)); h.ended == nil {
		t.Fatal(h.refused)
	}
	admin := func(v *nodev1.Visit) { v.Uid, v.Admin = 12345, true }
	if h := all(r.visit(as, toFirst(idOf("a"), syscall.SIGUSR1), admin)); h.ended != nil || h.refused.GetReason() != "ALREADY_EXISTS" {
		t.Errorf("another user: %v %v", h.ended, h.refused)
	}
	for name, ask := range map[string]*apiv1.AttachOpen{
		"signal":  toFirst(idOf("a"), syscall.SIGHUP),
		"command": command(&apiv1.AttachExec{RequestId: idOf("a")}, "true"),
	} {
		if h := all(r.visit(as, ask, nil)); h.ended != nil || h.refused.GetReason() != "ALREADY_EXISTS" {
			t.Errorf("another %s: %v %v", name, h.ended, h.refused)
		}
	}
	if n := r.count(as, idOf("b")); n != 1 {
		t.Errorf("it got the signal %d times", n)
	}
}

// TestCommandIsRunOnce loses the answer to a command, which is kept, or ends with
// its user, or with the agent.
func TestCommandIsRunOnce(t *testing.T) {
	r := newRig(t)
	as := r.job("echo hi; sleep 1000")
	ask := func(id string, keep time.Duration, script string) *apiv1.AttachOpen {
		return command(&apiv1.AttachExec{RequestId: idOf(id), Keep: durationpb.New(keep)}, "sh", "-c", script)
	}
	again := func(o *apiv1.AttachOpen) *apiv1.AttachOpen {
		o = proto.CloneOf(o)
		o.GetExec().Session = apiconv.AgainSession
		return o
	}
	kept := ask("kept", time.Hour, "echo ran >>kept; echo ready; read x; echo got $x; exit 5")
	r.unheard(as, kept, "kept")
	g := r.visit(as, again(kept), nil)
	defer g.Leave()
	say(t, g, stdin([]byte("this\n")))
	if h := hear(g, &heard{}, nil); h.out != "ready\ngot this\n" || h.ended.GetCode() != 5 || h.opened.GetSession() == "" {
		t.Errorf("taken up: %q, %v, %v", h.out, h.ended, h.refused)
	}

	short := ask("short", 0, "echo ran >>short; exit 6")
	if h := all(r.visit(as, short, nil)); h.ended.GetCode() != 6 {
		t.Fatalf("ended as %v, %v", h.ended, h.refused)
	}
	if h := all(r.visit(as, again(short), nil)); h.ended.GetCode() != 6 || len(h.notices) == 0 {
		t.Errorf("asked again: %v, %v", h.ended, h.refused)
	}

	lost := ask("lost", time.Hour, "echo ran >>lost; sleep 1000")
	r.unheard(as, lost, "lost")
	r.restart(func() {})
	if h := all(r.visit(as, again(lost), nil)); h.opened.GetSession() != "" || h.refused == nil && h.ended.GetSignal() == 0 {
		t.Errorf("with the next agent: %v %v %v", h.opened, h.ended, h.refused)
	}

	if h := all(r.visit(as, again(ask("new", 0, "echo ran >>new")), nil)); h.ended == nil || h.ended.GetCode() != 0 {
		t.Errorf("what was never begun is not run: %v, %v", h.ended, h.refused)
	}
	for _, name := range []string{"kept", "short", "lost", "new"} {
		if got := r.lines(name, 1); len(got) != 1 {
			t.Errorf("%s ran %d times", name, len(got))
		}
	}
}

// TestNothingIsDoneWithoutTheJournal fills the journal's disk: a signal is refused
// until there is room again.
func TestNothingIsDoneWithoutTheJournal(t *testing.T) {
	r := newRig(t)
	as := r.counting()
	filler := filepath.Join(r.cfg.Dir, "filler")
	r.restart(func() {
		data, err := os.ReadFile(journal.Path(r.cfg.Dir))
		if err == nil {
			err = syscall.Mount("none", r.cfg.Dir, "tmpfs", 0, "size=1m,mode=700")
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := syscall.Unmount(r.cfg.Dir, syscall.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
		if err := os.WriteFile(journal.Path(r.cfg.Dir), data, 0o600); err != nil {
			t.Fatal(err)
		}
	})
	// It is here again, so that the agent has nothing more to write by itself.
	if h := all(r.visit(as, toFirst(idOf("a"), syscall.SIGUSR1), nil)); h.ended == nil {
		t.Fatalf("with room: %v", h.refused)
	}
	if err := os.WriteFile(filler, make([]byte, 2<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	full := func(i int) *heard {
		return all(r.visit(as, toFirst(idOf("full-"+strconv.Itoa(i)), syscall.SIGUSR1), nil))
	}
	sent, h := 1, full(0)
	for i := 1; h.ended != nil && i < 1000; i++ { // the last page of the journal has some room
		sent++
		h = full(i)
	}
	if !strings.Contains(h.refused.GetMessage(), "cannot write its journal") {
		t.Fatalf("on a full disk: %v, %v", h.ended, h.refused)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if h := all(r.visit(as, toFirst(idOf("b"), syscall.SIGUSR2), nil)); h.ended == nil {
		t.Fatalf("with room again: %v", h.refused)
	}
	if n := len(r.lines("signals", 1)); n > sent+1 {
		t.Errorf("%d signals arrived of %d", n, sent+1)
	}
}

// mute starts commands and does not say so.
type mute struct{ *processrt.Runtime }

// Exec implements runtime.Executor.
func (m mute) Exec(ctx context.Context, id cluster.AttemptID, x *runtime.Exec) (*runtime.Process, error) {
	p, err := m.Runtime.Exec(ctx, id, x)
	if err != nil {
		return nil, err
	}
	_, err = p.Wait(ctx)
	return nil, errors.Join(err, p.Close(), errors.New("the answer was lost"))
}

// TestCommandOfUnknownStart has a runtime fail after it did what it was asked.
func TestCommandOfUnknownStart(t *testing.T) {
	r := newRig(t)
	as := r.counting()
	r.restart(func() { r.cfg.Host = mute{r.cfg.Host.(*processrt.Runtime)} })
	ask := command(&apiv1.AttachExec{RequestId: idOf("a")}, "sh", "-c", "echo ran >>started")
	if h := all(r.visit(as, ask, nil)); h.refused == nil {
		t.Fatalf("it failed, and is answered %v", h.ended)
	}
	if h := all(r.visit(as, ask, nil)); !strings.Contains(h.refused.GetMessage(), "is not known") {
		t.Errorf("asked again: %v, %v", h.ended, h.refused)
	}
	if got := r.lines("started", 1); len(got) != 1 {
		t.Errorf("it ran %d times", len(got))
	}
}

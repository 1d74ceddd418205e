package relay_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/agent"
	"github.com/berth-scheduler/berth/agent/agenttest"
	"github.com/berth-scheduler/berth/agent/launcher"
	"github.com/berth-scheduler/berth/agent/processrt"
	"github.com/berth-scheduler/berth/agent/relay"
	"github.com/berth-scheduler/berth/agent/runtimetest"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// TestMain makes the test binary the keeper of its jobs.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "process-keeper" {
		fs := flag.NewFlagSet("process-keeper", flag.ExitOnError)
		dir, parent := fs.String("dir", "", ""), fs.String("cgroup", "", "")
		_ = fs.Parse(os.Args[2:]) // exits on an error
		if err := processrt.KeeperMain(context.Background(), *dir, *parent, ""); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

const (
	nobody   = 65534
	patience = 10 * time.Minute
)

type users struct{}

func (users) Resolve(uid, gid uint32, name string) (launcher.User, error) {
	if uid == 0 {
		return launcher.User{}, errors.New("jobs of root are refused on this node")
	}
	return launcher.User{Name: name, Home: "/", Shell: "/bin/sh", Groups: []uint32{gid}}, nil
}

// rig is an agent with real processes and a fake leader.
type rig struct {
	*testing.T
	leader *agenttest.Leader
	out    string
	audit  *syncBuffer
	ids    atomic.Uint64
	cfg    agent.Config
	stop   func()
}

type syncBuffer struct{ atomic.Pointer[[]byte] }

// Write implements io.Writer, for one logger, which does not write twice at once.
func (b *syncBuffer) Write(p []byte) (int, error) {
	var all []byte
	if old := b.Load(); old != nil {
		all = bytes.Clone(*old)
	}
	all = append(all, p...)
	b.Store(&all)
	return len(p), nil
}

func newRig(t *testing.T) *rig {
	t.Helper()
	runtimetest.Require(t, runtimetest.Root())
	dir, err := os.MkdirTemp("/tmp", "rl")
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{T: t, leader: agenttest.NewLeader(t), out: filepath.Join(dir, "out"), audit: &syncBuffer{}}
	if err := errors.Join(os.Chmod(dir, 0o755), os.Mkdir(r.out, 0o755), os.Mkdir(filepath.Join(dir, "a"), 0o700), os.Chown(r.out, nobody, nobody)); err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(dir, "s")
	rt, err := processrt.Open(t.Context(), processrt.Config{
		Dir: state, Exe: []string{os.Args[0], "process-keeper"}, CgroupParent: "/berth-test/" + filepath.Base(dir), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	r.cfg = agent.Config{
		Node: "n1", BootID: "boot", Dir: filepath.Join(dir, "a"), Coordinators: []string{"leader"}, Dial: r.leader.Dial, Host: rt,
		Users: users{}, CPUMilli: 8000, MemMiB: 1024, Grace: time.Second, Log: slog.New(slog.DiscardHandler),
	}
	r.start()
	t.Cleanup(func() {
		r.stop()
		if err := errors.Join(rt.Close(), processrt.StopKeeper(state), os.RemoveAll(dir)); err != nil {
			t.Error(err)
		}
	})
	return r
}

// start runs an agent until stop is called.
func (r *rig) start() {
	r.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	visitors := relay.New(slog.New(slog.NewTextHandler(r.audit, nil)), time.Hour)
	r.cfg.Visitors = visitors
	a, err := agent.New(ctx, r.cfg)
	if err != nil {
		r.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	r.stop = func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			r.Errorf("agent: %v", err)
		}
		visitors.Close()
	}
}

// job runs a script until it has printed its first line, if it prints any.
func (r *rig) job(script string) *nodev1.Assignment {
	r.Helper()
	no := r.ids.Add(1)
	as := &nodev1.Assignment{
		Job: no, Attempt: 1, Token: 100 + no, Uid: nobody, Gid: nobody, User: "nobody", Name: "j",
		Command: [][]byte{[]byte("/bin/sh"), []byte("-c"), []byte(script)}, Dir: []byte(r.out), MemMib: 64, CpuMilli: 1000,
		Stdout: []byte("%j.out"), Stderr: []byte("%j.err"), Env: [][]byte{[]byte("PATH=/usr/bin:/bin")},
	}
	r.leader.Assign(as)
	r.until("the job", func() bool { return r.leader.Last(attempt(as)) != nil })
	return as
}

func (r *rig) until(what string, ok func() bool) {
	r.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.Fatalf("not within %s: %s", patience, what)
		}
	}
}

func (r *rig) path(as *nodev1.Assignment, kind string) string {
	return filepath.Join(r.out, strconv.FormatUint(as.Job, 10)+"."+kind)
}

// visit opens a stream for the job's owner, unless changed.
func (r *rig) visit(as *nodev1.Assignment, open *apiv1.AttachOpen, change func(*nodev1.Visit)) *agenttest.Guest {
	r.Helper()
	of := proto.CloneOf(as)
	of.Command, of.Env = nil, nil
	v := &nodev1.Visit{Uid: as.Uid, Open: open, Of: of}
	if change != nil {
		change(v)
	}
	var g *agenttest.Guest
	r.until("a session", func() bool {
		var err error
		if g, err = r.leader.Visit(r.Context(), v); err != nil && !strings.Contains(err.Error(), "no session") {
			r.Fatal(err)
		}
		return err == nil
	})
	return g
}

func logs(l *apiv1.AttachLogs) *apiv1.AttachOpen {
	return &apiv1.AttachOpen{Job: 1, What: &apiv1.AttachOpen_Logs{Logs: l}}
}

func command(x *apiv1.AttachExec, args ...string) *apiv1.AttachOpen {
	for _, a := range args {
		x.Command = append(x.Command, []byte(a))
	}
	return &apiv1.AttachOpen{Job: 1, What: &apiv1.AttachOpen_Exec{Exec: x}}
}

// heard is all that an agent said in one stream.
type heard struct {
	refused          *nodev1.Refusal
	opened           *apiv1.AttachOpened
	notices          []string
	out, err, log    string
	at               int64 // where log goes on
	taken            uint64
	ended            *apiv1.AttachEnded
	broken           error
	streamEnded, odd bool
}

func (h *heard) take(m *nodev1.RelayRequest) {
	if m.GetRefused() != nil {
		h.refused = m.GetRefused()
		return
	}
	switch k := m.GetFrame().GetKind().(type) {
	case *apiv1.AttachResponse_Opened:
		h.opened, h.at = k.Opened, k.Opened.GetOffset()
	case *apiv1.AttachResponse_Notice:
		h.notices = append(h.notices, k.Notice)
	case *apiv1.AttachResponse_Stdout:
		h.out += string(k.Stdout)
	case *apiv1.AttachResponse_Stderr:
		h.err += string(k.Stderr)
	case *apiv1.AttachResponse_StdinTaken:
		h.taken = k.StdinTaken
	case *apiv1.AttachResponse_Log:
		if k.Log.Offset != h.at {
			h.odd = k.Log.Offset != 0 // but for a file that was cut
			h.log = ""
		}
		h.log += string(k.Log.Data)
		h.at = k.Log.Offset + int64(len(k.Log.Data))
	case *apiv1.AttachResponse_Ended:
		h.ended = k.Ended
	}
}

// hear gathers what the agent says until ok, or to the end.
func hear(g *agenttest.Guest, h *heard, ok func(*heard) bool) *heard {
	for ok == nil || !ok(h) {
		m, err := g.Recv()
		if err != nil {
			h.streamEnded = err == io.EOF
			h.broken = err
			break
		}
		h.take(m)
	}
	return h
}

// all hears a stream to its end.
func all(g *agenttest.Guest) *heard {
	defer g.Leave()
	return hear(g, &heard{}, nil)
}

func TestLogs(t *testing.T) {
	r := newRig(t)
	as := r.job("echo one; echo two; echo three; echo bad >&2; printf four")
	r.until("its end", func() bool { return r.leader.Last(attempt(as)).State >= nodev1.AttemptState_ATTEMPT_STATE_COMPLETED })
	two, none, many := int64(2), int64(0), int64(99)
	for _, c := range []struct {
		name string
		ask  *apiv1.AttachLogs
		want string
		at   int64
		says string
	}{
		{"all", &apiv1.AttachLogs{}, "one\ntwo\nthree\nfour", 18, ""},
		{"followed, of a job that ended", &apiv1.AttachLogs{Follow: true}, "one\ntwo\nthree\nfour", 18, ""},
		{"standard error", &apiv1.AttachLogs{Stderr: true}, "bad\n", 4, ""},
		{"the last lines", &apiv1.AttachLogs{TailLines: &two}, "three\nfour", 18, ""},
		{"no lines", &apiv1.AttachLogs{TailLines: &none}, "", 18, ""},
		{"more lines than there are", &apiv1.AttachLogs{TailLines: &many}, "one\ntwo\nthree\nfour", 18, ""},
		{"from an offset", &apiv1.AttachLogs{Offset: 8}, "three\nfour", 18, ""},
		{"from where it broke off", &apiv1.AttachLogs{Offset: 8, Before: []byte("two\n")}, "three\nfour", 18, ""},
		{"another file than before", &apiv1.AttachLogs{Offset: 8, Before: []byte("odd\n")}, "one\ntwo\nthree\nfour", 18, "another file"},
		{"shorter than before", &apiv1.AttachLogs{Offset: 80, Before: []byte("odd\n")}, "one\ntwo\nthree\nfour", 18, "another file"},
		{"beyond the end", &apiv1.AttachLogs{Offset: 80}, "", 18, "fewer than the offset"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := all(r.visit(as, logs(c.ask), nil))
			if h.log != c.want || h.at != c.at || h.odd || !h.ended.GetComplete() || !strings.Contains(strings.Join(h.notices, "|"), c.says) {
				t.Errorf("got %+v, want %q", h, c.want)
			}
		})
	}
}

func TestLogsFollow(t *testing.T) {
	r := newRig(t)
	as := r.job("while [ ! -e made ]; do sleep 0.02; done; echo one; while [ ! -e more ]; do sleep 0.02; done; echo two; while [ ! -e gate ]; do sleep 0.02; done; echo last")
	file := r.path(as, "out")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	g := r.visit(as, logs(&apiv1.AttachLogs{Follow: true}), nil)
	defer g.Leave()
	h := hear(g, &heard{}, func(h *heard) bool { return len(h.notices) > 0 })
	if !strings.Contains(h.notices[0], "is not on node n1 yet") {
		t.Errorf("told %q", h.notices)
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(file, "by hand\n") // the job's own is gone
	hear(g, h, func(h *heard) bool { return h.log == "by hand\n" })
	write(file, "cut\n")
	hear(g, h, func(h *heard) bool { return h.log == "cut\n" })
	if !strings.Contains(strings.Join(h.notices, "|"), "was truncated to") {
		t.Errorf("told %q", h.notices)
	}
	for _, gate := range []string{"made", "more", "gate"} {
		write(filepath.Join(r.out, gate), "")
	}
	hear(g, h, nil)
	if !h.ended.GetComplete() || h.log != "cut\n" {
		t.Errorf("got %+v", h)
	}
}

// TestLogsOfWhatTheUserMayNotRead has the job replace its output.
func TestLogsOfWhatTheUserMayNotRead(t *testing.T) {
	r := newRig(t)
	as := r.job("sleep 1000")
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("root's"), 0o600); err != nil {
		t.Fatal(err)
	}
	file := r.path(as, "out")
	for _, c := range []struct {
		name   string
		make   func() error
		reason string
	}{
		{"a link to root's", func() error { return os.Symlink(secret, file) }, "DENIED"},
		{"root's own", func() error { return os.WriteFile(file, []byte("root's"), 0o600) }, "DENIED"},
		{"a FIFO", func() error { return syscall.Mkfifo(file, 0o666) }, "CONFLICT"},
		{"a directory", func() error { return os.Mkdir(file, 0o755) }, "CONFLICT"},
		{"a device", func() error { return os.Symlink("/dev/zero", file) }, "CONFLICT"},
		{"a dead link", func() error { return os.Symlink("/no/such", file) }, "NOT_FOUND"},
		{"a link to itself", func() error { return os.Symlink(file, file) }, "CONFLICT"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := errors.Join(os.RemoveAll(file), c.make()); err != nil {
				t.Fatal(err)
			}
			if h := all(r.visit(as, logs(&apiv1.AttachLogs{}), nil)); h.refused.GetReason() != c.reason || h.log != "" {
				t.Errorf("got %+v, want %s", h, c.reason)
			}
		})
	}
}

// TestVisitsAreChecked is what an agent grants of what a leader asks for.
func TestVisitsAreChecked(t *testing.T) {
	r := newRig(t)
	as := r.job("echo hi; sleep 1000")
	for _, c := range []struct {
		name   string
		change func(*nodev1.Visit)
		reason string // "" is granted
	}{
		{"the owner", nil, ""},
		{"an administrator", func(v *nodev1.Visit) { v.Uid, v.Admin = 0, true }, ""},
		{"another user", func(v *nodev1.Visit) { v.Uid = 1000 }, "DENIED"},
		{"another owner than ours", func(v *nodev1.Visit) { v.Uid, v.Of.Uid = 1000, 1000 }, "CONFLICT"},
		{"another group than ours", func(v *nodev1.Visit) { v.Of.Gid = 0 }, "CONFLICT"},
		{"another token", func(v *nodev1.Visit) { v.Of.Token++ }, "CONFLICT"},
		{"another attempt", func(v *nodev1.Visit) { v.Of.Attempt = 2 }, "CONFLICT"},
		{"a job that is not here", func(v *nodev1.Visit) { v.Of.Job = 77 }, "CONFLICT"},
		{"root's job, which is not here", func(v *nodev1.Visit) { v.Uid, v.Of.Job, v.Of.Uid, v.Of.Gid = 0, 77, 0, 0 }, "DENIED"},
		{"nothing that we know", func(v *nodev1.Visit) { v.Open.What = nil }, "CONFLICT"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := all(r.visit(as, command(&apiv1.AttachExec{}, "id", "-u"), c.change))
			if h.refused.GetReason() != c.reason || (h.out == fmt.Sprintln(nobody)) != (c.reason == "") {
				t.Errorf("got %+v, want %q", h, c.reason)
			}
		})
	}
	if text := string(*r.audit.Load()); strings.Count(text, "a user enters a job") != 2 || !strings.Contains(text, "uid=0 owner=65534 admin=true job=1 attempt=1 node=n1 command=id") {
		t.Errorf("written down:\n%s", text)
	}
}

// TestPathsAreBytes: a path that is not UTF-8 is told of like any other. What
// is said in text must be UTF-8 or the stream breaks: of a visit, and of the
// agent's own session, which would take the node down.
func TestPathsAreBytes(t *testing.T) {
	r := newRig(t)
	as := r.job("sleep 1000")
	named := filepath.Join(r.out, "caf\xe9")
	if err := os.WriteFile(named, []byte("abc"), 0o644); err != nil {
		t.Fatal(err)
	}
	other := proto.CloneOf(as)
	other.Job, other.Stdout, other.Stderr = 4711, []byte(named), []byte(named+"-none")
	if h := all(r.visit(other, logs(&apiv1.AttachLogs{Offset: 100}), nil)); len(h.notices) != 1 || !strings.Contains(h.notices[0], "caf?") || h.ended == nil {
		t.Errorf("got %+v, want a notice and an end", h)
	}
	if h := all(r.visit(other, logs(&apiv1.AttachLogs{Stderr: true}), nil)); h.refused.GetReason() != "NOT_FOUND" || !strings.Contains(h.refused.GetMessage(), "caf?-none") {
		t.Errorf("got %+v, want that there is no such file", h)
	}
	bad := proto.CloneOf(as)
	bad.Job, bad.Stdout = 4712, []byte("/dev/null/caf\xe9")
	r.leader.Assign(bad)
	r.until("the report of a path that is not UTF-8", func() bool {
		last := r.leader.Last(attempt(bad))
		return last.GetState() == nodev1.AttemptState_ATTEMPT_STATE_FAILED && strings.Contains(last.GetDetail(), "/dev/null/caf")
	})
}

// TestOneUserLeavesRoom: streams that hang, as on a file system of the user's
// own, keep no other user out.
func TestOneUserLeavesRoom(t *testing.T) {
	r := newRig(t)
	as := r.job("echo hi; sleep 1000")
	var guests []*agenttest.Guest
	for range relay.MaxVisitsPerUser {
		g := r.visit(as, logs(&apiv1.AttachLogs{Follow: true}), nil)
		hear(g, &heard{}, func(h *heard) bool { return h.log != "" })
		guests = append(guests, g)
	}
	if h := all(r.visit(as, logs(&apiv1.AttachLogs{}), nil)); h.refused.GetReason() != "EXHAUSTED" {
		t.Errorf("one more: got %+v", h)
	}
	admin := func(v *nodev1.Visit) { v.Uid, v.Admin = 0, true }
	if h := all(r.visit(as, logs(&apiv1.AttachLogs{}), admin)); h.log != "hi\n" {
		t.Errorf("another user: got %+v", h)
	}
	for _, g := range guests {
		g.Leave()
	}
	r.until("room again", func() bool { return all(r.visit(as, logs(&apiv1.AttachLogs{}), nil)).log == "hi\n" })
}

package caps_test

import (
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/agent/gpu/caps"
	"github.com/berth-scheduler/berth/agent/gpu/caps/capstest"
)

const cardA, cardB = "GPU-aaaa", "GPU-bbbb"

func daemons(t *testing.T, multi bool) (*caps.Daemons, func() *caps.Daemons, string) {
	t.Helper()
	cfg := caps.DaemonsConfig{Control: capstest.Control(t), Dir: filepath.Join(t.TempDir(), "mps"), MultiUser: multi, Log: slog.New(slog.DiscardHandler)}
	again := func() *caps.Daemons { return caps.NewDaemons(cfg) }
	return again(), again, cfg.Dir
}

func join(t *testing.T, d *caps.Daemons, uuid string, cl caps.Client) []string {
	t.Helper()
	env, err := d.Join(t.Context(), uuid, cl)
	if err != nil {
		t.Fatal(err)
	}
	return env
}

func TestDaemonLivesWhileItsCardIsShared(t *testing.T) {
	d, _, dir := daemons(t, false)
	a := caps.Client{Attempt: "j1-a1", MemMiB: 8192, Milli: 300}
	env := join(t, d, cardA, a)
	want := []string{"CUDA_MPS_PIPE_DIRECTORY=" + filepath.Join(dir, cardA, "pipe"), "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=8192M", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=30"}
	if diff := cmp.Diff(want, env); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(env, join(t, d, cardA, a)); diff != "" {
		t.Errorf("joining again gives another environment:\n%s", diff)
	}
	if got := capstest.Lines(dir, cardA, "started"); !slices.Equal(got, []string{cardA + " -d"}) {
		t.Errorf("started %q", got)
	}
	env = join(t, d, cardA, caps.Client{Attempt: "j2-a1", MemMiB: 8192, Milli: 301, Processes: 4})
	if !slices.Contains(env, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=2048M") || !slices.Contains(env, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=8") {
		t.Errorf("the share of one of four processes: %q", env)
	}
	if got := d.Shared(); !slices.Equal(got, []string{cardA}) {
		t.Errorf("shared are %v", got)
	}
	for i, id := range []string{"j1-a1", "j2-a1", "j2-a1"} {
		if err := d.Leave(t.Context(), cardA, id); err != nil {
			t.Fatal(err)
		}
		if alive := capstest.Alive(dir, cardA); alive != (i == 0) {
			t.Errorf("after %d left the daemon lives: %t", i+1, alive)
		}
	}
	if err := d.Leave(t.Context(), cardB, "j9-a1"); err != nil {
		t.Errorf("who never joined cannot leave: %v", err)
	}
	join(t, d, cardA, a)
	if got := len(capstest.Lines(dir, cardA, "started")); got != 2 {
		t.Errorf("started %d times, want 2", got)
	}
}

// TestDaemonIsPlaced: the process that becomes the daemon is placed before it
// is one, once; that it cannot be stops nobody.
func TestDaemonIsPlaced(t *testing.T) {
	var placed []string
	cfg := caps.DaemonsConfig{Control: capstest.Control(t), Dir: filepath.Join(t.TempDir(), "mps"), Log: slog.New(slog.DiscardHandler)}
	cfg.Place = func(pid int) error {
		if capstest.Alive(cfg.Dir, cardA) {
			t.Error("it is a daemon already")
		}
		placed = append(placed, strconv.Itoa(pid))
		return errors.New("the group is not to be written")
	}
	d := caps.NewDaemons(cfg)
	for _, id := range []string{"j1-a1", "j2-a1"} {
		join(t, d, cardA, caps.Client{Attempt: id, MemMiB: 1024, Milli: 100})
	}
	if got := capstest.Lines(cfg.Dir, cardA, "pids"); len(placed) != 1 || !slices.Equal(got, placed) {
		t.Errorf("placed %q of the daemons %q", placed, got)
	}
}

func TestDaemonIsAdopted(t *testing.T) {
	d, again, dir := daemons(t, true)
	a := caps.Client{Attempt: "j1-a1", MemMiB: 1000, Milli: 5}
	join(t, d, cardA, a)
	join(t, d, cardB, caps.Client{Attempt: "j2-a1", MemMiB: 1000, Milli: 1000})
	if got := capstest.Lines(dir, cardA, "started"); !slices.Equal(got, []string{cardA + " -d -multiuser-server"}) {
		t.Errorf("started %q", got)
	}
	d = again() // another agent, to which job 1 is known
	join(t, d, cardA, a)
	if got := len(capstest.Lines(dir, cardA, "started")); got != 1 {
		t.Errorf("the daemon was started %d times", got)
	}
	if err := d.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !capstest.Alive(dir, cardA) || capstest.Alive(dir, cardB) {
		t.Errorf("after a sweep: the daemon in use %t, the other %t", capstest.Alive(dir, cardA), capstest.Alive(dir, cardB))
	}
}

func TestFaultsOfServers(t *testing.T) {
	for _, tc := range []struct {
		name   string
		befall func(t *testing.T, dir string)
		pid    int
		detail string
	}{
		{"none", func(*testing.T, string) {}, 0, ""},
		{"of a known client", func(t *testing.T, dir string) {
			capstest.Fault(t, dir, cardA, "[2026-01-02 03:04:06.001 Server  4711] Device GPU-aaaa from client process 31337 encountered a fatal exception")
		}, 31337, "ended by a fault of one of its clients"},
		{"of nobody known", func(t *testing.T, dir string) {
			capstest.Fault(t, dir, cardA, "[2026-01-02 03:04:06.001 Server  4711] Server entered FAULT state")
		}, 0, "ended by a fault of one of its clients"},
		{"the daemon died", func(t *testing.T, dir string) { capstest.Kill(t, dir, cardA) }, 0, "the MPS daemon is gone"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d, _, dir := daemons(t, false)
			join(t, d, cardA, caps.Client{Attempt: "j1-a1", MemMiB: 1000, Milli: 500})
			tc.befall(t, dir)
			f := d.Check(t.Context(), cardA)
			if tc.detail == "" {
				if f != nil {
					t.Fatalf("fault %+v", f)
				}
				return
			}
			if f == nil || f.PID != tc.pid || f.UUID != cardA || !strings.Contains(f.Detail, tc.detail) {
				t.Fatalf("fault %+v, want %q by %d", f, tc.detail, tc.pid)
			}
			if f := d.Check(t.Context(), cardA); strings.Contains(tc.name, "known") && f != nil && f.PID != 0 {
				t.Errorf("what the log says is told again: %+v", f)
			}
			if err := d.Leave(t.Context(), cardA, "j1-a1"); err != nil {
				t.Fatal(err)
			}
			join(t, d, cardA, caps.Client{Attempt: "j2-a1", MemMiB: 1000, Milli: 500})
			if f := d.Check(t.Context(), cardA); f != nil {
				t.Errorf("the next daemon begins with %+v", f)
			}
		})
	}
}

func TestDaemonsRefuse(t *testing.T) {
	d, _, _ := daemons(t, false)
	good := caps.Client{Attempt: "j1-a1", MemMiB: 1, Milli: 1}
	for name, f := range map[string]func() (string, caps.Client){
		"a path":     func() (string, caps.Client) { return "../../etc", good },
		"no card":    func() (string, caps.Client) { return "", good },
		"no memory":  func() (string, caps.Client) { return cardA, caps.Client{Attempt: "j1-a1", Milli: 1} },
		"no attempt": func() (string, caps.Client) { return cardA, caps.Client{MemMiB: 1, Milli: 1} },
	} {
		uuid, cl := f()
		if _, err := d.Join(t.Context(), uuid, cl); err == nil {
			t.Errorf("%s is let in", name)
		}
	}
	d = caps.NewDaemons(caps.DaemonsConfig{Control: "/does/not/exist", Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if _, err := d.Join(t.Context(), cardA, good); err == nil || !strings.Contains(err.Error(), "start the daemon of GPU "+cardA) {
		t.Errorf("without the program: %v", err)
	}
}

func FuzzFaultIn(f *testing.F) {
	f.Add([]byte("Device GPU-a from client process 1 encountered a fatal exception\n"))
	f.Add([]byte("Server entered FAULT state\nclient 99999999999 fatal error"))
	f.Fuzz(func(t *testing.T, log []byte) {
		pid, found := caps.FaultIn(log)
		if pid < 0 || pid > 0 && !found {
			t.Fatalf("pid %d, found %t", pid, found)
		}
	})
}

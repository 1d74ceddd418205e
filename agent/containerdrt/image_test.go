package containerdrt

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/agent/containerdrt/daemon"
	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/agent/runtime"
	"github.com/berth-scheduler/berth/cluster"
)

// bench is one runtime with a containerd of its own, and its user's files.
type bench struct {
	testing.TB
	d        *daemon.Daemon
	rt       *Runtime
	dir, out string
	image    string
}

func newBench(t testing.TB) *bench {
	t.Helper()
	return newBenchOn(t, startDaemon(t))
}

func newBenchOn(t testing.TB, d *daemon.Daemon) *bench {
	t.Helper()
	b := &bench{TB: t, d: d}
	for _, dir := range []*string{&b.dir, &b.out} {
		var err error
		if *dir, err = os.MkdirTemp("/tmp", "rt"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := os.RemoveAll(*dir); err != nil {
				t.Error(err)
			}
		})
	}
	if err := errors.Join(os.Chmod(b.out, 0o755), os.Chown(b.out, 65534, 65534)); err != nil {
		t.Fatal(err)
	}
	var err error
	if b.image, err = b.d.ImportBusybox(t.Context(), filepath.Base(b.dir)); err != nil {
		t.Fatal(err)
	}
	clearLater(t, b.dir)
	b.rt = openTest(t, b.d.Socket(), b.dir)
	b.rt.images.cfg.PullPause = time.Millisecond
	b.rt.cfg.Policy.Mounts = []string{b.out}
	t.Cleanup(b.close)
	return b
}

func (b *bench) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	tasks, err := b.rt.List(ctx)
	if err != nil {
		b.Error(err)
	}
	for _, task := range tasks {
		if err := b.rt.Signal(ctx, task.ID, syscall.SIGKILL); err != nil {
			b.Error(err)
		}
		b.until("a clean end", func() bool { return b.rt.Delete(ctx, task.ID) == nil })
	}
	if err := b.rt.Close(); err != nil {
		b.Error(err)
	}
}

func (b *bench) job(n int, image string, args ...string) *launch.Launch {
	id := cluster.AttemptID{Job: cluster.JobID(n), No: 1}
	out := filepath.Join(b.out, id.String()+".out")
	return &launch.Launch{
		ID: id, Token: 7, UID: 65534, GID: 65534, Groups: []uint32{65534}, Image: image, Dir: "/",
		Args: args, Stdout: out, Stderr: out, Env: []string{"HOME=/"},
	}
}

func (b *bench) start(l *launch.Launch) {
	b.Helper()
	if err := b.rt.Create(b.Context(), l); err != nil {
		b.Fatalf("create %q: %v", l.Args, err)
	}
	if err := b.rt.Start(b.Context(), l.ID); err != nil {
		b.Fatalf("start %q: %v", l.Args, err)
	}
}

func (b *bench) wait(id cluster.AttemptID) runtime.Task {
	b.Helper()
	var task runtime.Task
	b.until("the end of "+id.String(), func() (done bool) {
		var err error
		if task, err = b.rt.Inspect(b.Context(), id); err != nil {
			b.Fatal(err)
		}
		return task.Phase == runtime.Stopped || task.Phase == runtime.Lost
	})
	return task
}

func (b *bench) until(what string, cond func() bool) {
	b.Helper()
	for deadline := time.Now().Add(10 * time.Minute); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.Fatalf("waited too long for %s", what)
		}
	}
}

// lines waits until a job has printed n lines.
func (b *bench) lines(l *launch.Launch, n int) []string {
	b.Helper()
	var got []string
	b.until("output of "+l.ID.String(), func() bool {
		text, err := os.ReadFile(l.Stdout)
		got = strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
		return err == nil && strings.HasSuffix(string(text), "\n") && len(got) >= n
	})
	return got
}

func TestImageJobs(t *testing.T) {
	require(t)
	b := newBench(t)
	t.Run("nothing of the image but its files and its path", func(t *testing.T) { testImageEnv(t, b) })
	t.Run("confinement", func(t *testing.T) { testConfinement(t, b) })
	t.Run("own tmp and shm", func(t *testing.T) { testPrivateTmp(t, b) })
	t.Run("mounts", func(t *testing.T) { testMounts(t, b) })
	t.Run("refusals", func(t *testing.T) { testImageRefusals(t, b) })
	t.Run("signals", func(t *testing.T) { testImageSignals(t, b) })
	t.Run("out of memory", func(t *testing.T) {
		l := b.job(70, b.image, "tail", "/dev/zero")
		l.MemBytes = 48 << 20
		b.start(l)
		if task := b.wait(l.ID); !task.OOMKilled || task.ExitCode != 137 {
			t.Errorf("got %+v", task)
		}
	})
}

func testImageEnv(t *testing.T, b *bench) {
	l := b.job(1, b.image, "env")
	b.start(l)
	got := b.lines(l, 2)
	slices.Sort(got)
	if diff := cmp.Diff([]string{"HOME=/", "PATH=/image/bin:/bin"}, got); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
	l = b.job(2, b.image, "/bin/sh", "-c", "/bin/id -u; /bin/pwd; /bin/env | /bin/grep PATH")
	l.Env, l.Dir = []string{"PATH=/mine"}, "/plain"
	b.start(l)
	if diff := cmp.Diff([]string{"65534", "/plain", "PATH=/mine"}, b.lines(l, 3)); diff != "" {
		t.Errorf("job's own path (-want +got):\n%s", diff)
	}
	c, err := b.rt.client.LoadContainer(b.rt.with(t.Context()), l.ID.String())
	if err != nil {
		t.Fatal(err)
	}
	labels, err := c.Labels(b.rt.with(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{labelToken: "7"}, labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
}

func testConfinement(t *testing.T, b *bench) {
	l := b.job(10, b.image, "sh", "-c", `grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status; echo $$; touch /proc/sys/kernel/x 2>/dev/null || echo readonly; head -c1 /proc/timer_list | cat; echo masked; ls /root/..`)
	b.start(l)
	got := b.lines(l, 11)
	want := []string{
		"CapInh:\t0000000000000000", "CapPrm:\t0000000000000000", "CapEff:\t0000000000000000",
		"CapBnd:\t0000000000000000", "CapAmb:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2", "1", "readonly", "masked", "bin",
	}
	if diff := cmp.Diff(want, got[:len(want)]); diff != "" {
		t.Errorf("confinement (-want +got):\n%s", diff)
	}
	task := b.wait(l.ID)
	if task.ExitCode != 0 {
		t.Errorf("got %+v", task)
	}
}

func testPrivateTmp(t *testing.T, b *bench) {
	l := b.job(20, b.image, "sh", "-c", "touch /tmp/x /dev/shm/y && ls /tmp /dev/shm && while :; do sleep 0.05; done")
	b.start(l)
	if diff := cmp.Diff([]string{"/dev/shm:", "y", "", "/tmp:", "x"}, b.lines(l, 5)); diff != "" {
		t.Errorf("own directories (-want +got):\n%s", diff)
	}
	if err := b.rt.Signal(t.Context(), l.ID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	b.wait(l.ID)
	host := b.job(21, "", "/bin/sh", "-c", "touch "+b.out+"/from-host-job; ls /dev/shm | wc -l")
	host.Env = []string{"PATH=/usr/bin:/bin"}
	b.start(host)
	b.wait(host.ID)
	if _, err := os.Stat(filepath.Join(b.out, "from-host-job")); err != nil {
		t.Errorf("host job does not see the node's /tmp: %v", err)
	}
}

func testMounts(t *testing.T, b *bench) {
	if err := os.WriteFile(filepath.Join(b.out, "data"), []byte("hello\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	l := b.job(30, b.image, "sh", "-c", "cat /ro/data; touch /ro/new 2>/dev/null || echo readonly; touch /rw/new && echo written")
	l.Mounts = []launch.Mount{{Source: b.out, Target: "/ro", ReadOnly: true}, {Source: b.out, Target: "/rw"}}
	b.start(l)
	if diff := cmp.Diff([]string{"hello", "readonly", "written"}, b.lines(l, 3)); diff != "" {
		t.Errorf("mounts (-want +got):\n%s", diff)
	}
}

func testImageRefusals(t *testing.T, b *bench) {
	for i, c := range []struct {
		name, reason string
		code         int
		change       func(*launch.Launch)
	}{
		{"unknown image", "IMAGE", 125, func(l *launch.Launch) { l.Image = "127.0.0.1:1/no/image:v1" }},
		{"not a reference", "IMAGE", 125, func(l *launch.Launch) { l.Image = "::" }},
		{"no such path", "COMMAND", 127, func(l *launch.Launch) { l.Args = []string{"/no/such"} }},
		{"no such name", "COMMAND", 127, func(l *launch.Launch) { l.Args = []string{"no-such"} }},
		{"a directory", "COMMAND", 126, func(l *launch.Launch) { l.Args = []string{"/plain"} }},
		{"not permitted", "COMMAND", 126, func(l *launch.Launch) { l.Args = []string{"/plain/text"} }},
		{"bytes that are no text", "COMMAND", 125, func(l *launch.Launch) { l.Args = []string{"echo", "\xff"} }},
		{"input", "INPUT", 125, func(l *launch.Launch) { l.Stdin = "/dev/zero" }},
		{"output", "OUTPUT", 125, func(l *launch.Launch) { l.Stdout = "/etc/berth-test" }},
	} {
		l := b.job(40+i, b.image, "true")
		c.change(l)
		err := b.rt.Create(t.Context(), l)
		if err == nil {
			err = b.rt.Start(t.Context(), l.ID)
		}
		le, ok := errors.AsType[*launch.Error](err)
		if !ok || le.Code != c.code || le.Reason != c.reason {
			t.Errorf("%s: got %v, want code %d reason %s", c.name, err, c.code, c.reason)
		}
		if err := b.rt.Delete(t.Context(), l.ID); err != nil {
			t.Errorf("%s: delete: %v", c.name, err)
		}
		if _, err := b.rt.client.LoadContainer(b.rt.with(t.Context()), l.ID.String()); err == nil {
			t.Errorf("%s: a container is left", c.name)
		}
	}
	left, err := filepath.Glob(filepath.Join(b.dir, "rt", "j4*"))
	if err != nil || len(left) > 0 {
		t.Errorf("files are left: %q (%v)", left, err)
	}
}

// testImageSignals has first processes of a pid namespace, which the kernel
// protects from signals that they do not handle.
func testImageSignals(t *testing.T, b *bench) {
	for i, c := range []struct {
		name, script string
		sig          syscall.Signal
		code         int
	}{
		{"default action", "exec sleep 1000", syscall.SIGTERM, 143},
		{"default action of another", "exec sleep 1000", syscall.SIGINT, 130},
		{"handled", "trap 'exit 9' TERM; echo; while :; do sleep 0.02; done", syscall.SIGTERM, 9},
		{"killed", "exec sleep 1000", syscall.SIGKILL, 137},
	} {
		l := b.job(60+i, b.image, "sh", "-c", "echo; "+c.script)
		b.start(l)
		lines := 1 + strings.Count(c.script, "echo")
		b.lines(l, lines)
		task, err := b.rt.Inspect(t.Context(), l.ID)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(c.script, "trap") {
			// The shell's own handlers end with its exec.
			b.until("sleep", func() bool {
				comm, err := os.ReadFile("/proc/" + strconv.Itoa(task.PID) + "/comm")
				return err == nil && strings.TrimSpace(string(comm)) == "sleep"
			})
		}
		if err := b.rt.Signal(t.Context(), l.ID, c.sig); err != nil {
			t.Fatal(err)
		}
		if task := b.wait(l.ID); task.ExitCode != c.code {
			t.Errorf("%s: got %+v, want %d", c.name, task, c.code)
		}
	}
}

// BenchmarkCreateToRunning measures from Create to the first line of output.
func BenchmarkCreateToRunning(b *testing.B) {
	bn := newBench(b)
	for _, c := range []struct{ name, image string }{{"host", ""}, {"image", bn.image}} {
		b.Run(c.name, func(b *testing.B) {
			n := 100000 * len(c.name)
			for b.Loop() {
				n++
				l := bn.job(n, c.image, "/bin/true")
				bn.start(l)
				b.StopTimer()
				bn.wait(l.ID)
				if err := bn.rt.Delete(b.Context(), l.ID); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}

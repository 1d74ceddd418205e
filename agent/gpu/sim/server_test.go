package sim

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/agent/gpu/sim/simclient"
)

// node is a node whose agent can be restarted. Its socket is a listener of
// pipes, which fake time can wait for.
type node struct {
	t     *testing.T
	specs []Spec
	uid   uint32

	mu   sync.Mutex
	ln   *pipeListener
	prov *Provider
}

func newNode(t *testing.T, specs ...Spec) *node {
	n := &node{t: t, specs: specs, uid: uint32(os.Geteuid())}
	n.up()
	return n
}

func (n *node) up() {
	n.t.Helper()
	ln := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	p, err := newProvider(Config{Node: "n1", Specs: n.specs, Socket: "/sim/cards"}, ln, func(net.Conn) (peer, error) {
		return peer{pid: 42, uid: n.uid}, nil
	})
	if err != nil {
		n.t.Fatalf("start provider: %v", err)
	}
	n.mu.Lock()
	n.ln, n.prov = ln, p
	n.mu.Unlock()
}

func (n *node) down() {
	n.t.Helper()
	if err := n.prov.Close(); err != nil {
		n.t.Errorf("close provider: %v", err)
	}
}

func (n *node) admit(attempt string, cards ...gpu.GrantCard) simclient.Config {
	n.t.Helper()
	env, err := n.prov.Admit(n.t.Context(), gpu.Grant{Attempt: attempt, UID: uint32(os.Geteuid()), Cards: cards})
	if err != nil {
		n.t.Fatalf("admit: %v", err)
	}
	cfg, err := simclient.FromEnv(env)
	if err != nil {
		n.t.Fatalf("environment of a job: %v", err)
	}
	cfg.Dial = func(ctx context.Context) (net.Conn, error) {
		n.mu.Lock()
		ln := n.ln
		n.mu.Unlock()
		return ln.dial(ctx)
	}
	return cfg
}

func (n *node) usage() []gpu.Usage {
	n.t.Helper()
	u, err := n.prov.Usage(n.t.Context())
	if err != nil {
		n.t.Fatalf("usage: %v", err)
	}
	return u
}

type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (l *pipeListener) dial(ctx context.Context) (net.Conn, error) {
	a, b := net.Pipe()
	select {
	case l.conns <- b:
		return a, nil
	case <-l.closed:
		return nil, errors.New("connection refused")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error   { close(l.closed); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

func TestJobRunsAtItsSpeed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, Spec{Type: "RTX-3090", Count: 1})
		defer n.down()
		cfg := n.admit("j1-a1", shared(0, 6144))
		var out bytes.Buffer
		began := time.Now()
		done := make(chan error, 1)
		go func() {
			done <- simclient.Job{GPUMemMiB: 6144, UtilMilli: 400, Seconds: 12, RampSeconds: 4}.Run(t.Context(), cfg, &out)
		}()
		time.Sleep(15 * time.Second) // 9 s of work: past the ramp
		synctest.Wait()
		want := []gpu.Usage{{
			UUID: UUID("n1", 0), UsedMiB: 6144, UtilMilli: 400, PowerW: 155, TemperatureC: 48, MemActivityMilli: gpu.Unknown, EnergyMJ: 2_325_000,
			Processes: []gpu.Process{{PID: 42, Attempt: "j1-a1", MemMiB: 6144, UtilMilli: 400, PeakMiB: 6144, Kinds: gpu.Compute}},
		}}
		if d := cmp.Diff(want, n.usage()); d != "" {
			t.Errorf("usage while it runs (-want +got):\n%s", d)
		}
		if err := <-done; err != nil {
			t.Fatalf("job: %v\n%s", err, &out)
		}
		// 12 s of work at 0.6 is 20 s. Each of the ramp's 8 pieces and the
		// rest round up by at most a nanosecond.
		if got := time.Since(began); (got - 20*time.Second).Abs() > 100*time.Nanosecond {
			t.Errorf("job took %v, want 20s\n%s", got, &out)
		}
		busy, since, err := n.prov.Busy(UUID("n1", 0))
		if err != nil || since != time.Since(began) || (busy-8*time.Second).Abs() > 100*time.Nanosecond {
			t.Errorf("card was busy %v of %v (%v), want 8s", busy, since, err)
		}
		for _, line := range []string{"NVIDIA GeForce RTX 3090", "holds 6144 MiB on each of 1 GPUs", "progress  50%", "done\n"} {
			if !strings.Contains(out.String(), line) {
				t.Errorf("output has no %q:\n%s", line, &out)
			}
		}
		synctest.Wait()
		want = []gpu.Usage{{
			UUID: UUID("n1", 0), PowerW: 25, TemperatureC: 32, MemActivityMilli: gpu.Unknown, EnergyMJ: 3_100_000,
			Processes: []gpu.Process{{Attempt: "j1-a1", PeakMiB: 6144}},
		}}
		if d := cmp.Diff(want, n.usage()); d != "" {
			t.Errorf("usage after it (-want +got):\n%s", d)
		}
		if err := n.prov.Retire(t.Context(), "j1-a1"); err != nil {
			t.Fatalf("retire: %v", err)
		}
		if u := n.usage(); len(u[0].Processes) != 0 {
			t.Errorf("a retired attempt is still reported: %+v", u[0].Processes)
		}
	})
}

func TestRefusedAllocationSaysSo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, Spec{Type: "RTX-3090", Count: 1})
		defer n.down()
		cfg := n.admit("j1-a1", shared(0, 5120))
		var out bytes.Buffer
		err := simclient.Job{GPUMemMiB: 8612, UtilMilli: 400, Seconds: 1}.Run(t.Context(), cfg, &out)
		if !errors.Is(err, simclient.ErrOutOfMemory) || simclient.ExitCode(err) != 1 {
			t.Fatalf("got %v, exit code %d", err, simclient.ExitCode(err))
		}
		want := "CUDA out of memory. Tried to allocate 1.00 GiB (GPU 0; 24.00 GiB total capacity; 4.41 GiB already allocated; 19.29 GiB free; 5.00 GiB allowed to this job)\n"
		if !strings.HasSuffix(out.String(), want) {
			t.Errorf("output:\n%swant it to end with:\n%s", &out, want)
		}
		synctest.Wait()
		if p := n.usage()[0].Processes; len(p) != 1 || !p[0].OOM || p[0].PID != 0 {
			t.Errorf("the refusal outlives the process only until retire: %+v", p)
		}
	})
}

// An agent that comes back within the minute finds memory and progress again;
// the job notices nothing but the time.
func TestJobSurvivesAgentRestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, Spec{Type: "A100-SXM4-80GB", Count: 2})
		cards := []gpu.GrantCard{shared(0, 4096), shared(1, 4096)}
		cfg := n.admit("j1-a1", cards...)
		began := time.Now()
		var out bytes.Buffer
		done := make(chan error, 1)
		go func() {
			done <- simclient.Job{GPUMemMiB: 4096, UtilMilli: 500, Seconds: 20}.Run(t.Context(), cfg, &out)
		}()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		before := n.usage()
		n.down()
		time.Sleep(20 * time.Second)
		n.up()
		time.Sleep(5 * time.Second) // the agent is up, but has not adopted the attempt
		if u := n.usage(); u[0].UsedMiB != 0 {
			t.Errorf("memory of an attempt nobody admitted: %+v", u[0])
		}
		n.admit("j1-a1", cards...)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		// The count of energy begins anew, as a driver's does.
		if d := cmp.Diff(before, n.usage(), cmpopts.IgnoreFields(gpu.Usage{}, "EnergyMJ")); d != "" {
			t.Errorf("accounts after the restart (-before +after):\n%s", d)
		}
		if err := <-done; err != nil {
			t.Fatalf("job: %v\n%s", err, &out)
		}
		// 20 s of work, 25 s without an agent, at most a tick of lost progress
		// and a second until the client tried again.
		if got := time.Since(began); got < 45*time.Second || got > 47*time.Second {
			t.Errorf("job took %v, want 45s to 47s\n%s", got, &out)
		}
		n.down()
	})
}

func TestJobGivesUpAfterAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, Spec{Type: "T4", Count: 1})
		cfg := n.admit("j1-a1", shared(0, 1024))
		done := make(chan error, 1)
		go func() {
			done <- simclient.Job{GPUMemMiB: 1024, UtilMilli: 500, Seconds: 100}.Run(t.Context(), cfg, io.Discard)
		}()
		time.Sleep(3 * time.Second)
		n.down()
		lost := time.Now()
		if err := <-done; !errors.Is(err, simclient.ErrLost) {
			t.Fatalf("got %v, want ErrLost", err)
		}
		if d := time.Since(lost); d < 58*time.Second || d > time.Minute {
			t.Errorf("gave up after %v, want about a minute", d)
		}
	})
}

func TestTermEndsAJob(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, Spec{Type: "T4", Count: 1})
		defer n.down()
		cfg := n.admit("j1-a1", shared(0, 1024))
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		err := simclient.Job{GPUMemMiB: 1024, UtilMilli: 500, Seconds: 100}.Run(ctx, cfg, io.Discard)
		if !errors.Is(err, simclient.ErrTerminated) || simclient.ExitCode(err) != 143 {
			t.Fatalf("got %v, exit code %d; want ErrTerminated and 143", err, simclient.ExitCode(err))
		}
		synctest.Wait()
		if u := n.usage()[0]; u.UsedMiB != 0 || u.UtilMilli != 0 {
			t.Errorf("a terminated job still holds %d MiB and %d‰", u.UsedMiB, u.UtilMilli)
		}
	})
}

func TestReplayKeepsWhatItsFirstTurnAllocated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, Spec{Type: "A100-SXM4-80GB", Count: 1})
		defer n.down()
		cfg := n.admit("j1-a1", shared(0, 3352))
		events := []simclient.Event{
			{Op: simclient.EventAlloc, ID: 1, Bytes: 1 << 30}, {Op: simclient.EventAlloc, ID: 2, Bytes: 2e9},
			{Op: simclient.EventCompute, WorkSeconds: 0.5, UtilMilli: 700}, {Op: simclient.EventFree, ID: 2},
			{Op: simclient.EventCompute, WorkSeconds: 0.5, UtilMilli: 100},
		}
		began := time.Now()
		if err := (simclient.Job{Events: events, Steps: 10}).Run(t.Context(), cfg, io.Discard); err != nil {
			t.Fatalf("replay: %v", err)
		}
		if got := time.Since(began); got != 10*time.Second {
			t.Errorf("replay took %v, want 10s", got)
		}
		want := []gpu.Account{{
			UUID: UUID("n1", 0), PeakMiB: 420 + 1024 + 1908, // 2e9 bytes are 954 blocks
			Busy: 4 * time.Second, Elapsed: 10 * time.Second,
		}}
		synctest.Wait()
		got, err := n.prov.Account(t.Context(), "j1-a1")
		if err != nil {
			t.Fatalf("account: %v", err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("account (-want +got):\n%s", d)
		}
	})
}

func TestInventory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, Spec{Type: "tesla t4", Count: 1, MemMiB: 8192}, Spec{Type: "H200", Count: 1})
		defer n.down()
		want := []gpu.Card{
			{
				UUID: UUID("n1", 0), Type: "T4", Name: "Tesla T4", MemMiB: 8192, ReservedMiB: 446, PCI: "00000000:01:00.0",
				ComputeMajor: 7, ComputeMinor: 5, PowerLimitW: 70, Driver: "simulated", Simulated: true, MIG: gpu.ModeOff,
			},
			{
				UUID: UUID("n1", 1), Type: "H200", Name: "NVIDIA H200", Index: 1, MemMiB: 143771, ReservedMiB: 602, PCI: "00000000:02:00.0",
				ComputeMajor: 9, PowerLimitW: 700, Driver: "simulated", Simulated: true, MIG: gpu.ModeOff,
			},
		}
		got, err := n.prov.Inventory(t.Context())
		if err != nil {
			t.Fatalf("inventory: %v", err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		if dir := n.prov.SocketDir(); dir != "/sim" {
			t.Errorf("socket folder %q", dir)
		}
		if _, _, err := n.prov.Busy("GPU-x"); !errors.Is(err, gpu.ErrUnknownCard) {
			t.Errorf("busy of no card: %v", err)
		}
		if _, err := n.prov.Account(t.Context(), "j9-a1"); err == nil {
			t.Error("account of no attempt")
		}
	})
}

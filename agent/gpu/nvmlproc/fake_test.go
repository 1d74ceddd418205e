//go:build linux && cgo

package nvmlproc

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/agent/gpu/nvml"
	"github.com/berth-scheduler/berth/agent/gpu/nvml/nvmltest"
	"github.com/berth-scheduler/berth/agent/gpu/tunetest"
)

const (
	childEnv = "NVMLPROC_TEST_CHILD" // the library to load

	cardA = "card GPU-aaaa 25769803776 322961408 7516192768 55 201500 00000000:3B:00.0 NVIDIA GeForce RTX 3090\n"
	cardB = "card GPU-bbbb 85899345920 910163968 0 0 60000 00000000:AF:00.0 NVIDIA A100-SXM4-80GB\n"
)

// TestMain is also the child's main.
func TestMain(m *testing.M) {
	if lib := os.Getenv(childEnv); lib != "" {
		log := slog.New(slog.NewTextHandler(os.Stderr, nil))
		err := Main(os.Stdin, os.Stdout, os.Stderr, func() (Driver, error) {
			fmt.Println("a library that prints must not break the protocol")
			return nvml.New(nvml.Config{LibraryPath: lib})
		}, log)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(nvmltest.Main(m))
}

// node is a provider over a fake driver whose script the test writes.
type node struct {
	t      testing.TB
	script string
	cfg    Config
	log    *logged
	over   sync.Map // the pids of children that were given up
	*Provider
}

// quick is a driver whose answers are late when it hangs, not after a time.
func quick() Config {
	return Config{
		Deadline: time.Second, StartTimeout: time.Minute, patience: time.Minute,
		FirstBackoff: 10 * time.Millisecond, LastBackoff: 200 * time.Millisecond,
	}
}

// late is over when the driver of a child that was not given up yet hangs.
func (n *node) late(time.Duration) (<-chan time.Time, func()) {
	over, quit := make(chan time.Time, 1), make(chan struct{})
	go func() {
		look := time.NewTicker(2 * time.Millisecond)
		defer look.Stop()
		for !n.hangs() {
			select {
			case <-quit:
				return
			case <-look.C:
			}
		}
		over <- time.Now()
	}()
	return over, func() { close(quit) }
}

func (n *node) hangs() bool {
	said, err := filepath.Glob(n.script + ".hung.*")
	if err != nil {
		panic(err) // the pattern is bad
	}
	return slices.ContainsFunc(said, func(path string) bool {
		pid, err := strconv.Atoi(path[strings.LastIndexByte(path, '.')+1:])
		_, over := n.over.Load(pid)
		return err == nil && !over
	})
}

func newNode(t testing.TB, cfg Config, script string) *node {
	t.Helper()
	n := &node{t: t, script: filepath.Join(t.TempDir(), "script"), log: &logged{}}
	n.write(script)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cfg.Command = []string{exe}
	cfg.Env = []string{childEnv + "=" + nvmltest.Build(t, nvmltest.Recent), nvmltest.ScriptEnv + "=" + n.script}
	cfg.Log = slog.New(slog.NewTextHandler(io.MultiWriter(n.log, t.Output()), nil))
	if cfg.Deadline != 0 { // else these are the times of a real node
		cfg.late = n.late
	}
	kill := cfg.kill
	if kill == nil {
		kill = (*os.Process).Kill
	}
	cfg.kill = func(p *os.Process) error { n.over.Store(p.Pid, true); return kill(p) }
	n.cfg = cfg
	if n.Provider, err = Open(t.Context(), cfg); err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		within(t, "every child is reaped", func() bool { return n.loop.stuck.Load() == 0 })
	})
	return n
}

func (n *node) write(script string) {
	n.t.Helper()
	nvmltest.WriteScript(n.t, n.script, script)
}

// states is uuid=state of every card.
func (n *node) states() string {
	var out []string
	for _, s := range n.States() {
		out = append(out, s.UUID+"="+s.State.String())
	}
	return strings.Join(out, " ")
}

// usage asks once; the answer may be none.
func (n *node) usage() ([]gpu.Usage, error) { return n.Usage(n.t.Context()) }

// logged keeps what was logged.
type logged struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) count(s string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), s)
}

// within fails the test when ok does not come true in two minutes.
func within(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within two minutes: %s", what)
		}
	}
}

func TestThroughAChild(t *testing.T) {
	t.Parallel()
	n := newNode(t, quick(), "driver 580.1\ncuda 13000\n"+cardA+cardB+"proc 0 4242 4294967296\nenergy 0 77\nrows 1 1 0\n")
	cards, err := n.Inventory(t.Context())
	want := []gpu.Card{
		{
			UUID: "GPU-aaaa", Type: "RTX-3090", Name: "NVIDIA GeForce RTX 3090", MemMiB: 24576, ReservedMiB: 308, PCI: "00000000:3B:00.0",
			NUMA: gpu.Unknown, ComputeMajor: 8, ComputeMinor: 6, PowerLimitW: 350, Driver: "580.1", CUDA: "13.0", MIG: gpu.ModeOff,
		},
		{
			UUID: "GPU-bbbb", Type: "A100-SXM4-80GB", Name: "NVIDIA A100-SXM4-80GB", Index: 1, MemMiB: 81920, ReservedMiB: 868, PCI: "00000000:AF:00.0",
			NUMA: gpu.Unknown, ComputeMajor: 8, ComputeMinor: 6, PowerLimitW: 350, Driver: "580.1", CUDA: "13.0", MIG: gpu.ModeOff,
		},
	}
	if d := cmp.Diff(want, cards); err != nil || d != "" {
		t.Errorf("inventory: %v (-want +got):\n%s", err, d)
	}
	usage, err := n.usage()
	if err != nil || len(usage) != 2 || usage[0].EnergyMJ != 77 || usage[1].EnergyMJ != gpu.Unknown ||
		len(usage[0].Processes) != 1 || usage[0].Processes[0].MemMiB != 4096 {
		t.Errorf("usage: %+v, %v", usage, err)
	}
	health, err := n.Health(t.Context())
	if err != nil || len(health) != 2 || !health[1].RemapPending || health[0].RemapPending {
		t.Errorf("health: %+v, %v", health, err)
	}
	env, err := n.Admit(t.Context(), gpu.Grant{Attempt: "j1-a1", Cards: []gpu.GrantCard{{UUID: "GPU-bbbb", MemMiB: 10}}})
	if err != nil || env[0] != "CUDA_VISIBLE_DEVICES=GPU-bbbb" {
		t.Errorf("admit: %v, %v", env, err)
	}
	if _, err := n.Admit(t.Context(), gpu.Grant{Attempt: "j1-a1", Cards: []gpu.GrantCard{{UUID: "GPU-c", MemMiB: 10}}}); !errors.Is(err, gpu.ErrUnknownCard) {
		t.Errorf("admit on a card of elsewhere: %v", err)
	}
	within(t, "the child's standard output is logged", func() bool { return n.log.count("a library that prints") == 1 })
}

// What is set of a card outlives the child; a driver that refuses says so, and one that
// hangs costs no card its state.
func TestPowerAndClock(t *testing.T) {
	t.Parallel()
	n := newNode(t, quick(), cardA+cardB)
	tunetest.Run(t, n, "GPU-aaaa")
	tuning := func() gpu.Tuning {
		t.Helper()
		got, err := n.Tuning(t.Context(), "GPU-bbbb")
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	want := gpu.Tuning{LimitMilliW: 350_000, DefaultMilliW: 350_000, MinMilliW: 100_000, MaxMilliW: 366_000, ClocksMHz: []int64{2100, 1800, 1200, 600}}
	if d := cmp.Diff(want, tuning()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	kept := func() string {
		data, err := os.ReadFile(n.script + ".power.GPU-bbbb")
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	if err := errors.Join(n.SetPowerLimit(t.Context(), "GPU-bbbb", 250_000), n.LockClock(t.Context(), "GPU-bbbb", 1200)); err != nil || kept() != "250000 1200" {
		t.Errorf("set: %v, %s", err, kept())
	}
	n.write(cardA + cardB + "crash nvmlDeviceGetCount_v2\n")
	_, _ = n.usage()
	n.write(cardA + cardB)
	within(t, "the driver is loaded again", func() bool { _, err := n.usage(); return err == nil })
	if want.LimitMilliW = 250_000; cmp.Diff(want, tuning()) != "" {
		t.Errorf("another child finds %+v", tuning())
	}
	if err := n.LockClock(t.Context(), "GPU-bbbb", 0); err != nil || kept() != "250000 0" {
		t.Errorf("reset: %v, %s", err, kept())
	}
	if err := n.SetPowerLimit(t.Context(), "GPU-cccc", 250_000); err == nil || !strings.Contains(err.Error(), "unknown GPU") {
		t.Errorf("a card of elsewhere: %v", err)
	}
	n.write(cardA + cardB + "fail 1 nvmlDeviceSetPowerManagementLimit 4\nfail -1 nvmlDeviceGetSupportedMemoryClocks 3\n")
	if _, err := n.usage(); err != nil {
		t.Fatal(err)
	}
	if err := n.SetPowerLimit(t.Context(), "GPU-bbbb", 200_000); err == nil || !strings.Contains(err.Error(), "no permission") {
		t.Errorf("without permission: %v", err)
	}
	if got := tuning(); got.ClocksMHz != nil {
		t.Errorf("without a list of clocks: %v", got.ClocksMHz)
	}
	n.write(cardA + cardB + "hang nvmlDeviceSetGpuLockedClocks\n")
	if _, err := n.usage(); err != nil {
		t.Fatal(err)
	}
	if err := n.LockClock(t.Context(), "GPU-bbbb", 600); !errors.Is(err, gpu.ErrSilent) || n.states() != "GPU-aaaa=ok GPU-bbbb=ok" {
		t.Errorf("a driver that hangs: %v, %s", err, n.states())
	}
}

// TestCut: instances are destroyed from the inside out and made at their places; one that the
// driver, or another instance in the same part of the GPU, still needs is not destroyed.
func TestCut(t *testing.T) {
	t.Parallel()
	small, large := "mig 1 MIG-s 10200547328 14 1 1 0 0 1g.10gb\n", "mig 1 MIG-l 42144366592 42 3 3 4 0 3g.40gb\n"
	n := newNode(t, quick(), cardA+cardB+"cut 1\n"+small+large)
	cards, err := n.Inventory(t.Context())
	if err != nil || len(cards) != 2 || len(cards[0].Profiles) != 0 {
		t.Fatal(cards, err)
	}
	profiles := []gpu.Profile{
		{Name: "1g.10gb", MemMiB: 9728, Compute: 1, Size: 1, Starts: []int{0, 1, 2, 3, 4, 5, 6}},
		{Name: "3g.40gb", MemMiB: 40192, Compute: 3, Size: 4, Starts: []int{0, 4}},
		{Name: "7g.80gb", MemMiB: 81152, Compute: 7, Size: 8, Starts: []int{0}},
	}
	if d := cmp.Diff(profiles, cards[1].Profiles); d != "" {
		t.Errorf("profiles (-want +got):\n%s", d)
	}
	if in := cards[1].Instances; len(in) != 2 || in[0].UUID != "MIG-l" || in[0].Start != 4 || in[0].Size != 4 || in[1].Start != 0 || in[1].Size != 1 {
		t.Errorf("instances: %+v", in)
	}
	did := func() string {
		data, _ := os.ReadFile(n.script + ".cuts")
		_ = os.Remove(n.script + ".cuts")
		return strings.TrimSpace(strings.ReplaceAll(string(data), "\n", ", "))
	}
	cut := func(drop []string, make ...gpu.Piece) error {
		return n.Cut(t.Context(), gpu.Cut{UUID: "GPU-bbbb", Drop: drop, Make: make})
	}
	err = cut([]string{"MIG-l"}, gpu.Piece{Profile: "1g.10gb", Start: 4}, gpu.Piece{Profile: "1g.10gb", Start: 5})
	if got := did(); err != nil || got != "destroy-compute 4 0, destroy 4 0, create 1 4, create-compute 1 4, create 1 5, create-compute 1 5," {
		t.Errorf("%v, did %s", err, got)
	}
	for want, err := range map[string]error{
		"unknown GPU: instance MIG-x": cut([]string{"MIG-x"}),
		"has no profile 2g.20gb":      cut(nil, gpu.Piece{Profile: "2g.20gb"}),
		"unknown GPU: GPU-x":          n.Cut(t.Context(), gpu.Cut{UUID: "GPU-x"}),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	n.write(cardA + cardB + "cut 1\n" + small + strings.Replace(small, "MIG-s 10200547328 14 1 1 0 0", "MIG-t 10200547328 14 1 1 0 1", 1))
	if _, err := n.usage(); err != nil {
		t.Fatal(err)
	}
	if err := cut([]string{"MIG-s"}); err == nil || !strings.Contains(err.Error(), "shares GPU instance 0 with another") || did() != "" {
		t.Errorf("one of two in a part: %v", err)
	}
	if err := cut([]string{"MIG-s", "MIG-t"}); err != nil || did() != "destroy-compute 0 0, destroy-compute 0 0, destroy 0 0," {
		t.Errorf("both of a part: %v", err)
	}
	for call, want := range map[string]string{"nvmlComputeInstanceDestroy": "destroy-compute 0 0,", "nvmlGpuInstanceCreateComputeInstance": "create 3 4, create-compute 3 4, destroy 4 0,"} {
		n.write(cardA + cardB + "cut 1\n" + small + "fail -1 " + call + " 19\n")
		if _, err := n.usage(); err != nil {
			t.Fatal(err)
		}
		drop, piece := []string{"MIG-s"}, []gpu.Piece(nil)
		if strings.Contains(call, "Create") {
			drop, piece = nil, []gpu.Piece{{Profile: "3g.40gb", Start: 4}}
		}
		if err := cut(drop, piece...); err == nil || !strings.Contains(err.Error(), call) {
			t.Errorf("%s refused: %v", call, err)
		}
		if got := did(); got != want {
			t.Errorf("%s refused: did %s, want %s", call, got, want)
		}
	}
}

// The child gets three descriptors and the environment it was given.
func TestChildInheritsNothing(t *testing.T) {
	t.Parallel()
	n := newNode(t, quick(), cardA)
	pid := n.pid()
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		to, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, fd.Name()))
		if err != nil {
			continue // closed meanwhile
		}
		if !strings.HasPrefix(to, "pipe:") && !strings.HasPrefix(to, "anon_inode:") && !strings.HasPrefix(to, n.script) && !strings.HasPrefix(to, "/sys/fs/cgroup") {
			t.Errorf("the child holds descriptor %s of %s", fd.Name(), to)
		}
	}
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(string(env), "\x00"); got != len(n.cfg.Env) {
		t.Errorf("the child has %d variables, want %d:\n%q", got, len(n.cfg.Env), env)
	}
	if got, _ := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid)); got != "/" {
		t.Errorf("the child works in %s", got)
	}
}

// pid is that of the child; it asks, so that there is one.
func (n *node) pid() int {
	n.t.Helper()
	if _, err := n.usage(); err != nil {
		n.t.Fatalf("usage: %v", err)
	}
	n.log.mu.Lock()
	defer n.log.mu.Unlock()
	s := n.log.b.String()
	pid := 0
	if _, err := fmt.Sscanf(s[strings.LastIndex(s, " pid=")+1:], "pid=%d", &pid); err != nil {
		n.t.Fatalf("no pid in the log: %v\n%s", err, s)
	}
	return pid
}

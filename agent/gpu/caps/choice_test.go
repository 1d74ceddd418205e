package caps_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/agent/gpu/caps"
	"github.com/berth-scheduler/berth/cluster"
)

func modern() gpu.Card {
	return gpu.Card{UUID: "GPU-a", Type: "H100", MemMiB: 81_559, Driver: "615.43.02", CUDA: "13.4", ComputeMajor: 9}
}

func site() caps.Policy {
	return caps.Policy{
		Allowed: []caps.Mode{caps.Dmem, caps.MIG, caps.MPS, caps.Watch}, Simulated: caps.Sim,
		Scopes: map[caps.Mode]cluster.Scope{caps.Dmem: cluster.ScopeAnyone, caps.MPS: cluster.ScopeSameUser, caps.Watch: cluster.ScopeSameGroup},
	}
}

// limiter keeps the limits it was told, or others.
type limiter struct {
	held  map[string]caps.Limits
	wrong int64 // is added to what is read back
	fail  error
}

func (l *limiter) SetMemoryLimits(_ context.Context, uuid, group string, want caps.Limits) error {
	if l.held == nil {
		l.held = map[string]caps.Limits{}
	}
	l.held[uuid+" "+group] = want
	return l.fail
}

func (l *limiter) MemoryLimits(_ context.Context, uuid, group string) (caps.Limits, error) {
	got := l.held[uuid+" "+group]
	got.Hard += l.wrong
	return got, nil
}

func TestChoose(t *testing.T) {
	full := caps.Host{CgroupV2: true, Dmem: true, MPSControl: "/usr/bin/nvidia-cuda-mps-control", Root: true, Limiter: &limiter{}}
	for _, tc := range []struct {
		name  string
		card  func(*gpu.Card)
		host  func(*caps.Host)
		site  func(*caps.Policy)
		mode  caps.Mode
		scope cluster.Scope
		why   string
	}{
		{"everything is there", nil, nil, nil, caps.Dmem, cluster.ScopeAnyone, ""},
		{"an older driver", func(c *gpu.Card) { c.Driver = "570.86.15" }, nil, nil, caps.MPS, cluster.ScopeSameUser, "dmem: driver 570.86.15 is older than 615; mig: the card is not cut into instances"},
		{"a driver without a version", func(c *gpu.Card) { c.Driver = "" }, nil, nil, caps.MPS, cluster.ScopeSameUser, `dmem: the driver's version "" is not known`},
		{"control groups of version 1", nil, func(h *caps.Host) { h.CgroupV2 = false }, nil, caps.MPS, cluster.ScopeSameUser, "dmem: this node has control groups of version 1"},
		{"an older kernel", nil, func(h *caps.Host) { h.Dmem = false }, nil, caps.MPS, cluster.ScopeSameUser, "dmem controller (6.14 or later)"},
		{"an older kernel with the driver's own entry", nil, func(h *caps.Host) { h.Dmem, h.MiscNVIDIA = false, true }, nil, caps.Dmem, cluster.ScopeAnyone, ""},
		{"no binding for limits", nil, func(h *caps.Host) { h.Limiter = nil }, nil, caps.MPS, cluster.ScopeSameUser, "cannot set and read back"},
		{"no MPS", func(c *gpu.Card) { c.Driver = "570.1" }, func(h *caps.Host) { h.MPSControl = "" }, nil, caps.Watch, cluster.ScopeSameGroup, "mps: nvidia-cuda-mps-control is not installed"},
		{"not root", func(c *gpu.Card) { c.Driver = "570.1" }, func(h *caps.Host) { h.Root = false }, nil, caps.Watch, cluster.ScopeSameGroup, "mps: the agent does not run as root"},
		{"an old CUDA", func(c *gpu.Card) { c.Driver, c.CUDA = "470.1", "11.4" }, nil, nil, caps.Watch, cluster.ScopeSameGroup, "mps: CUDA 11.4 is older than 11.5"},
		{"CUDA 11.10 is newer than 11.5", func(c *gpu.Card) { c.Driver, c.CUDA = "470.1", "11.10" }, nil, nil, caps.MPS, cluster.ScopeSameUser, ""},
		{"an old card", func(c *gpu.Card) { c.Driver, c.ComputeMajor, c.ComputeMinor = "470.1", 6, 1 }, nil, nil, caps.Watch, cluster.ScopeSameGroup, "mps: compute capability 6.1 is less than 7.0"},
		{"an instance", func(c *gpu.Card) { c.UUID = "MIG-1" }, nil, nil, caps.MIG, cluster.ScopeNever, "dmem: instances have memory of their own"},
		{"an instance, and the site wants none", func(c *gpu.Card) { c.UUID = "MIG-1" }, nil, func(p *caps.Policy) { p.Allowed = []caps.Mode{caps.Dmem, caps.MPS} }, caps.None, cluster.ScopeAnyone, "mig: gpus.caps does not allow it; mps: an instance is not shared further"},
		{"the site wants the watch alone", nil, nil, func(p *caps.Policy) { p.Allowed = []caps.Mode{caps.Watch} }, caps.Watch, cluster.ScopeSameGroup, "dmem: gpus.caps does not allow it"},
		{"the site wants nothing", nil, nil, func(p *caps.Policy) { p.Allowed = nil }, caps.None, cluster.ScopeAnyone, "watch: gpus.caps does not allow it"},
		{"a mode without a scope is not shared", nil, nil, func(p *caps.Policy) { p.Scopes = nil }, caps.Dmem, cluster.ScopeNever, ""},
		{"simulated", func(c *gpu.Card) { c.Simulated = true }, nil, nil, caps.Sim, cluster.ScopeAnyone, ""},
		{"simulated, unenforced", func(c *gpu.Card) { c.Simulated = true }, nil, func(p *caps.Policy) { p.Simulated = caps.Watch }, caps.Watch, cluster.ScopeSameGroup, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			card, host, policy := modern(), full, site()
			if tc.card != nil {
				tc.card(&card)
			}
			if tc.host != nil {
				tc.host(&host)
			}
			if tc.site != nil {
				tc.site(&policy)
			}
			got := (&caps.Chooser{Policy: policy, Host: host}).Choose(card)
			if got.Mode != tc.mode || got.Scope != tc.scope || !strings.Contains(got.String(), tc.why) {
				t.Errorf("got %s shared by %s, %q; want %s by %s, %q", got.Mode, got.Scope, got, tc.mode, tc.scope, tc.why)
			}
		})
	}
}

// TestReadHost reads recorded trees of a node's control groups and programs.
func TestReadHost(t *testing.T) {
	for _, tc := range []struct {
		name  string
		files map[string]string
		want  caps.Host
	}{
		{"version 1", map[string]string{"sys/fs/cgroup/memory/memory.limit_in_bytes": "1"}, caps.Host{}},
		{"version 2, Linux 6.12", map[string]string{"sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory hugetlb pids rdma misc\n"}, caps.Host{CgroupV2: true}},
		{"version 2, Linux 6.14", map[string]string{"sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory hugetlb pids rdma misc dmem\n"}, caps.Host{CgroupV2: true, Dmem: true}},
		{"the driver's entry", map[string]string{"sys/fs/cgroup/cgroup.controllers": "cpu misc\n", "sys/fs/cgroup/misc.capacity": "sev 0\nnvidia.gpu0 81559\n"}, caps.Host{CgroupV2: true, MiscNVIDIA: true}},
		{"somebody else's entry", map[string]string{"sys/fs/cgroup/cgroup.controllers": "cpu misc\n", "sys/fs/cgroup/misc.capacity": "sev 509\n"}, caps.Host{CgroupV2: true}},
		{"MPS", map[string]string{"usr/bin/nvidia-cuda-mps-control": "#!x"}, caps.Host{MPSControl: "usr/bin/nvidia-cuda-mps-control"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root := t.TempDir()
			for name, text := range tc.files {
				path := filepath.Join(root, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			tc.want.Root = os.Geteuid() == 0
			if tc.want.MPSControl != "" {
				tc.want.MPSControl = filepath.Join(root, tc.want.MPSControl)
			}
			if d := cmp.Diff(tc.want, caps.ReadHost(root)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestSold(t *testing.T) {
	cut := modern()
	cut.UUID, cut.Type, cut.Name, cut.MIG, cut.NVLinkGroup = "GPU-b", "A100-SXM4-40GB", "NVIDIA A100", gpu.ModeOn, 1
	cut.Instances = []gpu.Instance{{UUID: "MIG-1", Profile: "1g.5gb", MemMiB: 4864}, {UUID: "MIG-2", MemMiB: 20_096}, {UUID: "", MemMiB: 1}}
	empty := cut
	empty.UUID, empty.Instances = "GPU-c", nil
	off := modern()
	off.MIG = gpu.ModeOff
	type sold struct {
		UUID, Type, Name string
		MemMiB           int64
	}
	var got []sold
	for _, c := range caps.Sold([]gpu.Card{off, cut, empty}) {
		got = append(got, sold{c.UUID, c.Type, c.Name, c.MemMiB})
		if c.Instances != nil || c.NVLinkGroup != 0 {
			t.Errorf("%s keeps what is the whole card's", c.UUID)
		}
	}
	want := []sold{
		{"GPU-a", "H100", "", 81_559},
		{"MIG-1", "A100-SXM4-40GB.1g.5gb", "NVIDIA A100 MIG 1g.5gb", 4864},
		{"MIG-2", "A100-SXM4-40GB.mig.20gb", "NVIDIA A100 MIG mig.20gb", 20_096},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestLimitGroup(t *testing.T) {
	for _, tc := range []struct {
		name  string
		l     limiter
		group string
		want  caps.Limits
		err   string
	}{
		{"held", limiter{}, "/berth/j1-a1", caps.Limits{Soft: 900, Hard: 1000}, ""},
		{"read back otherwise", limiter{wrong: 24}, "/berth/j1-a1", caps.Limits{Soft: 1000, Hard: 1000}, "holds /berth/j1-a1 to 1000 and 1024 MiB, it was told 1000 and 1000"},
		{"refused", limiter{fail: errors.New("not supported")}, "/berth/j1-a1", caps.Limits{Soft: 1000, Hard: 1000}, "set 1000 MiB on GPU GPU-a for /berth/j1-a1: not supported"},
		{"no group", limiter{}, "", caps.Limits{Soft: 1000, Hard: 1000}, "control group"},
		{"no limit", limiter{}, "/g", caps.Limits{}, "0 MiB"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := caps.LimitGroup(t.Context(), &tc.l, "GPU-a", tc.group, tc.want)
			switch {
			case tc.err == "" && err != nil:
				t.Error(err)
			case tc.err != "" && (!errors.Is(err, caps.ErrNotHeld) || !strings.Contains(err.Error(), tc.err)):
				t.Errorf("error %v, want %q", err, tc.err)
			}
		})
	}
	if d := cmp.Diff([]string{"NVIDIA_GPU_MEMORY_REQUEST=4096", "NVIDIA_GPU_MEMORY_LIMIT=4096"}, caps.DmemEnv(4096)); d != "" {
		t.Error(d)
	}
	for key, want := range map[string]bool{"NVIDIA_GPU_MEMORY_LIMIT": true, "CUDA_MPS_PIPE_DIRECTORY": true, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": true, "PATH": false, "NVIDIA_VISIBLE_DEVICES": false} {
		if caps.Reserved(key) != want {
			t.Errorf("Reserved(%s) = %t", key, !want)
		}
	}
}

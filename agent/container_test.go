package agent_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/agent"
	"github.com/berth-scheduler/berth/agent/agenttest"
	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/agent/launcher"
	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// TestNetworksOfANode: a job's choice, the node's default, and a refusal that
// says who decided.
func TestNetworksOfANode(t *testing.T) {
	both := []cluster.Network{cluster.NetNone, cluster.NetHost}
	for name, c := range map[string]struct {
		node  launcher.Networks
		asked string
		want  cluster.Network
	}{
		"nothing said":          {launcher.Networks{}, "", cluster.NetHost},
		"less than given":       {launcher.Networks{}, "none", cluster.NetNone},
		"a node without":        {launcher.Networks{Default: cluster.NetNone}, "", cluster.NetNone},
		"refused there":         {launcher.Networks{Default: cluster.NetNone}, "host", ""},
		"allowed there":         {launcher.Networks{Default: cluster.NetNone, Allowed: both}, "host", cluster.NetHost},
		"a node that wants all": {launcher.Networks{Allowed: both[1:]}, "none", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRigWith(t, func(cfg *agent.Config) { cfg.Networks = c.node })
			as := assignment(1)
			if c.asked != "" {
				as.Container = &nodev1.Container{Network: c.asked}
			}
			r.leader.Assign(as)
			if c.want == "" {
				got := r.reported(1, failed)
				if !strings.Contains(got.Detail, "NETWORK: "+c.asked+" is not allowed on this node") || !strings.Contains(got.Detail, "containers.networks in its agent.yaml") {
					t.Errorf("refused with %q", got.Detail)
				}
				return
			}
			r.reported(1, running)
			if got := r.rt.Launch(id(1)).Network; got != c.want {
				t.Errorf("network %q, want %q", got, c.want)
			}
		})
	}
}

// TestWhatAJobAsksOfItsContainer reaches the runtime, and is not taken for the
// agent's own.
func TestWhatAJobAsksOfItsContainer(t *testing.T) {
	r := newRig(t)
	as := assignment(1)
	as.Truncate = true
	as.Container = &nodev1.Container{
		ReadOnly: true, TmpMib: 8, ShmMib: 16,
		Mounts: []*nodev1.Mount{{Source: []byte("/data"), Target: []byte("/mnt"), ReadOnly: true}},
	}
	r.leader.Assign(as)
	r.reported(1, running)
	l := r.rt.Launch(id(1))
	if d := cmp.Diff([]launch.Mount{{Source: "/data", Target: "/mnt", ReadOnly: true}}, l.Mounts); d != "" {
		t.Error(d)
	}
	if !l.Truncate || !l.ReadOnlyRoot || l.TmpBytes != 8<<20 || l.ShmBytes != 16<<20 {
		t.Errorf("launched %+v", l)
	}
}

// TestTemporaryFilesOfAnImage: a directory of the submitting host is not the
// image's, unless the job mounts it.
func TestTemporaryFilesOfAnImage(t *testing.T) {
	for name, c := range map[string]struct {
		tmpdir, image string
		kept          bool
	}{
		"of the host":     {"/run/user/1000/tmp", "i", false},
		"beside a mount":  {"/mnt2", "i", false},
		"in a mount":      {"/mnt/tmp", "i", true},
		"the image's own": {"/tmp/", "i", true},
		"in memory":       {"/dev/shm/x", "i", true},
		"below its tmp":   {"/tmp/alice", "i", false}, // it begins empty
		"a host job's":    {"/run/user/1000/tmp", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			rt := agenttest.New()
			r := newRigWith(t, func(cfg *agent.Config) { cfg.Host, cfg.Images = rt, rt })
			r.rt = rt
			as := assignment(1)
			as.Image = c.image
			as.Env = [][]byte{[]byte("TMPDIR=" + c.tmpdir)}
			if c.image != "" {
				as.Container = &nodev1.Container{Mounts: []*nodev1.Mount{{Source: []byte("/data"), Target: []byte("/mnt")}}}
			}
			r.leader.Assign(as)
			r.reported(1, running)
			if got := slices.Contains(r.rt.Launch(id(1)).Env, "TMPDIR="+c.tmpdir); got != c.kept {
				t.Errorf("TMPDIR=%s kept: %v, want %v", c.tmpdir, got, c.kept)
			}
		})
	}
}

package agent_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/agent"
	"github.com/berth-scheduler/berth/agent/agenttest"
	"github.com/berth-scheduler/berth/agent/datasets"
	"github.com/berth-scheduler/berth/agent/launch"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// TestDataSetsOfANode: the leader is told of them, and of one that comes, in the same
// session; a job finds the paths of those that it names and the node has, one with an image
// as mounts that it cannot write to, unless it mounts something else there.
func TestDataSetsOfANode(t *testing.T) {
	dir := t.TempDir()
	coco := filepath.Join(dir, "coco")
	if err := os.Mkdir(coco, 0o755); err != nil {
		t.Fatal(err)
	}
	sets := datasets.New([]string{dir + "/*"})
	sets.Look()
	rt := agenttest.New()
	r := newRigWith(t, func(cfg *agent.Config) {
		cfg.Host, cfg.Images, cfg.Data, cfg.Features = rt, rt, sets, []string{"ib"}
	})
	r.rt = rt
	r.eventually("the leader is told", func() bool {
		return slices.Equal(r.leader.Hello().GetFeatures(), []string{"data=coco", "ib"})
	})
	if err := os.Mkdir(filepath.Join(dir, "imagenet-1k"), 0o755); err != nil {
		t.Fatal(err)
	}
	sets.Look()
	r.eventually("the leader is told of the second", func() bool {
		return slices.Contains(r.leader.Hello().GetFeatures(), "data=imagenet-1k")
	})
	for i, c := range []struct {
		image string
		mount string
		want  []launch.Mount
	}{
		{"", "", nil},
		{"i", "", []launch.Mount{{Source: coco, Target: coco, ReadOnly: true, Own: true}}},
		{"i", coco, []launch.Mount{{Source: "/mine", Target: coco}}},
	} {
		job := uint64(i + 1)
		as := assignment(job)
		as.Image, as.Data = c.image, []string{"coco", "elsewhere"}
		if c.mount != "" {
			as.Container = &nodev1.Container{Mounts: []*nodev1.Mount{{Source: []byte("/mine"), Target: []byte(c.mount)}}}
		}
		r.leader.Assign(as)
		r.reported(job, running)
		l := r.rt.Launch(id(job))
		var env []string
		for _, line := range l.Env {
			if strings.HasPrefix(line, "BERTH_DATA_") {
				env = append(env, line)
			}
		}
		if d := cmp.Diff([]string{"BERTH_DATA_COCO=" + coco}, env); d != "" {
			t.Errorf("job %d: environment (-want +got):\n%s", job, d)
		}
		if d := cmp.Diff(c.want, l.Mounts); d != "" {
			t.Errorf("job %d: mounts (-want +got):\n%s", job, d)
		}
	}
}

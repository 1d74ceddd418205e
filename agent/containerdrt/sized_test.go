package containerdrt

import (
	"errors"
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/agent/launch"
)

func TestSizesOfAJob(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	node := Policy{TmpBytes: 256 * mib, ShmBytes: 64 * mib}.withDefaults()
	for _, c := range []struct {
		name          string
		tmp, shm, mem int64
		want          string
	}{
		{"nothing", 0, 0, 0, ""},
		{"less", mib, mib, 0, ""},
		{"as the node gives", 256 * mib, 64 * mib, 0, ""},
		{"more, of its own memory", 1024 * mib, 1024 * mib, 1024 * mib, ""},
		{"more than its memory", 1025 * mib, 0, 1024 * mib, "/tmp of 1025 MiB: this node gives the job 1 to 1024 MiB"},
		{"more without a cap", 0, 65 * mib, 0, "/dev/shm of 65 MiB: this node gives the job 1 to 64 MiB, its memory cap or what containers.shm_mib in its agent.yaml says"},
		{"negative", -mib, 0, 0, "/tmp of -1 MiB"},
	} {
		got, err := node.sized(&launch.Launch{TmpBytes: c.tmp, ShmBytes: c.shm, MemBytes: c.mem})
		le, _ := errors.AsType[*launch.Error](err)
		switch {
		case c.want == "" && err != nil, c.want != "" && (le == nil || le.Reason != "SIZE" || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		case c.want == "" && c.tmp > 0 && (got.TmpBytes != c.tmp || got.shmBytes(c.mem) != c.shm):
			t.Errorf("%s: got %+v", c.name, got)
		}
	}
	if node.TmpBytes != 256*mib {
		t.Error("a job changed the node's policy")
	}
}

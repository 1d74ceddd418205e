package jobcmd_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

// asked runs a submit and returns the spec that a coordinator would take on.
func asked(t *testing.T, args ...string) (*cluster.Spec, string) {
	t.Helper()
	w, f := clitest.NewWorld(t), clitest.NewFake()
	w.Serve("/a", f)
	if code := w.Run(append([]string{"submit"}, args...)...); code != 0 {
		t.Fatalf("submit %q: exit code %d: %s", args, code, w.Errs.String())
	}
	s, err := apiconv.SpecFromAPI(f.Requests[0].GetJobs()[0])
	if err != nil {
		t.Fatal(err)
	}
	return s, w.Errs.String()
}

func TestContainerFlagsAndFile(t *testing.T) {
	t.Parallel()
	want := cluster.Container{
		Network: cluster.NetNone, ReadOnly: true, TmpMiB: 512, ShmMiB: 2048,
		Mounts: []cluster.Mount{{Source: "/data", Target: "/data"}, {Source: "/scratch/a", Target: "/mnt", ReadOnly: true}},
	}
	flags, _ := asked(t, "--image", "i", "--mount", "/data", "--mount", "/scratch/a:/mnt:ro", "--read-only", "--tmp", "512M", "--shm", "2G", "--net", "none",
		"--time", "2h", "--signal", "B:USR1@90", "--open-mode", "truncate", "--", "true")
	name := filepath.Join(t.TempDir(), "job.yaml")
	const text = "command: [\"true\"]\nimage: i\nmounts: [\"/data\", \"/scratch/a:/mnt:ro\"]\nread_only: true\ntmp: 512M\nshm: 2G\nnet: none\ntime: 2h\nsignal: B:USR1@90\nopen_mode: truncate\n"
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	file, _ := asked(t, name)
	for from, s := range map[string]*cluster.Spec{"flags": flags, "file": file} {
		if d := cmp.Diff(want, s.Container); d != "" {
			t.Errorf("%s: %s", from, d)
		}
		if w := (cluster.Warning{Signal: "USR1", Before: 90 * time.Second, First: true}); s.Warning != w || !s.Truncate {
			t.Errorf("%s: warning %v, truncate %v", from, s.Warning, s.Truncate)
		}
	}
}

func TestBadContainers(t *testing.T) {
	t.Parallel()
	for want, args := range map[string]string{
		"--mount: mount \"data:/x\": the source must be an absolute path": "--image i --mount data:/x",
		"is under /proc":                 "--image i --mount /proc/1/root:/x",
		"mount and image":                "--mount /data",
		"read_only and image":            "--read-only",
		"tmp and image":                  "--tmp 1G",
		"network bridge":                 "--net bridge",
		"is named twice":                 "--image i --mount /a:/x --mount /b:/x",
		"shm and mem":                    "--mem 1G --shm 2G",
		"is not one of USR1":             "--signal KILL@60",
		"is not a time before the limit": "--signal USR1@soon",
		"signal and time":                "--time 1m --signal USR1@60",
		"want append or truncate":        "--open-mode rotate",
	} {
		w := clitest.NewWorld(t)
		w.Serve("/a", clitest.NewFake())
		code := w.Run(append(append([]string{"submit"}, strings.Fields(args)...), "--", "true")...)
		if code != console.ExitUsage || !strings.Contains(w.Errs.String(), strings.ReplaceAll(want, "network bridge", `want host or none`)) {
			t.Errorf("%s: exit code %d: %s, want %q", args, code, w.Errs.String(), want)
		}
	}
}

func TestScriptsKeepEachMount(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "job.sh")
	const text = "#!/bin/sh\n#BERTH --image=i\n#BERTH --mount=/data\n#BERTH --mount=/home:/home:ro\n#SBATCH --time=10:00\n#SBATCH --signal=USR2@30\n#SBATCH --deadline=23:59\ntrue\n"
	if err := os.WriteFile(name, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	s, said := asked(t, name)
	if len(s.Container.Mounts) != 2 || s.Warning.String() != "USR2@30" || s.Deadline == 0 {
		t.Errorf("mounts %v, warning %v, deadline %v", s.Container.Mounts, s.Warning, s.Deadline)
	}
	if strings.Contains(said, "overridden") {
		t.Errorf("says %s", said)
	}
}

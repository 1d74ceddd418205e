package importcmd_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/golden"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

// slurmSite are the files of a site, as the package slurmconf tests them.
func slurmSite(args ...string) []string {
	const dir = "../../slurmconf/testdata/hpc/"
	return append([]string{"import", "slurm", "--conf", dir + "slurm.conf"}, args...)
}

func TestImportGolden(t *testing.T) {
	t.Parallel()
	const dir = "../../slurmconf/testdata/"
	for name, args := range map[string][]string{
		"import-slurm":           slurmSite("--topology", dir+"hpc/topology.conf", "--dump", dir+"hpc/sacctmgr.dump", "--qos", dir+"hpc/qos.txt"),
		"import-slurm-small":     {"import", "slurm", "--conf", dir + "small/slurm.conf", "--all"},
		"import-slurm-json":      {"import", "slurm", "--conf", dir + "small/slurm.conf", "-o", "json"},
		"import-slurm-history":   {"import", "slurm", "--conf", dir + "small/slurm.conf", "--sacct", dir + "hpc/jobs.txt"},
		"import-slurm-script":    slurmSite("--script", "-", "--partition", "gpu", "--partition", "old"),
		"import-slurm-none":      slurmSite("--partition", "nope"),
		"import-slurm-missing":   {"import", "slurm", "--conf", "/no/such/slurm.conf"},
		"import-slurm-other":     {"import", "slurm", "--conf", dir + "hpc/sacctmgr.dump"},
		"import-slurm-conflict":  slurmSite("--apply", "-o", "json"),
		"import-slurm-argument":  slurmSite("slurm.conf"),
		"import-slurm-directory": {"import", "slurm", "--conf", dir},
		"help-import":            {"import", "--help"},
		"help-import-slurm":      {"import", "slurm", "--help"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			golden.Check(t, name, clitest.NewWorld(t).Transcript(args...))
		})
	}
}

// empty is a server that no agent has joined yet.
type empty struct{ *clitest.Parted }

func (empty) DrainNode(_ context.Context, r *apiv1.DrainNodeRequest) (*apiv1.DrainNodeResponse, error) {
	return nil, apiconv.Status(cluster.Errorf(cluster.CodeNotFound, "node %s is not known", r.GetId())).Err()
}

// TestImportApply: what --apply does is what the script says, and a drain of a
// node that has not joined keeps nothing else from being done.
func TestImportApply(t *testing.T) {
	t.Parallel()
	w := clitest.NewWorld(t)
	p := clitest.NewParted()
	w.ServeWith("/a", p.Fake, empty{p})
	if code := w.Run(slurmSite("--apply", "--timeout", "30s")...); code != 0 {
		t.Fatalf("exit code %d: %s", code, w.Errs.String())
	}
	out := w.Out.String()
	if n := strings.Count(out, "\npartition debug: up"); n != 4 { // the fake answers with its first partition
		t.Errorf("%d partitions were set:\n%s", n, out)
	}
	if got := p.Set.GetName(); got != "old" || p.Set.GetNodes() != "pascal1" || !p.Set.GetDown() {
		t.Errorf("last set: %v", p.Set)
	}
	if p.Set.Default != nil {
		t.Error("a flag of one command stayed for the next")
	}
	if errs := w.Errs.String(); strings.Count(errs, "run it again once the node has joined: berth node drain") != 3 || !strings.Contains(errs, "3 of 7 commands must be run again later") {
		t.Errorf("standard error: %s", errs)
	}
}

// TestImportHistory: what is sent of a history is what Slurm measured, in the
// cluster's terms.
func TestImportHistory(t *testing.T) {
	t.Parallel()
	const dir = "../../slurmconf/testdata/"
	for name, args := range map[string][]string{
		"import-history":       nil,
		"import-history-typed": {"--gpu-type", "A100-SXM4-80GB"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := clitest.NewWorld(t)
			p := clitest.NewParted()
			w.ServeParted("/a", p)
			golden.Check(t, name, w.Transcript(append([]string{"import", "slurm", "--conf", dir + "small/slurm.conf", "--sacct", dir + "hpc/jobs.txt", "--apply"}, args...)...))
			want := &apiv1.PastRun{Uid: 1000, Name: "train.sh", Gpus: 1, GpuType: "A100-SXM4-80GB", Seconds: 3720, HostMemMib: 7815, CpuMilli: 1935, GpuMemMib: 11280, GpuUtilMilli: 710}
			if d := cmp.Diff(want, p.Imported.GetRuns()[0], protocmp.Transform()); d != "" {
				t.Error(d)
			}
		})
	}
	w := clitest.NewWorld(t)
	if code := w.Run("import", "slurm", "--conf", dir+"small/slurm.conf", "--sacct", dir+"small/slurm.conf"); code != console.ExitFailed || !strings.Contains(w.Errs.String(), "write it with: sacct -a -P") {
		t.Errorf("exit code %d: %s", code, w.Errs.String())
	}
}

// TestImportScript: the script is one that a shell reads, and it says what was
// shown.
func TestImportScript(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "setup.sh")
	w := clitest.NewWorld(t)
	if code := w.Run(slurmSite("--script", file)...); code != 0 {
		t.Fatalf("exit code %d: %s", code, w.Errs.String())
	}
	if out, err := exec.Command("sh", "-n", file).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, "berth ") && !strings.Contains(w.Out.String(), "  "+line) {
			t.Errorf("not shown: %s", line)
		}
	}
}

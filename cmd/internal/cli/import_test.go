package cli

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/cluster"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// slurmSite are the files of a site, as the package slurmconf tests them.
func slurmSite(args ...string) []string {
	const dir = "../slurmconf/testdata/hpc/"
	return append([]string{"import", "slurm", "--conf", dir + "slurm.conf"}, args...)
}

func TestImportGolden(t *testing.T) {
	t.Parallel()
	const dir = "../slurmconf/testdata/"
	for name, args := range map[string][]string{
		"import-slurm":           slurmSite("--topology", dir+"hpc/topology.conf", "--dump", dir+"hpc/sacctmgr.dump", "--qos", dir+"hpc/qos.txt"),
		"import-slurm-small":     {"import", "slurm", "--conf", dir + "small/slurm.conf", "--all"},
		"import-slurm-json":      {"import", "slurm", "--conf", dir + "small/slurm.conf", "-o", "json"},
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
			golden(t, name, newWorld(t).transcript(args...))
		})
	}
}

// empty is a server that no agent has joined yet.
type empty struct{ *parted }

func (empty) DrainNode(_ context.Context, r *apiv1.DrainNodeRequest) (*apiv1.DrainNodeResponse, error) {
	return nil, conv.Status(cluster.Errorf(cluster.CodeNotFound, "node %s is not known", r.GetId())).Err()
}

// TestImportApply: what --apply does is what the script says, and a drain of a
// node that has not joined keeps nothing else from being done.
func TestImportApply(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := newParted()
	w.serveWith("/a", p.fakeServer, empty{p})
	if code := w.run(slurmSite("--apply", "--timeout", "30s")...); code != 0 {
		t.Fatalf("exit code %d: %s", code, w.errs.String())
	}
	out := w.out.String()
	if n := strings.Count(out, "\npartition debug: up"); n != 4 { // the fake answers with its first partition
		t.Errorf("%d partitions were set:\n%s", n, out)
	}
	if got := p.set.GetName(); got != "old" || p.set.GetNodes() != "pascal1" || !p.set.GetDown() {
		t.Errorf("last set: %v", p.set)
	}
	if p.set.Default != nil {
		t.Error("a flag of one command stayed for the next")
	}
	if errs := w.errs.String(); strings.Count(errs, "run it again once the node has joined: berth node drain") != 3 || !strings.Contains(errs, "3 of 7 commands must be run again later") {
		t.Errorf("standard error: %s", errs)
	}
}

// TestImportScript: the script is one that a shell reads, and it says what was
// shown.
func TestImportScript(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "setup.sh")
	w := newWorld(t)
	if code := w.run(slurmSite("--script", file)...); code != 0 {
		t.Fatalf("exit code %d: %s", code, w.errs.String())
	}
	if out, err := exec.Command("sh", "-n", file).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, "berth ") && !strings.Contains(w.out.String(), "  "+line) {
			t.Errorf("not shown: %s", line)
		}
	}
}

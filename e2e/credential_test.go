package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// askingScript asks the cluster for something with the job's credential and without,
// keeps a copy of it, and goes on until it is told to end.
const askingScript = `#!/bin/bash
echo "$BERTH_CREDENTIAL" >path
cp "$BERTH_CREDENTIAL" copy
sbatch --parsable -Q -o /dev/null --wrap 'exit 5' >with 2>&1; echo $? >>with
srun -n1 sbatch --parsable -Q -o /dev/null --wrap 'exit 5' >step 2>&1; echo $? >>step
env -u BERTH_CREDENTIAL sbatch --parsable -Q -o /dev/null --wrap true >without 2>&1; echo $? >>without
env -u BERTH_CREDENTIAL squeue -h -o %A >list 2>&1; echo $? >>list
touch ready
until [ -e go ]; do sleep 0.1; done
sbatch --parsable -Q -o /dev/null --wrap 'exit 5' >again 2>&1; echo $? >>again
`

// TestJobsAskWithTheirCredential: a job that submits another is believed for the
// credential that it was given, in its steps too. Without it nobody is on that node,
// the job's own user included, and its copy is worth nothing once the job is over.
func TestJobsAskWithTheirCredential(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--nodes", "1x1xT4")
	dir := openDir(t)
	c.eventually("jobs to be given a credential", func() bool { // each coordinator must know of it first
		return c.runAs(alice, "submit", "--wait", "-o", dir+"/given", "--wrap", `[ -n "$BERTH_CREDENTIAL" ]`).code == 0
	})
	write(t, filepath.Join(dir, "ask.sh"), askingScript)
	r := c.runAs(alice, "sbatch", "--parsable", "-Q", "--mem", "200M", "-D", dir, "-o", dir+"/out", filepath.Join(dir, "ask.sh"))
	if r.code != 0 {
		t.Fatalf("sbatch: %d %s", r.code, r.stderr)
	}
	id := parseID(t, r.stdout)
	ready := func() bool { _, err := os.Stat(filepath.Join(dir, "ready")); return err == nil }
	c.eventually("the job to have asked", ready)
	for _, name := range []string{"with", "step"} {
		c.submittedByAJob(filepath.Join(dir, name))
	}
	if said := lines(filepath.Join(dir, "without")); len(said) < 2 || said[len(said)-1] == "0" || !strings.Contains(strings.Join(said, " "), "$BERTH_CREDENTIAL") {
		t.Errorf("without it: %q", said)
	}
	if said := lines(filepath.Join(dir, "list")); !slices.Contains(said, fmt.Sprint(id)) || said[len(said)-1] != "0" {
		t.Errorf("a list without it: %q", said)
	}
	path := strings.TrimSpace(read(t, filepath.Join(dir, "path")))
	st, err := os.Stat(path)
	if err != nil || st.Mode() != 0o400 || st.Sys().(*syscall.Stat_t).Uid != alice {
		t.Errorf("%s: %v, %v; want alice's, with mode 0400", path, st, err)
	}
	// The next agent takes the job over with its credential.
	c.kill(c.daemonPID("agent", "n1"))
	c.restart("agent", "n1")
	c.eventually("the agent to be back", func() bool { return c.runAs(alice, "exec", "-n", fmt.Sprint(id), "--", "true").code == 0 })
	write(t, filepath.Join(dir, "go"), "")
	c.await(id, "COMPLETED")
	c.submittedByAJob(filepath.Join(dir, "again"))
	c.eventually("the credential to be gone", func() bool { _, err := os.Stat(path); return errors.Is(err, fs.ErrNotExist) })
	// Another job of hers is there, so that the node may speak for her at all.
	if r = c.runAs(alice, "submit", "--wait", "-o", dir+"/later", "--wrap", fmt.Sprintf("BERTH_CREDENTIAL=%s/copy sbatch -Q --wrap true", dir)); r.code == 0 {
		t.Errorf("the credential of a job that is over was taken: %s", read(t, dir+"/later"))
	}
	if said := read(t, dir+"/later"); !strings.Contains(said, "$BERTH_CREDENTIAL") {
		t.Errorf("with the credential of a job that is over: %s", said)
	}
}

// submittedByAJob holds what sbatch said in a job, with its exit code behind it, to
// be of a job that was taken and ends with 5.
func (c *cluster) submittedByAJob(file string) {
	c.t.Helper()
	said := lines(file)
	if len(said) != 2 || said[1] != "0" {
		c.t.Fatalf("%s: %q", file, said)
	}
	if j := c.await(parseID(c.t, said[0]), "COMPLETED", "FAILED"); j.code() != 5 {
		c.t.Errorf("%s: the job of the job ended %s with %d, want its own 5", file, j.State, j.code())
	}
}

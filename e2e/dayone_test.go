package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// slurmLinks is a folder with the links that make install makes, by which the
// binary is Slurm's commands, and the binary itself.
func slurmLinks(t *testing.T) string {
	t.Helper()
	dir := scriptDir(t)
	_, rest, _ := strings.Cut(read(t, "../Makefile"), "\nLINKS    := ")
	names, _, _ := strings.Cut(rest, "\n")
	for _, name := range append(strings.Fields(names), "berth") {
		if err := os.Symlink(appletOf(berth, name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestDayOne runs what users and administrators do on the first day and in the
// first week: the administrators' part here, the users' as a script of theirs.
func TestDayOne(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--coordinators", "3", "--nodes", "2x2xT4")
	c.eventually("both nodes", func() bool { return strings.Count(c.run("node", "list", "-o", "name"), "\n") == 2 })
	importSite(t, c)
	users := make(chan *bytes.Buffer, 1)
	go func() { users <- runUsers(t, c) }()
	checkSteps(t, <-users)
	adminsWeek(t, c)
}

// importSite takes over a slurm.conf for the cluster's nodes.
func importSite(t *testing.T, c *cluster) {
	t.Helper()
	dir := scriptDir(t)
	write(t, filepath.Join(dir, "slurm.conf"), `ClusterName=old
SlurmctldHost=head
NodeName=n[1-2] CPUs=2 RealMemory=4000 Gres=gpu:t4:2
PartitionName=gpu Nodes=n[1-2] Default=YES MaxTime=1-0
PartitionName=debug Nodes=n1 MaxTime=30
`)
	write(t, filepath.Join(dir, "gres.conf"), "Name=gpu Type=t4 File=/dev/nvidia[0-1]\n")
	write(t, filepath.Join(dir, "jobs.txt"), "JobID|JobName|UID|State|ElapsedRaw|AllocTRES\n1|old|4321|COMPLETED|60|gres/gpu=1\n")
	r := c.runAs(0, "import", "slurm", "--conf", filepath.Join(dir, "slurm.conf"), "--sacct", filepath.Join(dir, "jobs.txt"), "--apply")
	if r.code != 0 || !strings.Contains(r.stdout, "partition gpu: up, the default") || !strings.Contains(r.stdout, "1 run of 1 job learned") {
		t.Fatalf("import: exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
}

// runUsers runs the users' script as one of them.
func runUsers(t *testing.T, c *cluster) *bytes.Buffer {
	const uid = 4321
	home, links := scriptDir(t), slurmLinks(t)
	text, err := os.ReadFile("testdata/dayone.sh")
	if err == nil {
		err = os.WriteFile(filepath.Join(home, "dayone.sh"), text, 0o755)
	}
	if err != nil {
		t.Error(err)
		return &bytes.Buffer{}
	}
	cmd := exec.Command("bash", "dayone.sh")
	cmd.Dir = home
	cmd.Env = []string{"PATH=" + links + ":/usr/bin:/bin", "HOME=" + home, "USER=4321", "BERTH_SOCKET=" + c.socket}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Errorf("dayone.sh: %v", err)
	}
	return &out
}

// checkSteps reports each step that did not go as users expect.
func checkSteps(t *testing.T, out *bytes.Buffer) {
	t.Helper()
	good := 0
	for line := range strings.Lines(out.String()) {
		switch line = strings.TrimSuffix(line, "\n"); {
		case strings.HasPrefix(line, "ok - "):
			good++
		case strings.HasPrefix(line, "skip - "):
			t.Log(line)
		case strings.HasPrefix(line, "not ok - "):
			t.Error(strings.ReplaceAll(line, "~", "\n    "))
		case line != "done":
			t.Errorf("unexpected: %s", line)
		}
	}
	if good < 20 || !strings.HasSuffix(out.String(), "done\n") {
		t.Errorf("%d steps went well; the script ended with %q", good, out.String()[max(0, out.Len()-200):])
	}
}

// adminsWeek is what administrators do: take cards and nodes out of use and
// back, and lose the leader.
func adminsWeek(t *testing.T, c *cluster) {
	t.Helper()
	link := filepath.Join(slurmLinks(t), "scontrol")
	id := c.submit("--gpus", "1", "--mem", "50M", "--", "sleep", "120")
	j := c.await(id, "RUNNING")
	drain := exec.Command(link, "update", "nodename="+j.Node, "state=drain", "reason=GPU 2 ECC")
	drain.Env = append(os.Environ(), "BERTH_SOCKET="+c.socket)
	if out, err := drain.CombinedOutput(); err != nil {
		t.Errorf("scontrol update: %v: %s", err, out)
	}
	if got := c.run("node", "list"); !strings.Contains(got, "GPU 2 ECC") && !strings.Contains(got, "drain") {
		t.Errorf("no drained node in\n%s", got)
	}
	if got := c.show(id).State; got != "RUNNING" {
		t.Errorf("the drain ended a job: %s", got)
	}
	c.run("node", "resume", j.Node)
	old := c.leader()
	c.kill(old.PID)
	c.eventually("another leader", func() bool {
		r := c.runAs(0, "cluster", "status")
		return r.code == 0 && c.leader().ID != old.ID
	})
	if got := c.show(id).State; got != "RUNNING" {
		t.Errorf("a lost leader ended a job: %s", got)
	}
	c.restart("coordinator", old.ID)
	if got := c.run("report", "--by", "user"); !strings.Contains(got, "4321") {
		t.Errorf("no report of the user's jobs:\n%s", got)
	}
	c.run("cancel", fmt.Sprint(id))
	limitsAndCards(t, c)
	saveAndRestore(t, c)
	logIn(t, c)
	upgrade(t, c)
}

package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestHistorySurvives: nearly all jobs have left the cluster's state, which keeps
// five. A coordinator that is killed and loses its disk has the whole history
// again, and it answers as the last one that is left, without a leader.
func TestHistorySurvives(t *testing.T) {
	t.Parallel()
	c := startClusterWith(t, []string{"BERTH_HISTORY_IN_STATE=5", "BERTH_RAFT_SNAPSHOT_THRESHOLD=64", "BERTH_RAFT_SNAPSHOT_INTERVAL=200ms"},
		"--coordinators", "3", "--nodes", "1x1xT4")
	s := startSubmitter(c, 4)
	c.eventually("25 submits, the first of them long out of the log", func() bool {
		n, _ := s.count()
		return n >= 25 && c.leader().Applied >= 300
	})
	ids := s.stop()
	all := c.socket
	names := func(socket string) []string {
		c.socket = socket
		defer func() { c.socket = all }()
		r := c.runAs(0, "--timeout", "20s", "history", "--oldest-first", "-o", "name")
		if r.code != 0 || strings.Contains(r.stderr, "jobs may be missing") {
			return nil
		}
		return strings.Fields(r.stdout)
	}
	var want []string
	c.eventually("all jobs in the history", func() bool {
		want = names(all)
		return len(want) == len(ids)
	})
	for _, id := range want {
		if n, err := strconv.ParseUint(id, 10, 64); err != nil || !ids[n] {
			t.Fatalf("job %s is in the history and was never submitted: %v", id, err)
		}
	}
	old := want[0]
	lead, killed := c.leader(), []member(nil)
	for _, m := range c.members() {
		if m.ID != lead.ID {
			killed = append(killed, m)
		}
	}
	lost, other := killed[0], killed[1]
	c.kill(lost.PID)
	if err := os.RemoveAll(filepath.Join(c.dir, lost.ID, "data")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(c.dir, lost.ID, "data"), 0o700); err != nil {
		t.Fatal(err)
	}
	c.restart("coordinator", lost.ID)
	socket := filepath.Join(c.dir, lost.ID+".sock")
	c.eventually("the whole history at the one that lost its disk", func() bool { return slices.Equal(names(socket), want) })
	if files, _ := filepath.Glob(filepath.Join(c.dir, lost.ID, "data", "history", "seg-*")); len(files) == 0 {
		t.Error("all came from the log: nothing had to be fetched from the others")
	}

	// What the state forgot is shown, accounted for and added up.
	if j := c.run("show", old); !strings.Contains(j, "COMPLETED") {
		t.Errorf("show of the oldest job:\n%s", j)
	}
	if got := c.run("sacct", "-X", "-n", "-P", "-j", old, "-o", "jobid,state,exitcode"); got != old+"|COMPLETED|0:0\n" {
		t.Errorf("sacct of the oldest job: %q", got)
	}
	if got := c.run("report", "-o", "csv"); !strings.Contains(got, "\nroot,"+strconv.Itoa(len(want))+",") {
		t.Errorf("report:\n%s", got)
	}

	c.kill(lead.PID)
	c.kill(other.PID)
	c.eventually("the history without a leader", func() bool { return slices.Equal(names(socket), want) })
}

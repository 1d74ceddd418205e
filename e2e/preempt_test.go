package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// lasEnv makes the order las preempt within seconds: the first queue ends at
// two seconds of a GPU.
func lasEnv() []string {
	return []string{"BERTH_SCHEDULING_LAS_QUEUES=2s", "BERTH_SCHEDULING_PREEMPT_AFTER=2s", "BERTH_SCHEDULING_PREEMPT_EVERY=1s"}
}

// counter counts to its argument in a file that it saves at USR1, and goes on
// from there when it is started again. Before it saves it waits for the file
// "go" when there is a file "wait".
const counter = `#!/bin/sh
#BERTH --checkpoint USR1@60 --gpus 1 --gpu-mem 1G
n=0
[ -f state ] && n=$(cat state)
echo "start at $n, restart $BERTH_RESTART_COUNT, for Slurm ${SLURM_RESTART_COUNT:-none}" >>log
save() {
	while [ -f wait ] && ! [ -f go ]; do sleep 0.1; done
	echo $n >state
	echo "saved $n" >>log
	exit 0
}
trap save USR1
while [ $n -lt $1 ]; do
	sleep 0.1
	n=$((n + 1))
done
echo "counted to $n" >>log
`

// lines reads a log that may not be there yet.
func lines(path string) []string {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	all := strings.Split(string(data), "\n")
	return all[:len(all)-1] // the last is still being written
}

// TestPreempt: a job that had its share makes room for short ones, with its
// state saved, and goes on from there under its id; one without a hook stays.
func TestPreempt(t *testing.T) {
	t.Parallel()
	c := startClusterWith(t, lasEnv(), "--nodes", "1x2xT4", "--policy", "slot+las")
	dir, stays := openDir(t), openDir(t)
	write(t, filepath.Join(dir, "count.sh"), counter)
	noHook := c.submit("-D", stays, "--gpus", "1", "--gpu-mem", "1G", "--", "sleep", "600")
	c.await(noHook, "RUNNING")
	long := c.submit("-D", dir, "--quiet", filepath.Join(dir, "count.sh"), "150")
	c.await(long, "RUNNING")
	log := filepath.Join(dir, "log")
	c.eventually("the counter to begin", func() bool { return len(lines(log)) == 1 })
	short := c.submit("-D", stays, "--gpus", "1", "--gpu-mem", "1G", "--", "sleep", "1")
	c.await(short, "COMPLETED")
	got := lines(log)
	if len(got) < 2 || got[0] != "start at 0, restart 0, for Slurm none" || !strings.HasPrefix(got[1], "saved ") {
		t.Fatalf("when the short job has run, the counter wrote %q", got)
	}
	saved := strings.TrimPrefix(got[1], "saved ")
	if saved == "0" {
		t.Error("it saved nothing")
	}
	j := c.await(long, "COMPLETED")
	if len(j.Attempts) != 2 || j.Attempts[0].State != "PREEMPTED" || j.Attempts[1].State != "COMPLETED" {
		t.Errorf("attempts %+v", j.Attempts)
	}
	want := []string{got[0], got[1], fmt.Sprintf("start at %s, restart 1, for Slurm 1", saved), "counted to 150"}
	if got := lines(log); strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("the counter wrote %q, want %q", got, want)
	}
	shown := c.run("show", fmt.Sprint(long))
	for _, part := range []string{
		"Checkpoint  saves its state at USR1 within 1m00s, and may be preempted", "1  PREEMPTED on n1",
		fmt.Sprintf("Preempted: for job %d: slot+las: that one goes first", short), "2  COMPLETED on n1",
	} {
		if !strings.Contains(shown, part) {
			t.Errorf("berth show does not say %q:\n%s", part, shown)
		}
	}
	if j := c.show(noHook); j.State != "RUNNING" || len(j.Attempts) != 1 {
		t.Errorf("the job without a hook is %s, %d attempts", j.State, len(j.Attempts))
	}
	c.run("cancel", fmt.Sprint(noHook))
}

// TestPreemptThroughFaults: the leader and the agent are killed while a job
// saves its state. It is told once, saves once, and goes on later.
func TestPreemptThroughFaults(t *testing.T) {
	t.Parallel()
	c := startClusterWith(t, lasEnv(), "--coordinators", "3", "--nodes", "1x1xT4", "--policy", "slot+las")
	dir := openDir(t)
	write(t, filepath.Join(dir, "count.sh"), counter)
	write(t, filepath.Join(dir, "wait"), "")
	long := c.submit("-D", dir, "--quiet", filepath.Join(dir, "count.sh"), "60")
	log := filepath.Join(dir, "log")
	c.eventually("the counter to begin", func() bool { return len(lines(log)) == 1 })
	short := c.submit("-D", "/tmp", "-o", "/dev/null", "--gpus", "1", "--gpu-mem", "1G", "--", "sleep", "1")
	c.eventually("the agent to tell it", func() bool {
		data, err := os.ReadFile(filepath.Join(c.dir, "n1", "log"))
		return err == nil && strings.Contains(string(data), "save its state and make room")
	})
	c.kill(c.leader().PID)
	c.kill(c.daemonPID("agent", "n1"))
	c.restart("agent", "n1")
	c.eventually("the next leader to see the job save its state", func() bool {
		j := c.show(long)
		return j.State == "RUNNING" && j.Reason == "Preempted"
	})
	write(t, filepath.Join(dir, "go"), "")
	c.await(short, "COMPLETED")
	j := c.await(long, "COMPLETED")
	if len(j.Attempts) != 2 || j.Attempts[0].State != "PREEMPTED" || j.Attempts[1].State != "COMPLETED" {
		t.Errorf("attempts %+v", j.Attempts)
	}
	if got := lines(log); len(got) != 4 || !strings.HasPrefix(got[1], "saved ") || got[2] != "start at "+strings.TrimPrefix(got[1], "saved ")+", restart 1, for Slurm 1" || got[3] != "counted to 60" {
		t.Errorf("the counter wrote %q", got)
	}
}

// TestPreemptByDefault: under the policy that nobody chose a job that waited takes the
// place of one with a hook that has much more left, which goes on later from where
// it was; one without a hook stays.
func TestPreemptByDefault(t *testing.T) {
	t.Parallel()
	c := startClusterWith(t, []string{"BERTH_SCHEDULING_PREEMPT_WAIT=1s", "BERTH_SCHEDULING_PREEMPT_EVERY=1s"}, "--nodes", "1x2xT4")
	dir, stays := openDir(t), openDir(t)
	write(t, filepath.Join(dir, "count.sh"), counter)
	noHook := c.submit("-D", stays, "--gpus", "1", "--exclusive", "--time", "50h", "--", "sleep", "3600")
	c.await(noHook, "RUNNING")
	long := c.submit("-D", dir, "--quiet", "--exclusive", "--time", "20h", filepath.Join(dir, "count.sh"), "100000")
	c.await(long, "RUNNING")
	log := filepath.Join(dir, "log")
	c.eventually("the counter to begin", func() bool { return len(lines(log)) == 1 })
	short := c.submit("-D", stays, "--gpus", "1", "--exclusive", "--time", "2m", "--", "sleep", "1")
	c.await(short, "COMPLETED")
	c.eventually("the counter to go on", func() bool { return len(lines(log)) == 3 })
	got := lines(log)
	saved := strings.TrimPrefix(got[1], "saved ")
	if want := fmt.Sprintf("start at %s, restart 1, for Slurm 1", saved); saved == got[1] || got[2] != want {
		t.Errorf("the counter wrote %q, want that it goes on by %q", got, want)
	}
	shown := c.run("show", fmt.Sprint(long))
	for _, want := range []string{fmt.Sprintf("Preempted: for job %d: it has ~20 h left, and that one ~2 min and has waited for", short), "and may be preempted; it was once"} {
		if !strings.Contains(shown, want) {
			t.Errorf("show says\n%s\nwithout %q", shown, want)
		}
	}
	if j := c.await(noHook, "RUNNING"); len(j.Attempts) != 1 {
		t.Errorf("the job without a hook has %d attempts", len(j.Attempts))
	}
}

// TestGangsMakeAndTakePlaces: a gang that waited takes the places of a gang on two nodes
// and of a job on a third, all at once, and both go on later from where they were: each
// process of the gang saved its own state, though they took different times for it and
// ended with a failure.
func TestGangsMakeAndTakePlaces(t *testing.T) {
	t.Parallel()
	c := startClusterWith(t, []string{"BERTH_SCHEDULING_PREEMPT_WAIT=1s", "BERTH_SCHEDULING_PREEMPT_EVERY=1s"}, "--nodes", "3x1xT4")
	dir, one := openDir(t), openDir(t)
	write(t, filepath.Join(dir, "count.sh"), `r=$BERTH_NODE_RANK
n=0
[ -f state.$r ] && n=$(cat state.$r)
echo "start at $n" >>log.$r
save() { sleep $r; echo $n >state.$r; echo "saved $n" >>log.$r; exit 3; }
trap save USR1
while :; do sleep 0.1; n=$((n + 1)); done
`)
	write(t, filepath.Join(one, "count.sh"), counter)
	gang := c.submit("-D", dir, "-N", "2", "--gpus", "1", "--exclusive", "--time", "20h", "--checkpoint", "USR1@60s", "--", "sh", "count.sh")
	single := c.submit("-D", one, "--quiet", "--exclusive", "--time", "20h", filepath.Join(one, "count.sh"), "100000")
	c.await(gang, "RUNNING")
	c.await(single, "RUNNING")
	logs := []string{filepath.Join(dir, "log.0"), filepath.Join(dir, "log.1"), filepath.Join(one, "log")}
	for _, log := range logs {
		c.eventually("the counters to begin", func() bool { return len(lines(log)) == 1 })
	}
	wide := c.submit("-D", dir, "-N", "3", "--gpus", "1", "--exclusive", "--time", "2m", "--", "sleep", "1")
	c.await(wide, "COMPLETED")
	for _, log := range logs {
		c.eventually("the counters to go on", func() bool { return len(lines(log)) == 3 })
		got := lines(log)
		if saved := strings.TrimPrefix(got[1], "saved "); saved == got[1] || !strings.HasPrefix(got[2], "start at "+saved) {
			t.Errorf("%s holds %q, want that it goes on from what was saved", log, got)
		}
	}
	for _, id := range []uint64{gang, single} {
		shown := c.run("show", fmt.Sprint(id))
		if want := fmt.Sprintf("Preempted: for job %d: it has ~20 h left, and that one ~2 min and has waited for", wide); !strings.Contains(shown, want) {
			t.Errorf("show says\n%s\nwithout %q", shown, want)
		}
	}
	if j := c.show(gang); len(j.Attempts) != 2 || j.Attempts[0].State != "PREEMPTED" {
		t.Errorf("attempts %+v", j.Attempts)
	}
	c.run("cancel", fmt.Sprint(gang), fmt.Sprint(single))
}

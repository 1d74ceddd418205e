package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// allReduce adds up the ranks of all processes over TCP, at the address that
// they were told, and writes the sum into a file of its own.
const allReduce = `
import os, socket, struct, sys, time
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
at = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
def recv(s):
    data = b""
    while len(data) < 8:
        more = s.recv(8 - len(data))
        if not more: sys.exit("rank %d: the other side is gone" % rank)
        data += more
    return struct.unpack("!q", data)[0]
if rank == 0:
    listen = socket.socket()
    listen.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listen.bind(at); listen.listen(world)
    peers = [listen.accept()[0] for _ in range(world - 1)]
    total = rank + sum(recv(p) for p in peers)
    for p in peers: p.sendall(struct.pack("!q", total))
else:
    for i in range(600):
        try:
            s = socket.create_connection(at); break
        except OSError: time.sleep(0.05)
    s.sendall(struct.pack("!q", rank)); total = recv(s)
env = ["LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "BERTH_NODES", "BERTH_NODE_RANK", "BERTH_NODELIST", "BERTH_TASKS", "BERTH_NODE", "CUDA_VISIBLE_DEVICES"]
with open("rank-%d" % rank, "w") as f:
    f.write("%d of %d: %d; %s\n" % (rank, world, total, " ".join(k + "=" + os.environ.get(k, "-") for k in env)))
`

// torchReduce does so with torch's own means.
const torchReduce = `
import os, torch, torch.distributed as dist
dist.init_process_group("gloo", init_method="env://")
t = torch.tensor([float(dist.get_rank())])
dist.all_reduce(t)
with open("torch-%d" % dist.get_rank(), "w") as f: f.write("%d of %d: %d" % (dist.get_rank(), dist.get_world_size(), int(t.item())))
`

const python = "/usr/bin/python3"

func needPython(t *testing.T, imports string) {
	t.Helper()
	if err := exec.Command(python, "-c", imports).Run(); err != nil {
		t.Skipf("%s cannot %s: %v", python, imports, err)
	}
}

// gangJob is what berth show tells of a job on several nodes.
type gangJob struct {
	NodeList string `json:"node_list"`
	Attempts []struct {
		State string `json:"state"`
		Port  int    `json:"port"`
		Parts []struct {
			Node  string `json:"node"`
			State string `json:"state"`
			Ready bool   `json:"ready"`
		} `json:"parts"`
	} `json:"attempts"`
}

func (c *cluster) gang(id uint64) gangJob {
	c.t.Helper()
	var g gangJob
	if err := json.Unmarshal([]byte(c.run("show", "-o", "json", fmt.Sprint(id))), &g); err != nil {
		c.t.Fatal(err)
	}
	return g
}

// TestGangAllReduces: two nodes with two processes each find each other, and
// each knows its place.
func TestGangAllReduces(t *testing.T) {
	t.Parallel()
	needPython(t, "import socket")
	c := startCluster(t, "--nodes", "3x2xT4")
	dir := openDir(t)
	write(t, filepath.Join(dir, "reduce.py"), allReduce)
	id := c.submit("-D", dir, "-N", "2", "--tasks-per-node", "2", "--gpus", "2", "--output", "out-%n-%t", "--", python, "reduce.py")
	c.await(id, "COMPLETED", "FAILED")
	shown := c.run("show", fmt.Sprint(id))
	g := c.gang(id)
	if len(g.Attempts) != 1 || len(g.Attempts[0].Parts) != 2 || g.Attempts[0].Port < 20000 || g.Attempts[0].Port > 29999 {
		t.Fatalf("%+v\n%s", g, shown)
	}
	for rank := range 4 {
		got := read(t, filepath.Join(dir, fmt.Sprintf("rank-%d", rank)))
		want := fmt.Sprintf("%d of 4: 6; LOCAL_RANK=%d LOCAL_WORLD_SIZE=2 NODE_RANK=%d BERTH_NODES=2 BERTH_NODE_RANK=%d BERTH_NODELIST=%s BERTH_TASKS=2 BERTH_NODE=%s ",
			rank, rank%2, rank/2, rank/2, g.NodeList, g.Attempts[0].Parts[rank/2].Node)
		if !strings.HasPrefix(got, want) {
			t.Errorf("rank %d wrote %q, want %q\n%s", rank, got, want, shown)
		}
		if _, err := os.Stat(filepath.Join(dir, fmt.Sprintf("out-%d-%d", rank/2, rank))); err != nil {
			t.Error(err)
		}
	}
	if !strings.Contains(c.run("queue", "-a"), g.NodeList) {
		t.Errorf("the queue does not show %s", g.NodeList)
	}
	if r := c.runAs(0, "submit", "-N", "4", "--gpus", "2", "--", "true"); r.code == 0 || !strings.Contains(r.stderr, "the largest set is 3 nodes") {
		t.Errorf("four of three nodes: code %d, %s", r.code, r.stderr)
	}
}

func TestGangWithTorch(t *testing.T) {
	t.Parallel()
	needTorch(t)
	c := startCluster(t, "--nodes", "2xcpu")
	dir := openDir(t)
	write(t, filepath.Join(dir, "reduce.py"), torchReduce)
	id := c.submit("-D", dir, "-N", "2", "--tasks-per-node", "2", "--mem", "3G", "--", python, "reduce.py")
	if j := c.await(id, "COMPLETED", "FAILED", "OUT_OF_MEMORY"); j.State != "COMPLETED" {
		t.Fatalf("%s: %s\n%s", j.State, j.Reason, c.run("show", fmt.Sprint(id)))
	}
	for rank := range 4 {
		if got := read(t, filepath.Join(dir, fmt.Sprintf("torch-%d", rank))); got != fmt.Sprintf("%d of 4: 6", rank) {
			t.Errorf("rank %d wrote %q", rank, got)
		}
	}
}

// marker writes its process id and that it began, and stays.
const marker = `#!/bin/sh
echo "$BERTH_NODE_RANK.$LOCAL_RANK" >>started
echo $$ >pid-$RANK.new && mv pid-$RANK.new pid-$RANK
exec sleep 600
`

func pids(t *testing.T, dir string, n int) []int {
	t.Helper()
	var out []int
	for rank := range n {
		pid, err := strconv.Atoi(strings.TrimSpace(read(t, filepath.Join(dir, fmt.Sprintf("pid-%d", rank)))))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, pid)
	}
	return out
}

func pidsThere(dir string) int {
	names, _ := filepath.Glob(filepath.Join(dir, "pid-?")) // the pattern is right
	return len(names)
}

func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

func started(dir string) int { return len(lines(filepath.Join(dir, "started"))) }

// TestGangEndsWithOneRank: a rank that dies ends all others, on its node and on
// the others, and nothing is left of them.
func TestGangEndsWithOneRank(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--nodes", "1x2xT4@switch=core:a,1x2xT4@switch=core:b")
	c.switches()
	dir := openDir(t)
	write(t, filepath.Join(dir, "stay.sh"), marker)
	id := c.submit("-D", dir, "-N", "2", "--tasks-per-node", "2", "--gpus", "2", "--", "./stay.sh")
	c.await(id, "RUNNING")
	c.eventually("four processes", func() bool { return started(dir) == 4 && pidsThere(dir) == 4 })
	all := pids(t, dir, 4)
	if err := syscall.Kill(all[3], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	j := c.await(id, "FAILED", "OUT_OF_MEMORY", "CANCELLED", "COMPLETED")
	if j.State != "FAILED" || j.code() != 128+9 {
		t.Errorf("%s with code %d: %s", j.State, j.code(), c.run("show", fmt.Sprint(id)))
	}
	c.eventually("the end of all processes", func() bool {
		for _, pid := range all {
			if alive(pid) {
				return false
			}
		}
		return true
	})
	again := c.submit("-D", dir, "-N", "2", "--gpus", "2", "--exclusive", "--", "true")
	if j := c.await(again, "COMPLETED", "FAILED"); j.State != "COMPLETED" {
		t.Errorf("what the gang held is not free: %s", j.State)
	}
}

// switches sees that a gang waits for one switch as long as it asks to, on nodes that are
// on two, and says so.
func (c *cluster) switches() {
	c.t.Helper()
	long := c.submit("-N", "2", "--gpus", "1", "--switches", "1", "--", "true")
	c.eventually("it waits and says for what", func() bool {
		return strings.Contains(c.run("why", fmt.Sprint(long)), "needs 2 at once, on one switch for another ~5 min")
	})
	if text := c.run("show", fmt.Sprint(long)) + c.run("scontrol", "show", "job", fmt.Sprint(long)); !strings.Contains(text, "on at most 1 switch, waiting up to 5m00s for that") || !strings.Contains(text, "Switches=1@00:05:00") {
		c.t.Errorf("it is shown as\n%s", text)
	}
	short := c.submit("-N", "2", "--gpus", "1", "--switches", "1@1s", "--", "true")
	c.await(short, "COMPLETED")
	if j := c.await(long, "PENDING"); j.State != "PENDING" {
		c.t.Errorf("who waits for five minutes is %s", j.State)
	}
	c.run("cancel", fmt.Sprint(long))
}

// TestBarrierOutlivesDaemons: while one node is not there nothing starts, through
// the death of the other's agent and of the leader; when it comes all start, and
// each once.
func TestBarrierOutlivesDaemons(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--coordinators", "3", "--nodes", "2x1xT4")
	dir := openDir(t)
	write(t, filepath.Join(dir, "stay.sh"), marker)
	c.kill(c.daemonPID("agent", "n2"))
	id := c.submit("-D", dir, "-N", "2", "--gpus", "1", "--", "./stay.sh")
	c.eventually("n1 to be ready", func() bool {
		g := c.gang(id)
		return len(g.Attempts) == 1 && g.Attempts[0].Parts[0].Ready
	})
	c.kill(c.daemonPID("agent", "n1"))
	c.restart("agent", "n1")
	old := c.leader()
	c.kill(old.PID)
	c.eventually("another leader", func() bool { r := c.runAs(0, "queue"); return r.code == 0 })
	if n := started(dir); n != 0 {
		t.Fatalf("%d processes started before all were ready", n)
	}
	c.restart("coordinator", old.ID)
	c.restart("agent", "n2")
	c.await(id, "RUNNING")
	c.eventually("two processes", func() bool { return started(dir) == 2 })
	c.run("cancel", fmt.Sprint(id))
	c.await(id, "CANCELLED")
	if n := started(dir); n != 2 {
		t.Errorf("%d processes started, want 2: %q", n, lines(filepath.Join(dir, "started")))
	}
	if g := c.gang(id); len(g.Attempts) != 1 {
		t.Errorf("%d attempts", len(g.Attempts))
	}
}

// TestLateGangIsUndone: when not all nodes become ready in time nothing starts,
// what was prepared is undone, and the job waits again; so it does when a node
// cannot prepare it, but not for ever.
func TestLateGangIsUndone(t *testing.T) {
	t.Parallel()
	c := startClusterWith(t, []string{"BERTH_SCHEDULING_GANG_TIMEOUT=2s"}, "--nodes", "2x1xT4")
	dir := openDir(t)
	write(t, filepath.Join(dir, "stay.sh"), marker)
	c.kill(c.daemonPID("agent", "n2"))
	id := c.submit("-D", dir, "-N", "2", "--gpus", "1", "--", "./stay.sh")
	c.eventually("the gang to be given up", func() bool { return strings.Contains(c.run("show", fmt.Sprint(id)), "n2 was not ready") })
	if n := started(dir); n != 0 {
		t.Fatalf("%d processes started", n)
	}
	c.restart("agent", "n2")
	c.await(id, "RUNNING")
	g := c.gang(id)
	if len(g.Attempts) != 2 || g.Attempts[0].State != "FAILED" {
		t.Errorf("attempts %+v", g.Attempts)
	}
	c.run("cancel", fmt.Sprint(id))
	c.await(id, "CANCELLED")

	bad := c.submit("-D", dir, "-N", "2", "--gpus", "1", "--image", "docker.io/library/no-such:1", "--", "true")
	j := c.await(bad, "FAILED", "COMPLETED")
	if len(j.Attempts) != 3 || j.Reason != "LaunchFailed" {
		t.Errorf("a job that cannot be prepared ended %s (%s) after %d attempts", j.State, j.Reason, len(j.Attempts))
	}
}

// TestGangsUnderAnotherPolicy: under a policy beside the scheduler's own a gang runs,
// a wider one is told how many nodes have room, and starts when the first has ended.
func TestGangsUnderAnotherPolicy(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--nodes", "3x1xT4", "--policy", "bestfit+sjf")
	dir := openDir(t)
	two := c.submit("-D", dir, "-N", "2", "--gpus", "1", "--", "sleep", "3600")
	c.await(two, "RUNNING")
	three := c.submit("-D", dir, "-N", "3", "--gpus", "1", "--", "true")
	c.eventually("a reason", func() bool {
		return strings.Contains(c.run("why", fmt.Sprint(three)), "1 node with room for 1 of T4, needs 3 at once")
	})
	c.run("cancel", fmt.Sprint(two))
	if j := c.await(three, "COMPLETED", "FAILED"); j.State != "COMPLETED" || !strings.Contains(c.run("show", fmt.Sprint(three)), "bestfit+sjf: 3 nodes with 1 of T4 each") {
		t.Errorf("%s", c.run("show", fmt.Sprint(three)))
	}
}

// TestTenantsGangTakesItsNodesBack: a team that is guaranteed two nodes of a rack gets
// its gang there once the gang of another, which borrowed three nodes, has saved its
// state on all of them; that one is told why it waits, and both ranks why they ended.
func TestTenantsGangTakesItsNodesBack(t *testing.T) {
	t.Parallel()
	c := startClusterWith(t, []string{"BERTH_SCHEDULING_TENANTS=vision=root/T4:2=1, speech=31002/T4:1=1"}, "--policy", "fgd", "--nodes", "2x1xT4@rack=a,2x1xT4@rack=b")
	dir := openDir(t)
	write(t, filepath.Join(dir, "save.sh"), `trap 'sleep $BERTH_NODE_RANK; echo saved >saved.$BERTH_NODE_RANK; exit 0' USR1
echo begins >began.$BERTH_NODE_RANK
while :; do sleep 0.1; done
`)
	lent := parseID(t, c.runAs(31002, "submit", "--parsable", "-D", dir, "-N", "3", "--gpus", "1", "--exclusive", "--checkpoint", "USR1@60s", "--", "sh", "save.sh").stdout)
	for rank := range 3 {
		c.eventually("the gang to begin", func() bool { return len(lines(filepath.Join(dir, fmt.Sprintf("began.%d", rank)))) == 1 })
	}
	mine := c.submit("-D", dir, "-N", "2", "--gpus", "1", "--exclusive", "--", "sleep", "3600")
	c.await(mine, "RUNNING")
	shown := c.run("show", fmt.Sprint(mine))
	if !strings.Contains(shown, "fgd: 2 nodes with 1 of T4 each, in the cells of team vision") || !strings.Contains(shown, "n[1-2]") && !strings.Contains(shown, "n[3-4]") {
		t.Errorf("show says\n%s\nwant two nodes of one rack", shown)
	}
	c.await(lent, "PENDING")
	for rank := range 3 {
		if got := lines(filepath.Join(dir, fmt.Sprintf("saved.%d", rank))); len(got) != 1 {
			t.Errorf("rank %d wrote %q when it was to save its state", rank, got)
		}
	}
	if why := c.run("why", fmt.Sprint(lent)); !strings.Contains(why, "the cells of team speech are 1 whole nodes, and it needs 3 at once; it was preempted shortly ago and borrows again in ") {
		t.Errorf("why says\n%s", why)
	}
	c.run("cancel", fmt.Sprint(mine), fmt.Sprint(lent))
}

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/berth-scheduler/berth/coordinator/raftnode"
	"github.com/berth-scheduler/berth/fsm"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
)

// oldCommit is of the build that is upgraded from. It reads log entries up to
// version 10, and knows no switch for sharing.
const oldCommit = "e2a18affe1feef731ca6e262f44eaa6cda346177"

// buildOld makes the old program from the history of this tree.
func buildOld(t *testing.T) string {
	t.Helper()
	git := func(args ...string) *exec.Cmd {
		return exec.Command("git", append([]string{"-c", "safe.directory=*", "-C", ".."}, args...)...)
	}
	if out, err := git("cat-file", "-e", oldCommit+"^{commit}").CombinedOutput(); err != nil {
		t.Skipf("needs the history of this tree as far back as commit %.7s, to build the program of then (git fetch --unshallow brings it): %v %s", oldCommit, err, out)
	}
	dir := openDir(t) // jobs of other users run the program, too
	tree, exe := filepath.Join(dir, "tree.tar"), filepath.Join(dir, "berth")
	for _, cmd := range []*exec.Cmd{
		git("archive", "-o", tree, oldCommit),
		exec.Command("tar", "-C", dir, "-xf", tree),
		// Without the folder's name in it, so that Go's cache serves the next time.
		exec.Command("go", "build", "-C", dir, "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", exe, "./cmd/berth"),
	} {
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
		}
	}
	return exe
}

// mixed is a cluster of two releases, and jobs that write down each start.
type mixed struct {
	*cluster
	old, dir string
	jobs     map[string]uint64
}

// startOld starts a cluster of the old program, and once more where it found ports free that
// another cluster was about to listen on: it knows nothing of the marks by which those of this
// build keep theirs. It then keeps its own from them by such marks.
func startOld(t *testing.T, old string) *cluster {
	t.Helper()
	for {
		c, err := tryCluster(t, old, nil, "--coordinators", "3", "--nodes", "2x1xT4")
		if err != nil {
			if strings.Contains(err.Error(), "address already in use") {
				continue
			}
			t.Fatal(err)
		}
		files, err := filepath.Glob(filepath.Join(c.dir, "*", "*.yaml"))
		if err != nil || len(files) == 0 {
			t.Fatalf("configurations %v, %v", files, err)
		}
		for _, f := range files {
			for _, port := range regexp.MustCompile(`127\.0\.0\.1:([0-9]+)`).FindAllStringSubmatch(read(t, f), -1) {
				if mark, err := net.Listen("unix", "@berth-dev-port-"+port[1]); err == nil { // several files name it
					t.Cleanup(func() { mark.Close() })
				}
			}
		}
		return c
	}
}

// TestUpgradeFromAnOlderBuild brings coordinators and agents to this build one
// at a time, with the old program back on one of them in between, and then tries the
// way back. No job is lost or runs twice, and all coordinators have one state.
func TestUpgradeFromAnOlderBuild(t *testing.T) {
	t.Parallel()
	needRoot(t)
	old := buildOld(t)
	u := &mixed{startOld(t, old), old, openDir(t), map[string]uint64{}}
	u.task(old, u.socket, "before")
	u.ended("before")
	card := []string{"--gpus", "1", "--exclusive"}
	u.task(old, u.socket, "runs", append(card, "-w", "n1")...)
	u.task(old, u.socket, "runs-too", append(card, "-w", "n2")...)
	u.task(old, u.socket, "waits", card...)
	u.task(old, u.socket, "held", "--hold")
	u.task(old, u.socket, "depends", "--dependency", fmt.Sprintf("afterok:%d", u.jobs["runs"]))
	u.await(u.jobs["runs"], "RUNNING")
	u.await(u.jobs["runs-too"], "RUNNING")

	lead, first := u.leader().ID, ""
	for _, m := range u.members() {
		if m.ID == lead {
			continue
		}
		if first == "" {
			first = m.ID
			u.snapshots(first)
		}
		u.replace(berth, m.ID)
		u.serves(m.ID)
		u.refuses(m.ID, lead)
	}
	u.agree()
	u.eventually("a snapshot by the new program", func() bool {
		made, err := filepath.Glob(filepath.Join(u.cluster.dir, first, "data", "snapshots", "*", "meta.json"))
		return err == nil && len(made) > 0 && !strings.Contains(made[len(made)-1], ".tmp")
	})
	u.replace(old, first) // which reads it
	u.serves(first)
	u.replace(berth, first)
	for u.leader().ID == lead {
		u.replace(old, lead)
	}
	u.serves(lead)
	u.refuses(u.leader().ID, lead)
	u.replace(berth, lead)
	u.serves(lead)
	u.agents()
	u.switches()
	u.agree()
	u.back(first)
	u.agree()
	u.allEnded()
}

// task submits a job that runs until its gate is there.
func (u *mixed) task(exe, socket, name string, flags ...string) {
	u.t.Helper()
	args := append([]string{"submit", "--parsable", "-J", name, "-D", u.dir, "-o", "/dev/null", "--mem", "64MiB"}, flags...)
	r := u.runOf(exe, socket, alice, append(args, "--", "sh", "-c", fmt.Sprintf("echo x >> ran-%s; until [ -e go-%s -o -e go ]; do sleep 0.1; done", name, name))...)
	if r.code != 0 {
		u.t.Fatalf("submit %s: %d %s", name, r.code, r.stderr)
	}
	u.jobs[name] = parseID(u.t, r.stdout)
}

// open lets a job end.
func (u *mixed) open(name string) {
	u.t.Helper()
	if err := os.WriteFile(filepath.Join(u.dir, "go-"+name), nil, 0o644); err != nil {
		u.t.Fatal(err)
	}
}

// ended lets a job end well, in its one attempt.
func (u *mixed) ended(name string) {
	u.t.Helper()
	u.open(name)
	j := u.await(u.jobs[name], "COMPLETED", "FAILED", "NODE_FAIL", "CANCELLED", "OUT_OF_MEMORY")
	ran, err := os.ReadFile(filepath.Join(u.dir, "ran-"+name))
	if j.State != "COMPLETED" || len(j.Attempts) != 1 || string(ran) != "x\n" || err != nil {
		u.t.Errorf("job %s ended %s (%s) in %d attempts, and wrote %q (%v); want that it ran once", name, j.State, j.Reason, len(j.Attempts), ran, err)
	}
}

// allEnded lets all jobs end, and counts them.
func (u *mixed) allEnded() {
	u.t.Helper()
	u.run("release", fmt.Sprint(u.jobs["held"]))
	u.runAs(0, "hold", fmt.Sprint(u.jobs["depends"])) // whatever agree left behind
	u.run("release", fmt.Sprint(u.jobs["depends"]))
	if err := os.WriteFile(filepath.Join(u.dir, "go"), nil, 0o644); err != nil {
		u.t.Fatal(err)
	}
	for name := range u.jobs {
		u.ended(name)
	}
	ran, err := filepath.Glob(filepath.Join(u.dir, "ran-*"))
	if err != nil || len(ran) != len(u.jobs) {
		u.t.Errorf("%d jobs ran (%v), and %d were submitted: %v", len(ran), err, len(u.jobs), u.jobs)
	}
}

// snapshots makes a coordinator that is started next take a snapshot each 500 entries.
func (u *mixed) snapshots(name string) {
	u.t.Helper()
	file := filepath.Join(u.cluster.dir, name, "coordinator.yaml")
	conf, err := os.ReadFile(file)
	if err != nil {
		u.t.Fatal(err)
	}
	conf = regexp.MustCompile(`snapshot_threshold: .*`).ReplaceAll(conf, []byte("snapshot_threshold: 500"))
	conf = regexp.MustCompile(`snapshot_interval: .*`).ReplaceAll(conf, []byte("snapshot_interval: 1s"))
	if err := os.WriteFile(file, conf, 0o600); err != nil {
		u.t.Fatal(err)
	}
}

// replace ends a coordinator, and starts the program exe in its place.
func (u *mixed) replace(exe, name string) {
	u.t.Helper()
	u.end(u.daemonPID("coordinator", name), syscall.SIGTERM)
	u.restartOf(exe, "coordinator", name)
	u.caughtUp(name, exe)
}

// caughtUp waits until a coordinator that runs exe has what the leader has.
func (u *mixed) caughtUp(name, exe string) {
	u.t.Helper()
	version := strings.Fields(u.runOf(exe, "", 0, "version").stdout)[1]
	u.eventually("coordinator "+name+" of "+version+" to catch up", func() bool {
		applied := u.leader().Applied
		return slices.ContainsFunc(u.members(), func(m member) bool {
			return m.ID == name && m.Up && m.Version == version && m.Applied >= applied
		})
	})
}

// socketOf is the socket of one coordinator.
func (u *mixed) socketOf(name string) string { return filepath.Join(u.cluster.dir, name+".sock") }

// serves sees that users of both releases are served by a coordinator: jobs of
// theirs run, with large environments too, and arrays are arrays.
func (u *mixed) serves(name string) {
	u.t.Helper()
	socket := u.socketOf(name)
	for _, exe := range []string{u.old, berth} {
		job := fmt.Sprintf("by-%s-%d", name, len(u.jobs))
		u.task(exe, socket, job, "--export", "PATH,LARGE="+strings.Repeat("x", 60<<10))
		u.ended(job)
	}
	r := u.runOf(berth, socket, alice, "submit", "--parsable", "--array", "0-2", "--hold", "-D", u.dir, "--", "true")
	if r.code != 0 {
		u.t.Fatalf("an array by way of %s: %s", name, r.stderr)
	}
	id := parseID(u.t, r.stdout)
	if out := u.run("squeue", "-h", "-r", "-j", fmt.Sprint(id), "-o", "%K"); out != "0\n1\n2\n" {
		u.t.Errorf("the tasks of the array %d: %q", id, out)
	}
	u.run("cancel", fmt.Sprint(id))
}

// refuses sees that what is new is refused for good, by way of a coordinator, in
// words that name the one that is old: the leader does not know the call, or knows
// who could not read the entry.
func (u *mixed) refuses(name, old string) {
	u.t.Helper()
	var r result
	u.eventually(name+" to name "+old+", which is too old", func() bool {
		r = u.runOf(berth, u.socketOf(name), 0, "gpu", "sharing", "off", "--cluster", "--reason", "upgrade")
		if r.code == 0 {
			u.t.Fatal("what the old build does not know was done")
		}
		return r.code == 1 && (strings.Contains(r.stderr, "coordinator "+old+", which leads, is of an older release and does not know SetSharing") ||
			strings.Contains(r.stderr, "set_sharing needs coordinators that read log entries of version 11") && strings.Contains(r.stderr, "coordinator "+old+" (berth devel) reads those up to 10"))
	})
	u.t.Log(r.stderr)
}

// switches sees that what is new works once nobody is old.
func (u *mixed) switches() {
	u.t.Helper()
	u.eventually("the new switch to work", func() bool {
		return u.runAs(0, "gpu", "sharing", "off", "--cluster", "--reason", "upgrade").code == 0
	})
	if out := u.run("gpu", "sharing", "list"); !strings.Contains(out, "upgrade") {
		u.t.Errorf("where sharing is off: %s", out)
	}
}

// agents upgrades those of both nodes; a job ends while that of n2 is away.
func (u *mixed) agents() {
	u.t.Helper()
	for _, n := range []string{"n1", "n2"} {
		u.end(u.daemonPID("agent", n), syscall.SIGTERM)
		if n == "n2" {
			u.open("runs-too")
		}
		u.restart("agent", n)
	}
	u.ended("runs-too")
	u.await(u.jobs["waits"], "RUNNING")
	if j := u.show(u.jobs["runs"]); j.State != "RUNNING" || len(j.Attempts) != 1 {
		u.t.Errorf("the job on n1 is %s in attempt %d, want that it runs on in its first", j.State, len(j.Attempts))
	}
}

// agree makes the log longer until every coordinator has taken the hash of its
// state at the same entry, and compares them.
func (u *mixed) agree() {
	u.t.Helper()
	cc, err := grpc.NewClient("unix:"+u.socketOf(u.leader().ID), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		u.t.Fatal(err)
	}
	defer cc.Close()
	target := (u.leader().Applied/1000 + 1) * 1000
	jobs := apirpc.NewJobServiceClient(cc)
	u.eventually(fmt.Sprintf("log entry %d", target), func() bool {
		for range 50 {
			for _, a := range []apiv1.JobAction{apiv1.JobAction_JOB_ACTION_HOLD, apiv1.JobAction_JOB_ACTION_RELEASE} {
				// Others come to lead on a busy machine: what fails is made up for.
				_, _ = jobs.ControlJobs(context.Background(), &apiv1.ControlJobsRequest{Ids: []uint64{u.jobs["depends"]}, Action: a})
			}
		}
		return u.leader().Applied >= target
	})
	var ms []member
	u.eventually("the hashes of all", func() bool {
		ms = u.members()
		return !slices.ContainsFunc(ms, func(m member) bool { return !m.Up || m.HashAt < target || m.HashAt != ms[0].HashAt })
	})
	for _, m := range ms {
		if m.Hash != ms[0].Hash || m.Hash == "" {
			u.t.Errorf("at entry %d the state of %s has the hash %s, and that of %s %s", m.HashAt, m.ID, m.Hash, ms[0].ID, ms[0].Hash)
		}
	}
}

// back starts the old program where the log is of the new one: it must say why it
// cannot, and leave all as it was. The one that takes snapshots is left alone.
func (u *mixed) back(but string) {
	u.t.Helper()
	i := slices.IndexFunc(u.members(), func(m member) bool { return !m.Leader && m.ID != but })
	name := u.members()[i].ID
	u.end(u.daemonPID("coordinator", name), syscall.SIGTERM)
	log := filepath.Join(u.cluster.dir, name, "log")
	before, err := os.ReadFile(log)
	if err != nil {
		u.t.Fatal(err)
	}
	cmd := u.restartOf(u.old, "coordinator", name)
	over := make(chan error, 1)
	go func() { over <- cmd.Wait() }()
	select {
	case err = <-over:
	case <-time.After(10 * time.Minute):
		u.t.Fatal("the old program serves, with a log that it cannot read")
	}
	after, readErr := os.ReadFile(log)
	said := after[min(len(before), len(after)):]
	if err == nil || readErr != nil || !bytes.Contains(said, fmt.Appendf(nil, "version %d, this berth reads 1 to 10", fsm.EntryVersion)) {
		u.t.Errorf("the old program ended with %v, and said (%v): %s", err, readErr, said)
	}
	u.restart("coordinator", name)
	u.caughtUp(name, berth)
}

// onlyReads is a state machine that takes everything.
type onlyReads struct{ raft.FSM }

func (onlyReads) Apply(*raft.Log) any { return nil }

// plain is a raft.StreamLayer without anybody to talk to.
type plain struct{ net.Listener }

func (plain) Dial(raft.ServerAddress, time.Duration) (net.Conn, error) {
	return nil, errors.New("there is nobody")
}

// TestTheWayBackIsRefused: a coordinator whose log a later release went on with says
// so, and is not started again by systemd.
func TestTheWayBackIsRefused(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--nodes", "cpu")
	c.end(c.daemonPID("coordinator", "c1"), syscall.SIGTERM)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	later, err := raftnode.Open(raftnode.Config{
		Dir: filepath.Join(c.dir, "c1", "data"), ClusterID: "dev", ID: "c1", Advertise: ln.Addr().String(), StreamLayer: plain{ln}, FSM: onlyReads{},
		Log: slog.New(slog.DiscardHandler), Fatal: func(err error) { t.Error(err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	c.eventually("an entry of a later release", func() bool {
		data, err := fsm.EncodeEntry(fsm.EntryVersion+1, later.Term(), 0, nil)
		if err == nil {
			_, _, err = later.Propose(t.Context(), data)
		}
		return err == nil
	})
	if err := later.Close(); err != nil {
		t.Fatal(err)
	}
	err = c.restart("coordinator", "c1").Wait()
	var ended *exec.ExitError
	said, readErr := os.ReadFile(filepath.Join(c.dir, "c1", "log"))
	if want := fmt.Sprintf("version %d, this berth reads 1 to %d: a newer release wrote it, and nothing was changed", fsm.EntryVersion+1, fsm.EntryVersion); !errors.As(err, &ended) || ended.ExitCode() != 65 || readErr != nil || !strings.Contains(string(said), want) {
		t.Errorf("it ended with %v, want exit code 65 and %q in its log", err, want)
	}
}

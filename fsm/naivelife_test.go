package fsm

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// done is the code of what is not refused.
const done = cluster.Code(0)

// biography is what becomes of one job, told as its owner would: what was asked of
// it and what its agent said, in order.
type biography struct {
	t *rapid.T
	m *machine
	// What was submitted.
	id       cluster.JobID
	hook     bool
	survives bool // it runs again when its node is lost
	due      cluster.Time
	// What is.
	state     cluster.JobState
	held      string // "", "user" or "admin"
	tries     int
	began     bool // this try was seen running
	cancelled bool
	asked     string // of this try: "", "room", "requeue", "requeue held"
	byAdmin   bool   // who asked last
	lastRoom  cluster.Time
	rooms     int
	silent    bool // its node is
	boot      string
}

func (b *biography) draw(what string, n int) int { return rapid.IntRange(0, n-1).Draw(b.t, what) }

func (b *biography) live() bool {
	return b.state == cluster.JobStarting || b.state == cluster.JobRunning || b.state == cluster.JobCompleting || b.state == cluster.JobUnreachable
}

func (b *biography) waits() bool {
	return b.state == cluster.JobPending || b.state == cluster.JobQueued
}

func (b *biography) over() bool { return !b.live() && !b.waits() }

// says applies a command, and holds whether it is refused, and how, against what is
// right.
func (b *biography) says(cmd *logv1.Command, want cluster.Code) {
	before := entitiesHash(b.m.f)
	r := b.m.do(cmd)[0]
	switch {
	case want == done && r.Err != nil, want != done && (r.Err == nil || r.Err.Code != want):
		b.t.Fatalf("%s of a job that is %+v: %v, want code %d", kindOf(cmd), *b, r.Err, want)
	case want != done && before != entitiesHash(b.m.f):
		b.t.Fatalf("%s was refused and changed the hash", kindOf(cmd))
	}
}

// check holds the story against the machine.
func (b *biography) check(what string) {
	j := b.m.job(b.id)
	held := ""
	if j.Hold != nil {
		if held = "user"; j.Hold.Admin {
			held = "admin"
		}
	}
	if j.State != b.state || held != b.held || len(j.Attempts) != b.tries || (j.Cancel != nil) != b.cancelled {
		b.t.Fatalf("%s: the job is %s (%s), held %q, with %d attempts, cancelled %t; by its story %+v", what, j.State, j.Reason, held, len(j.Attempts), j.Cancel != nil, *b)
	}
	if taken := b.m.taken("n1-g0"); taken != 0 != b.live() {
		b.t.Fatalf("%s: %d shares are taken, the job is %s", what, taken, b.state)
	}
	if b.over() && (j.Ended == 0 || j.Reason.Code == "" && j.State != cluster.JobCompleted) {
		b.t.Fatalf("%s: the job is %s, ended at %d, for %q", what, j.State, j.Ended, j.Reason.Code)
	}
	for i := range j.Attempts {
		if last := i == len(j.Attempts)-1; j.Attempts[i].State.Terminal() == (last && b.live()) {
			b.t.Fatalf("%s: attempt %d of %d is %s, and the job %s", what, i+1, len(j.Attempts), j.Attempts[i].State, j.State)
		}
	}
}

// ends tells what becomes of the job when its try ends: what came first wins.
func (b *biography) ends(as cluster.JobState) {
	madeRoom := b.asked != "" && (as == cluster.JobPreempted || as == cluster.JobCancelled)
	lost := as == cluster.JobNodeFail
	switch {
	case b.cancelled:
		b.state = cluster.JobCancelled
	case madeRoom && b.due > 0 && b.due <= b.m.now:
		b.state = cluster.JobDeadline
	case madeRoom, lost && (b.survives || b.asked == "requeue" || b.asked == "requeue held"):
		if b.state = cluster.JobPending; b.asked == "requeue held" {
			b.held = "user"
			if b.byAdmin {
				b.held = "admin"
			}
		}
	default:
		b.state = as
	}
	if b.over() {
		b.held = ""
	}
	b.asked, b.began = "", false
}

func (b *biography) report() string {
	j := b.m.job(b.id)
	if !b.live() || b.silent {
		return ""
	}
	to := rapid.SampledFrom([]cluster.JobState{
		cluster.JobStarting, cluster.JobRunning, cluster.JobRunning, cluster.JobRunning, cluster.JobCompleting, cluster.JobCompleted, cluster.JobFailed, cluster.JobTimeout,
		cluster.JobCancelled, cluster.JobCancelled, cluster.JobPreempted, cluster.JobPreempted, cluster.JobNodeFail, cluster.JobPending, cluster.JobQueued, cluster.JobUnreachable,
	}).Draw(b.t, "says")
	r := &logv1.ReportAttempt{Node: "n1", Job: uint64(b.id), Attempt: uint32(b.tries), Token: uint64(j.Last().Token), State: uint32(to)}
	switch to {
	case cluster.JobPending, cluster.JobQueued, cluster.JobUnreachable:
		b.m.now = b.m.now.Add(time.Second)
		b.says(reportCmd(r), cluster.CodeInvalid)
		return "a state that no attempt has"
	}
	b.says(reportCmd(r), done)
	rank := map[cluster.JobState]int{cluster.JobStarting: 1, cluster.JobRunning: 2, cluster.JobCompleting: 3}
	switch {
	case rank[to] == 0:
		b.ends(to)
	case b.state == cluster.JobUnreachable || rank[to] > rank[b.state]: // states only go up
		if to == cluster.JobStarting && b.began {
			break
		}
		b.state = to
		b.began = b.began || to != cluster.JobStarting
	}
	return "report of " + to.String()
}

func (b *biography) start() string {
	if !b.waits() || b.silent {
		return ""
	}
	st := b.m.startOf(b.id, share1("n1-g0", 8000, 300))
	r := b.m.must(planCmd(dispatch.Plan{Starts: []dispatch.Start{st}}))
	if got := len(r.Plan.Started) == 1; got != (b.held == "") {
		b.t.Fatalf("it is held by %q and starts: %+v", b.held, r.Plan)
	} else if got {
		b.state, b.began, b.tries = cluster.JobStarting, false, b.tries+1
	}
	return "start"
}

func (b *biography) queue() string {
	if !b.waits() || b.silent || b.held != "" {
		return ""
	}
	b.m.enqueue(b.id, "n1-g0", 1)
	b.state = cluster.JobQueued
	return "queue"
}

func (b *biography) cancel() string {
	r := b.m.do(cancelCmd(b.id, cluster.UID(b.draw("by", 2))))[0]
	if want := map[bool]CancelOutcome{true: Finished, false: Cancelled}[b.over()]; r.Cancel != want {
		b.t.Fatalf("cancel of %+v: %d, want %d", *b, r.Cancel, want)
	}
	if b.cancelled = b.cancelled || !b.over(); b.waits() {
		b.state, b.held = cluster.JobCancelled, ""
	}
	return "cancel"
}

func (b *biography) hold() string {
	by := cluster.UID(b.draw("by", 2)) // 0 is an administrator
	release := b.draw("release", 2) == 0
	want := done
	switch {
	case release && b.held == "admin" && by != 0:
		want = cluster.CodeDenied
	case b.over(), !release && b.due > 0:
		want = cluster.CodeConflict
	}
	b.says(holdCmd(b.id, by, release), want)
	switch {
	case want != done:
		return "a hold that may not be"
	case release && b.held != "":
		b.held = ""
	case !release && b.held == "" || !release && by == 0:
		if b.held = "user"; by == 0 {
			b.held = "admin"
		}
	default:
		return "a hold that is no news"
	}
	if b.waits() {
		b.state = cluster.JobPending
	}
	return "hold"
}

func (b *biography) requeue() string {
	hold, by := b.draw("hold", 2) == 0, cluster.UID(b.draw("by", 2))
	want := cluster.CodeConflict
	if b.live() && !b.cancelled && b.asked != "requeue" && b.asked != "requeue held" && b.state != cluster.JobCompleting {
		want = done
	}
	b.says(requeueCmd(b.id, by, hold), want)
	if want == done {
		if b.asked == "" {
			b.rooms++
		}
		b.lastRoom, b.byAdmin = b.m.now, by == 0
		if b.asked = "requeue"; hold {
			b.asked = "requeue held"
		}
	}
	return "requeue"
}

func (b *biography) room() string {
	want := cluster.CodeConflict
	if b.state == cluster.JobRunning && b.hook && !b.cancelled && b.asked == "" && (b.rooms == 0 || b.m.now.Add(time.Second).Sub(b.lastRoom) >= 10*time.Minute) {
		want = done
	}
	b.says(preemptCmd(dispatch.Preemption{Job: b.id, Attempt: uint32(max(1, b.tries)), For: 77, Why: "it is larger"}), want)
	if want == done {
		b.asked, b.lastRoom = "room", b.m.now
		b.rooms++
	}
	return "make room"
}

// node is what befalls the node under the job.
func (b *biography) node() string {
	switch b.draw("node", 4) {
	case 0:
		b.says(silentCmd("n1", b.boot), done)
		if b.silent = true; b.live() {
			b.state = cluster.JobUnreachable
		} else if b.state == cluster.JobQueued {
			b.state = cluster.JobPending
		}
		return "silence"
	case 1:
		b.says(registerCmd(node("n1", b.boot, 2)), done)
		if b.state == cluster.JobUnreachable {
			if b.state = cluster.JobStarting; b.began {
				b.state = cluster.JobRunning
			}
		}
		b.silent = false
		return "back"
	case 2:
		b.boot += "x"
		b.says(registerCmd(node("n1", b.boot, 2)), done)
		if b.silent = false; b.live() {
			b.ends(cluster.JobNodeFail)
		}
		return "another boot"
	}
	want := cluster.CodeConflict
	if b.silent {
		want = done
	}
	b.says(fenceCmd("n1"), want)
	if b.silent && b.live() {
		b.ends(cluster.JobNodeFail)
	}
	return "fence"
}

func (b *biography) expire() string {
	b.says(expireCmd(b.id), done)
	if b.waits() && b.due > 0 && b.due <= b.m.now {
		b.state, b.held = cluster.JobDeadline, ""
	}
	return "expire"
}

// TestLifeOfAJob: whatever is asked of a job and whatever its agent and its node
// come to, in whatever order, it is where its story says: what came first wins, what
// is asked twice is done once, and what may not be is refused and changes nothing.
func TestLifeOfAJob(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := &biography{t: t, m: newMachine(t), state: cluster.JobPending, boot: "boot1"}
		b.m.must(initCmd("c1", 1000))
		b.m.must(registerCmd(node("n1", "boot1", 2)))
		s := spec(1)
		if b.hook = b.draw("hook", 2) == 0; b.hook {
			s.Checkpoint = cluster.Checkpoint{Signal: "USR1", Grace: time.Minute}
		}
		b.survives = b.draw("survives", 2) == 0
		s.RequeueOnLoss = b.survives
		if b.draw("promised", 4) == 0 {
			b.due = t0.Add(20 * time.Minute)
			s.Deadline = b.due
		} else if b.draw("held", 5) == 0 {
			s.Hold, b.held = true, "user"
		}
		b.id = b.m.submit(s)
		b.check("submit")
		steps := []func() string{b.start, b.start, b.start, b.report, b.report, b.report, b.report, b.queue, b.cancel, b.hold, b.hold, b.requeue, b.requeue, b.room, b.room, b.node, b.node, b.expire}
		for range rapid.IntRange(5, 40).Draw(t, "steps") {
			b.m.now = b.m.now.Add(time.Duration(b.draw("minutes", 4)) * time.Minute)
			if what := steps[b.draw("step", len(steps))](); what != "" {
				b.check(what)
			}
		}
		b.m.f = restored(t, snapshotOf(t, b.m.f))
		b.check("a restore")
	})
}

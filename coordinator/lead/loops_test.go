package lead

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/coordinator/nodes"
	"github.com/berth-scheduler/berth/fsm"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// TestDrainsEnd: when their time has come and not before, by the end that was given, so
// that another drain that was ordered meanwhile stays; one without an end stays, too.
func TestDrainsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, Config{}, planBy(nil))
		for i := 1; i <= 4; i++ {
			l.machine(cluster.NodeID(fmt.Sprintf("n%d", i)), 0, nil)
		}
		began := time.Now()
		drain := func(node string, until time.Duration) {
			c := &logv1.DrainNode{Node: node, Drain: true, Reason: "fans"}
			if until > 0 {
				c.UntilUs = int64(cluster.TimeOf(began.Add(until)))
			}
			l.do(&logv1.Command{Kind: &logv1.Command_DrainNode{DrainNode: c}})
		}
		drain("n1", 10*time.Second)
		drain("n2", 20*time.Second)
		drain("n3", 0)
		l.loop(l.l.expire)
		for i, c := range []struct {
			at   time.Duration
			want string // those that take no jobs
		}{{9900 * time.Millisecond, "n1 n2 n3"}, {11 * time.Second, "n2 n3"}, {19900 * time.Millisecond, "n2 n3"}, {21 * time.Second, "n3"}, {time.Hour, "n3"}} {
			time.Sleep(c.at - time.Since(began))
			synctest.Wait()
			var got []string
			for _, n := range l.f.Nodes() {
				if n.Drain {
					got = append(got, string(n.ID))
				}
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("step %d, after %s: drained are %v, want %s", i, c.at, got, c.want)
			}
		}
		ends := l.since(0, func(c *logv1.Command) bool { return c.GetDrainNode() != nil && !c.GetDrainNode().Drain })
		for i, want := range []time.Duration{10 * time.Second, 20 * time.Second} {
			if c := ends[i].cmd.GetDrainNode(); len(ends) != 2 || c.UntilUs != int64(cluster.TimeOf(began.Add(want))) {
				t.Errorf("end %d does not say which drain it ends: %v", i, c)
			}
		}
	})
}

// TestDeadlinesPass: waiting jobs whose deadline passed are ended, in commands of at
// most a thousand, and again where one could not be written.
func TestDeadlinesPass(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, Config{}, planBy(nil))
		began := time.Now()
		due := job(1, func(s *cluster.Spec) { s.Deadline = cluster.TimeOf(began.Add(time.Minute)) })
		const n = 1100
		for range n {
			l.submit(due)
		}
		other := l.submit(job(1, nil))[0]
		l.mu.Lock()
		l.refuse = func(c *logv1.Command) bool { return c.GetExpireJobs() != nil && time.Since(began) < 63*time.Second }
		l.mu.Unlock()
		l.loop(l.l.expire)
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if n := l.refusals(); n != 0 {
			t.Errorf("asked for %d times before", n)
		}
		time.Sleep(10 * time.Second)
		sizes := []int{}
		for _, c := range l.since(0, func(c *logv1.Command) bool { return c.GetExpireJobs() != nil }) {
			sizes = append(sizes, len(c.cmd.GetExpireJobs().Jobs))
		}
		if d := cmp.Diff([]int{1000, 100}, sizes); d != "" || l.refusals() == 0 {
			t.Errorf("after %d refusals: %s", l.refusals(), d)
		}
		ended, _ := l.f.Jobs(fsm.Query{Keep: func(j *cluster.Job) bool { return j.State.Terminal() }})
		if len(ended) != n || l.job(other).State != cluster.JobPending {
			t.Errorf("%d of %d are ended, one without a deadline is %s", len(ended), n, l.job(other).State)
		}
	})
}

// TestLateGangsAreGivenUp: after the bound since they were placed, whoever leads, and
// not one that goes, that is given up already, that is in time or that is one node's.
func TestLateGangsAreGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, Config{GangTimeout: time.Minute}, planBy(nil))
		l.machine("n1", 3, nil)
		l.machine("n2", 3, nil)
		span := job(1, func(s *cluster.Spec) { s.Nodes = 2 })
		early := l.submit(span)[0] // waits long before it is placed
		time.Sleep(time.Hour)
		goes := l.running(span, berth("n1", 0), berth("n2", 0))
		single := l.submit(job(1, nil))[0]
		l.start(single, berth("n1", 1))
		placed := time.Now()
		l.start(early, berth("n1", 1), berth("n2", 1))
		l.do(&logv1.Command{Kind: &logv1.Command_ReportAttempt{ReportAttempt: &logv1.ReportAttempt{
			Node: "n1", Job: uint64(early), Attempt: 1, Token: uint64(l.job(early).Live().Token), State: uint32(cluster.JobStarting), Ready: true}}})
		time.Sleep(30 * time.Second)
		late := l.submit(span)[0]
		l.start(late, berth("n1", 2), berth("n2", 2))
		l.do(&logv1.Command{Kind: &logv1.Command_SetNodeState{SetNodeState: &logv1.SetNodeState{Node: "n2", State: uint32(cluster.NodeUnreachable), BootId: "b"}}})
		l.loop(l.l.undoLate)
		undone := func(c *logv1.Command) bool { return c.GetUndoGang() != nil }
		time.Sleep(60*time.Second - time.Since(placed))
		if got := l.since(0, undone); len(got) != 0 {
			t.Errorf("at the bound: %v", got)
		}
		time.Sleep(2 * time.Second)
		got := l.since(0, undone)
		if len(got) != 1 || got[0].cmd.GetUndoGang().Job != uint64(early) || got[0].cmd.GetUndoGang().Why != "node n2 was not ready to start within 1m0s" {
			t.Fatalf("after it: %v", got)
		}
		time.Sleep(30 * time.Second)
		got = l.since(0, undone)
		if len(got) != 2 || got[1].cmd.GetUndoGang().Job != uint64(late) || got[1].cmd.GetUndoGang().Why != "nodes n[1-2] were not ready to start within 1m0s" {
			t.Errorf("half a minute later: %v", got)
		}
		time.Sleep(time.Hour)
		if n := len(l.since(0, undone)); n != 2 || l.job(goes).Live() == nil || l.job(single).Live() == nil {
			t.Errorf("an hour later %d are given up", n)
		}
	})
}

// TestMarksOfTimeLimits: of each running job with a limit the marks that somebody wants
// to know of, its owner or a webhook, once each and as soon as they have come.
func TestMarksOfTimeLimits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, Config{}, planBy(nil))
		l.machine("n1", 3, nil)
		want := func(mail cluster.MailEvents) *cluster.Spec {
			return job(0, func(s *cluster.Spec) {
				s.TimeLimit = 1000 * time.Second
				if s.Mail.Events = mail; mail != 0 {
					s.Mail.To = "ada@site"
				}
			})
		}
		two := l.submit(want(cluster.MailTimeLimit50 | cluster.MailTimeLimit90))[0]
		l.start(two, berth("n1"))
		time.Sleep(100 * time.Second) // it is placed, and does not run yet
		l.say(two, cluster.JobRunning, nil)
		began := time.Now()
		l.running(want(0), berth("n1"))
		l.running(job(0, func(s *cluster.Spec) { s.Mail = cluster.Mail{Events: cluster.MailMarks, To: "ada@site"} }), berth("n1"))
		l.loop(l.l.markLimits)
		marks := func() (out []string) {
			for _, c := range l.since(0, func(c *logv1.Command) bool { return c.GetMarkAttempt() != nil }) {
				m := c.cmd.GetMarkAttempt()
				out = append(out, fmt.Sprintf("%s job %d %s", c.at.Sub(began), m.Job, cluster.MailEvents(m.Marks)))
			}
			return out
		}
		time.Sleep(820 * time.Second)
		time.Sleep(time.Second) // the leader looks each two seconds
		l.do(&logv1.Command{Kind: &logv1.Command_AddWebhook{AddWebhook: &logv1.AddWebhook{Webhook: &logv1.Webhook{
			Url: "https://site/hook", Secret: bytes.Repeat([]byte{1}, 32), Events: uint32(cluster.MailTimeLimit80), All: true, User: "ada", Uid: 1000}}}})
		time.Sleep(300 * time.Second)
		wants := []string{
			fmt.Sprintf("8m20s job %d %s", two, cluster.MailTimeLimit50),
			fmt.Sprintf("13m42s job %d %s", two, cluster.MailTimeLimit80), fmt.Sprintf("13m42s job %d %s", two+1, cluster.MailTimeLimit80),
			fmt.Sprintf("15m0s job %d %s", two, cluster.MailTimeLimit90),
		}
		if d := cmp.Diff(wants, marks()); d != "" {
			t.Error(d)
		}
	})
}

// TestProgressIsKept: what is news of running jobs is written down, all of it, in
// entries of a bounded size; what is no news is not, nor what nobody reads yet.
func TestProgressIsKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, Config{}, planBy(nil))
		l.machine("n1", 0, func(n *cluster.Node) { n.CPUMilli, n.MemMiB = 1<<20, 1<<20 })
		const n = 520
		var ids []cluster.JobID
		for range n {
			ids = append(ids, l.running(job(0, func(s *cluster.Spec) { s.CPUMilli, s.MemMiB = 100, 10 }), cluster.Berth{Node: "n1", CPUMilli: 100, MemMiB: 10}))
		}
		say := func(step int64) {
			for _, id := range ids {
				l.use(id, 1, nodes.Use{Progress: &cluster.Progress{Step: step, Total: 1000, At: cluster.TimeOf(time.Now())}})
			}
		}
		l.mu.Lock()
		l.part[cluster.AttemptID{Job: ids[0], No: 1}] = true // of which a node has not told: its progress counts
		l.mu.Unlock()
		l.loop(l.l.noteProgress)
		sizes := func(mark int) (out []int) {
			for _, c := range l.since(mark, func(c *logv1.Command) bool { return c.GetNoteProgress() != nil }) {
				out = append(out, len(c.cmd.GetNoteProgress().Attempts))
			}
			return out
		}
		time.Sleep(12 * time.Second)
		if got := sizes(0); got != nil {
			t.Errorf("nobody says anything: %v", got)
		}
		say(100)
		time.Sleep(6 * time.Second)
		if d := cmp.Diff([]int{500, 20}, sizes(0)); d != "" {
			t.Errorf("all say something: %s", d)
		}
		for _, id := range ids {
			if p := l.job(id).Live().Progress; p == nil || p.Step != 100 {
				t.Fatalf("job %d is at %v", id, p)
			}
		}
		mark := l.mark()
		time.Sleep(10 * time.Second)
		if got := sizes(mark); got != nil {
			t.Errorf("it is no news any more: %v", got)
		}
		l.prop.SetVersion(1, nil)
		say(700)
		time.Sleep(6 * time.Second)
		if got := sizes(mark); got != nil {
			t.Errorf("not every coordinator reads it: %v", got)
		}
		l.prop.SetVersion(fsm.EntryVersion, nil)
		say(900)
		time.Sleep(6 * time.Second)
		if d := cmp.Diff([]int{500, 20}, sizes(mark)); d != "" {
			t.Error(d)
		}
	})
}

// TestPace: the first sixteen times nothing is held back, then the wait grows by five
// seconds for each sixteen more, up to a minute.
func TestPace(t *testing.T) {
	t.Parallel()
	p, at := &pace{}, cluster.Time(1)
	for n := range 400 {
		wait := time.Duration(n/16) * 5 * time.Second
		if wait > time.Minute {
			wait = time.Minute
		}
		if n > 0 && wait > 0 {
			if at = at.Add(wait - time.Microsecond); p.due(at) {
				t.Fatalf("time %d comes before %s", n, wait)
			}
			at = at.Add(time.Microsecond)
		}
		if !p.due(at) {
			t.Fatalf("time %d does not come after %s", n, wait)
		}
	}
}

// TestCheckpointsAreCommitted: each hash that the leader takes, once, with its index.
func TestCheckpointsAreCommitted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, Config{}, planBy(nil))
		l.machine("n1", 0, nil)
		l.loop(l.l.checkpoints)
		for i := range 2500 {
			l.do(&logv1.Command{Kind: &logv1.Command_DrainNode{DrainNode: &logv1.DrainNode{Node: "n1", Drain: i%2 == 0, Reason: "x"}}})
			if i%100 == 0 {
				time.Sleep(time.Second)
			}
		}
		time.Sleep(time.Second)
		var got []uint64
		for _, c := range l.since(0, func(c *logv1.Command) bool { return c.GetCheckpoint() != nil }) {
			got = append(got, c.cmd.GetCheckpoint().Index)
			if c.cmd.GetCheckpoint().Index == 0 || len(c.cmd.GetCheckpoint().Hash) == 0 {
				t.Errorf("%v", c.cmd)
			}
		}
		index, hash := l.f.LastCheckpoint()
		last := l.since(0, func(c *logv1.Command) bool { return c.GetCheckpoint() != nil })[len(got)-1].cmd.GetCheckpoint()
		if d := cmp.Diff([]uint64{1000, 2000}, got); d != "" || last.Index != index || !bytes.Equal(last.Hash, hash) {
			t.Errorf("%s; the last is of %d, the state's of %d", d, last.Index, index)
		}
	})
}

// TestPortsOfGangs: each attempt of several processes has a port that no live one on
// its first node's host has, also those of one plan; others have none.
func TestPortsOfGangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, Config{GangPorts: [2]uint16{4000, 4004}}, planBy(nil))
		l.machine("n1", 0, nil)
		l.machine("n2", 0, nil)
		l.machine("n3", 0, func(n *cluster.Node) { n.Address = "10.0.0.2:9" }) // another node at n2's address
		span := job(0, func(s *cluster.Spec) { s.Nodes = 2 })
		plan := func(firsts ...cluster.NodeID) (starts []dispatch.Start) {
			for _, first := range firsts {
				other := cluster.NodeID("n2")
				if first != "n1" {
					other = "n1"
				}
				starts = append(starts, dispatch.Start{Job: l.submit(span)[0], Attempt: 1, Berth: berth(first), Rest: []cluster.Berth{berth(other)}})
			}
			return starts
		}
		commit := func(starts []dispatch.Start) {
			r := l.do(&logv1.Command{Kind: &logv1.Command_ApplyPlan{ApplyPlan: conv.PlanToLog(&dispatch.Plan{Starts: starts})}})
			if len(r.Plan.Started) != len(starts) {
				t.Fatalf("rejected: %v", r.Plan.Rejected)
			}
		}
		starts := plan("n1", "n1", "n2", "n3", "n2")
		starts = append(starts, dispatch.Start{Job: l.submit(job(0, nil))[0], Attempt: 1, Berth: berth("n1")})
		l.l.plan.assignPorts(starts)
		if p := starts[5].Port; p != 0 {
			t.Errorf("a job of one process has port %d", p)
		}
		taken := func(at map[string]map[uint16]cluster.JobID, starts []dispatch.Start) {
			t.Helper()
			for _, st := range starts[:min(5, len(starts))] {
				host := map[cluster.NodeID]string{"n1": "one", "n2": "two", "n3": "two"}[st.Berth.Node]
				if at[host] == nil {
					at[host] = map[uint16]cluster.JobID{}
				}
				if other, is := at[host][st.Port]; is || st.Port < 4000 || st.Port > 4004 {
					t.Errorf("job %d has port %d of host %s, which job %d has", st.Job, st.Port, host, other)
				}
				at[host][st.Port] = st.Job
			}
		}
		at := map[string]map[uint16]cluster.JobID{}
		taken(at, starts)
		commit(starts[:5])
		l.say(starts[0].Job, cluster.JobStarting, func(r *logv1.ReportAttempt) { r.Ready = true })
		l.say(starts[0].Job, cluster.JobRunning, nil) // one runs, the others start
		more := plan("n1", "n1", "n2")
		l.l.plan.assignPorts(more)
		taken(at, more)
		commit(more)
		l.do(&logv1.Command{Kind: &logv1.Command_SetNodeState{SetNodeState: &logv1.SetNodeState{Node: "n1", State: uint32(cluster.NodeUnreachable), BootId: "b"}}})
		last := plan("n2")
		l.l.plan.assignPorts(last)
		taken(at, last)
	})
}

// TestSecretsOfAttempts: each attempt has its own, where every node of it hands
// credentials out and every coordinator knows of them.
func TestSecretsOfAttempts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, Config{}, planBy(nil))
		l.machine("n1", 0, func(n *cluster.Node) { n.Credentials = true })
		l.machine("n2", 0, func(n *cluster.Node) { n.Credentials = true })
		l.machine("n3", 0, nil)
		starts := func() []dispatch.Start {
			return []dispatch.Start{
				{Job: 1, Berth: berth("n1")}, {Job: 2, Berth: berth("n2")}, {Job: 3, Berth: berth("n3")},
				{Job: 4, Berth: berth("n1"), Rest: []cluster.Berth{berth("n2")}}, {Job: 5, Berth: berth("n1"), Rest: []cluster.Berth{berth("n3")}},
				{Job: 6, Berth: berth("n1"), Rest: []cluster.Berth{berth("n9")}},
			}
		}
		ss := starts()
		l.l.plan.assignSecrets(ss)
		seen := map[string]cluster.JobID{}
		for _, st := range ss {
			has := len(st.Secret) > 0
			if want := st.Job == 1 || st.Job == 2 || st.Job == 4; has != want || has && len(st.Secret) != cluster.SecretBytes {
				t.Errorf("job %d has a secret: %t, want %t", st.Job, has, want)
			}
			if other, is := seen[string(st.Secret)]; is && has {
				t.Errorf("jobs %d and %d have one secret", other, st.Job)
			}
			seen[string(st.Secret)] = st.Job
		}
		l.prop.SetVersion(fsm.CredentialVersion-1, nil)
		ss = starts()
		if l.l.plan.assignSecrets(ss); len(ss[0].Secret) != 0 {
			t.Error("a secret is written that not every coordinator reads")
		}
	})
}

// TestNewsComeAtTheirPace: of a job that always has news as much is written as its pace
// lets through, which is remembered from look to look.
func TestNewsComeAtTheirPace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, Config{}, planBy(nil))
		l.machine("n1", 0, nil)
		id := l.running(job(0, nil), berth("n1"))
		l.loop(l.l.noteProgress)
		want, last := 0, time.Duration(-1)
		for n := range 12 * 40 { // each five seconds another tale, between two looks
			time.Sleep(progressEvery / 2)
			l.use(id, 1, nodes.Use{Progress: &cluster.Progress{Step: int64(1 + n), Total: int64(1_000_000 + n), At: cluster.TimeOf(time.Now())}})
			time.Sleep(progressEvery / 2)
			synctest.Wait()
			if at := time.Duration(n) * 5 * time.Second; want == 0 || at-last >= min(time.Minute, time.Duration(want/16)*5*time.Second) {
				want, last = want+1, at
			}
		}
		if got := len(l.since(0, func(c *logv1.Command) bool { return c.GetNoteProgress() != nil })); got != want || want > 200 {
			t.Errorf("%d times in forty minutes, want %d", got, want)
		}
	})
}

// TestNoticesAreSettledForSure: what became of notices is said until it is written.
func TestNoticesAreSettledForSure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, Config{}, planBy(nil))
		left := 4
		l.mu.Lock()
		l.refuse = func(c *logv1.Command) bool { left--; return left >= 0 }
		l.mu.Unlock()
		began := time.Now()
		if err := l.l.settleNotices(t.Context(), &logv1.SettleNotices{}); err != nil || l.refusals() != 4 || time.Since(began) < 4*settlePause {
			t.Errorf("after %d refusals and %s: %v", l.refusals(), time.Since(began), err)
		}
		if n := len(l.since(0, func(c *logv1.Command) bool { return c.GetSettleNotices() != nil })); n != 1 {
			t.Errorf("written %d times", n)
		}
	})
}

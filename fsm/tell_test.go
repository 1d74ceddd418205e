package fsm

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

func hookCmd(uid cluster.UID, all bool, ev cluster.MailEvents) *logv1.Command {
	return &logv1.Command{Kind: &logv1.Command_AddWebhook{AddWebhook: &logv1.AddWebhook{Webhook: &logv1.Webhook{
		Url: "https://example.org/hook", Secret: bytes.Repeat([]byte("s"), 32), Events: uint32(ev), Uid: uint32(uid), User: "u", All: all,
	}}}}
}

func unhookCmd(id uint64) *logv1.Command {
	return &logv1.Command{Kind: &logv1.Command_RemoveWebhook{RemoveWebhook: &logv1.RemoveWebhook{Id: id}}}
}

func settleCmd(sent []uint64, dead ...*logv1.SettleNotices_GivenUp) *logv1.Command {
	return &logv1.Command{Kind: &logv1.Command_SettleNotices{SettleNotices: &logv1.SettleNotices{Sent: sent, Dead: dead}}}
}

func markCmd(job cluster.JobID, attempt uint32, ev cluster.MailEvents) *logv1.Command {
	return &logv1.Command{Kind: &logv1.Command_MarkAttempt{MarkAttempt: &logv1.MarkAttempt{Job: uint64(job), Attempt: attempt, Marks: uint32(ev)}}}
}

func (w *world) mail() cluster.Mail {
	ev := cluster.MailEvents(rapid.SampledFrom([]int{0, 0, int(cluster.MailAll), int(cluster.MailEnd)}).Draw(w.t, "mail"))
	return cluster.Mail{Events: ev}
}

// telling adds and removes webhooks, and settles notices.
func (w *world) telling() *logv1.Command {
	hooks, _ := w.f.Webhooks()
	ns := w.f.Notices(0, 10)
	switch w.draw("telling", 5) {
	case 0:
		return hookCmd(cluster.UID(1000+w.draw("uid", 3)), w.draw("all", 2) == 0, cluster.MailEvents(w.draw("events", 1<<12)))
	case 1:
		id := uint64(9)
		if len(hooks) > 0 {
			id = hooks[w.draw("hook", len(hooks))].Id
		}
		return unhookCmd(id)
	case 2:
		if j, ok := w.pick(cluster.JobRunning); ok {
			return markCmd(j.ID, j.Last().No, cluster.MailEvents(w.draw("marks", 1<<12)))
		}
		return markCmd(99, 1, cluster.MailTimeLimit50)
	}
	var sent []uint64
	var dead []*logv1.SettleNotices_GivenUp
	for _, n := range ns {
		switch w.draw("fate", 3) {
		case 0:
			sent = append(sent, n.Seq)
		case 1:
			dead = append(dead, &logv1.SettleNotices_GivenUp{Seq: n.Seq, Error: "no route"})
		}
	}
	return settleCmd(append(sent, 1<<40), dead...)
}

// preempt asks a job to make room, mostly one that can.
func (w *world) preempt() *logv1.Command {
	j, ok := w.pick(cluster.JobRunning)
	if w.draw("any", 4) == 0 || !ok {
		if j, ok = w.pick(); !ok {
			return preemptCmd(dispatch.Preemption{Job: 99, Attempt: 1})
		}
	}
	p := dispatch.Preemption{Job: j.ID, Attempt: uint32(len(j.Attempts)), For: cluster.JobID(w.draw("for", 5)), Why: "at random"}
	if w.draw("stale", 6) == 0 {
		p.Attempt++
	}
	return preemptCmd(p)
}

// told are the notices that wait, in short.
func told(f *FSM) (out []string) {
	for _, n := range f.Notices(0, maxNotices) {
		out = append(out, fmt.Sprintf("%s job %d to %d %s", cluster.MailEvents(n.Event), n.Job, n.Target, cluster.JobState(n.State)))
	}
	return out
}

func mailed(ev cluster.MailEvents) *cluster.Spec {
	s := spec(1)
	s.Mail.Events = ev
	return s
}

// started brings job 1 to RUNNING on the first card.
func started(t *testing.T, s *cluster.Spec) *machine {
	t.Helper()
	m := lab(t)
	m.must(submitCmd(1, "r1", 1000, s))
	m.must(planCmd(dispatch.Plan{Starts: []dispatch.Start{{Job: 1, Attempt: 1, Why: "x",
		Berth: cluster.Berth{Node: "n1", GPUs: []cluster.GPUShare{share1("n1-g0", 8000, 300)}, CPUMilli: 1000, MemMiB: 512}}}}))
	m.must(m.says(1, cluster.JobRunning))
	return m
}

// says is what the agent reports of the last attempt of a job.
func (m *machine) says(id cluster.JobID, st cluster.JobState) *logv1.Command {
	a := m.job(id).Last()
	r := &logv1.ReportAttempt{Node: string(a.Berth.Node), Job: uint64(id), Attempt: a.No, Token: uint64(a.Token), State: uint32(st)}
	if st.Terminal() {
		r.Exit = exit(3)
		if st == cluster.JobCompleted {
			r.Exit = exit(0)
		}
	}
	return reportCmd(r)
}

func TestNoticesOfAJob(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		ev   cluster.MailEvents
		end  cluster.JobState
		want []string
	}{
		{"all, well", cluster.MailAll, cluster.JobCompleted, []string{"BEGIN job 1 to 0 RUNNING", "END job 1 to 0 COMPLETED"}},
		{"all, failed", cluster.MailAll, cluster.JobFailed, []string{"BEGIN job 1 to 0 RUNNING", "FAIL job 1 to 0 FAILED"}},
		{"end alone, failed", cluster.MailEnd, cluster.JobFailed, []string{"END job 1 to 0 FAILED"}},
		{"fail alone, well", cluster.MailFail, cluster.JobCompleted, nil},
		{"time limit", cluster.MailTimeLimit | cluster.MailEnd, cluster.JobTimeout, []string{"TIME_LIMIT job 1 to 0 TIMEOUT", "END job 1 to 0 TIMEOUT"}},
		{"none", 0, cluster.JobFailed, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := started(t, mailed(c.ev))
			m.must(m.says(1, cluster.JobRunning)) // again
			m.must(m.says(1, c.end))
			m.must(m.says(1, c.end)) // again
			if d := cmp.Diff(c.want, told(m.f)); d != "" {
				t.Error(d)
			}
			if d := cmp.Diff(c.want, told(restored(t, snapshotOf(t, m.f)))); d != "" {
				t.Error("after a restore", d)
			}
		})
	}
}

func TestANoticeSaysItAll(t *testing.T) {
	t.Parallel()
	s := mailed(cluster.MailEnd)
	s.Name, s.Comment, s.Mail.To = "train", "a\nb", "ann@example.org"
	m := started(t, s)
	m.must(m.says(1, cluster.JobFailed))
	n := m.f.Notices(0, 10)[0]
	if n.Name != "train" || n.Comment != "a\nb" || n.To != "ann@example.org" || n.GetExitCode() != 3 || n.ExitCode == nil || n.Nodes != "n1" || n.Uid != 1000 || n.Attempt != 1 {
		t.Errorf("%v", n)
	}
	if n.RanUs != time.Second.Microseconds() || n.QueuedUs != 2*time.Second.Microseconds() {
		t.Errorf("waited %d µs, ran %d µs", n.QueuedUs, n.RanUs)
	}
}

func TestCancelledAndRequeuedAreTold(t *testing.T) {
	t.Parallel()
	m := started(t, mailed(cluster.MailAll))
	m.must(requeueCmd(1, 1000, false))
	m.must(m.says(1, cluster.JobCancelled))
	m.must(cancelCmd(1, 1000))
	want := []string{"BEGIN job 1 to 0 RUNNING", "REQUEUE job 1 to 0 PENDING", "END job 1 to 0 CANCELLED"}
	if d := cmp.Diff(want, told(m.f)); d != "" {
		t.Error(d)
	}
}

func TestInvalidDependIsToldOnce(t *testing.T) {
	t.Parallel()
	m := started(t, spec(1))
	s := mailed(cluster.MailInvalidDepend)
	s.Depends = []cluster.Dependency{{Kind: cluster.AfterOK, Job: 1}}
	m.must(submitCmd(2, "r2", 1000, s))
	m.must(m.says(1, cluster.JobFailed))
	if d := cmp.Diff([]string{"INVALID_DEPEND job 2 to 0 PENDING"}, told(m.f)); d != "" {
		t.Error(d)
	}
}

func TestMarksAreToldOnce(t *testing.T) {
	t.Parallel()
	m := started(t, mailed(cluster.MailMarks))
	m.must(markCmd(1, 1, cluster.MailTimeLimit50))
	m.must(markCmd(1, 1, cluster.MailTimeLimit50))
	m.must(markCmd(1, 1, cluster.MailTimeLimit50|cluster.MailTimeLimit80|cluster.MailTimeLimit90|cluster.MailEnd))
	want := []string{"TIME_LIMIT_50 job 1 to 0 RUNNING", "TIME_LIMIT_90 job 1 to 0 RUNNING"}
	if d := cmp.Diff(want, told(m.f)); d != "" {
		t.Error(d)
	}
	m.refused(cluster.CodeConflict, markCmd(1, 2, cluster.MailTimeLimit50))
	m.refused(cluster.CodeNotFound, markCmd(7, 1, cluster.MailTimeLimit50))
}

func TestWebhooksSeeTheirOwnersJobs(t *testing.T) {
	t.Parallel()
	m := lab(t)
	mine := m.must(hookCmd(1000, false, cluster.MailEnd|cluster.MailBegin)).Webhook
	m.must(hookCmd(1001, false, cluster.MailEnd))
	all := m.must(hookCmd(0, true, cluster.MailFail)).Webhook
	m.must(submitCmd(1, "r1", 1000, spec(1)))
	m.must(cancelCmd(1, 1000))
	if d := cmp.Diff([]string{fmt.Sprintf("END job 1 to %d CANCELLED", mine)}, told(m.f)); d != "" {
		t.Error(d)
	}
	m.must(unhookCmd(mine))
	if got := told(m.f); got != nil {
		t.Errorf("a removed webhook still waits for %v", got)
	}
	m.refused(cluster.CodeNotFound, unhookCmd(mine))
	if hs, _ := m.f.Webhooks(); len(hs) != 2 || hs[1].Id != all || all != 3 {
		t.Errorf("%v", hs)
	}
	for range maxHooksOfUser {
		m.must(hookCmd(2000, false, cluster.MailEnd))
	}
	m.refused(cluster.CodeExhausted, hookCmd(2000, false, cluster.MailEnd))
	m.must(hookCmd(2000, true, cluster.MailEnd))
	m.refused(cluster.CodeInvalid, hookCmd(2001, false, 0))
}

func TestSettled(t *testing.T) {
	t.Parallel()
	m := lab(t)
	id := m.must(hookCmd(1000, false, cluster.MailEnd)).Webhook
	for i := range 4 {
		m.must(submitCmd(cluster.JobID(i+1), fmt.Sprintf("r%d", i), 1000, mailed(cluster.MailEnd)))
		m.must(cancelCmd(cluster.JobID(i+1), 1000))
	}
	ns := m.f.Notices(0, 100)
	if len(ns) != 8 {
		t.Fatalf("%d notices", len(ns))
	}
	long := strings.Repeat("é", 400)
	m.must(settleCmd([]uint64{ns[0].Seq, ns[1].Seq}, &logv1.SettleNotices_GivenUp{Seq: ns[2].Seq, Error: "exit 1"}, &logv1.SettleNotices_GivenUp{Seq: ns[3].Seq, Error: long}))
	m.must(settleCmd([]uint64{ns[0].Seq})) // again
	hs, counts := m.f.Webhooks()
	if counts.MailsSent != 1 || counts.MailsDead != 1 || hs[0].Id != id || hs[0].Sent != 1 || hs[0].Dead != 1 || hs[0].LastSentUs == 0 {
		t.Errorf("%v, %v", counts, hs)
	}
	dead := m.f.DeadNotices()
	if len(dead) != 2 || dead[0].Error != "exit 1" || len(dead[1].Error) > maxDeadReason || !strings.HasPrefix(long, dead[1].Error) {
		t.Errorf("%v", dead)
	}
	if got := m.f.Notices(ns[4].Seq, 2); len(got) != 2 || got[0].Seq != ns[5].Seq {
		t.Errorf("%v", got)
	}
	if f := restored(t, snapshotOf(t, m.f)); len(f.DeadNotices()) != 2 || len(f.Notices(0, 100)) != 4 {
		t.Error("lost by a restore")
	}
}

// TestWebhooksLeaveRoomForMail: a user with as many webhooks as one may have, none of
// which takes anything, keeps nobody else's notices from being kept; nor do those of
// administrators keep mail from it.
func TestWebhooksLeaveRoomForMail(t *testing.T) {
	t.Parallel()
	m := lab(t)
	var own, all []uint64
	for range maxHooksOfUser {
		own = append(own, m.must(hookCmd(1000, false, cluster.MailEnd)).Webhook)
		all = append(all, m.must(hookCmd(0, true, cluster.MailEnd)).Webhook)
	}
	end := func(uid cluster.UID, n int, mail cluster.MailEvents) {
		for ; n > 0; n -= 50 {
			specs := make([]*cluster.Spec, min(n, 50))
			for k := range specs {
				specs[k] = mailed(mail)
			}
			for _, id := range m.must(submitCmd(m.f.NextJobID(), fmt.Sprint("r", m.index), uid, specs...)).Jobs {
				m.must(cancelCmd(id, uid))
			}
		}
	}
	waiting := func() (of map[uint64]int) {
		of = map[uint64]int{}
		for _, n := range m.f.Notices(0, maxNotices) {
			of[n.Target]++
		}
		return of
	}
	end(1000, 2_600, 0)
	if of := waiting(); of[own[0]] != 2_500 || of[own[7]] != 2_500 || of[all[0]] != 2_600 {
		t.Errorf("after 2,600 ends: %v wait by webhook", of)
	}
	end(1000, 1_200, 0)
	end(1001, 10, cluster.MailEnd)
	if of := waiting(); len(m.f.Notices(0, maxNotices)) != 50_010 || of[0] != 10 {
		t.Errorf("with all that webhooks may keep: %v wait by webhook", of)
	}
	m.must(unhookCmd(own[0]))
	end(1001, 10, cluster.MailEnd)
	if of := waiting(); of[0] != 20 || of[all[0]] != 3_760 {
		t.Errorf("with one webhook less: %v wait by webhook", of)
	}
}

// TestFloodsAreBounded: what waits for mail of one user, and what was given up,
// is bounded, and what is not kept is counted.
func TestFloodsAreBounded(t *testing.T) {
	t.Parallel()
	m := lab(t)
	const n = maxMailsOfUser + 50
	for i := 0; i < n; i += 50 {
		specs := make([]*cluster.Spec, 50)
		for k := range specs {
			specs[k] = mailed(cluster.MailEnd)
		}
		m.must(submitCmd(cluster.JobID(i+1), fmt.Sprintf("r%d", i), 1000, specs...))
	}
	for i := range n {
		m.must(cancelCmd(cluster.JobID(i+1), 1000))
	}
	_, counts := m.f.Webhooks()
	if got := len(m.f.Notices(0, maxNotices)); got != maxMailsOfUser || counts.Lost != 50 {
		t.Fatalf("%d wait, %d lost", got, counts.Lost)
	}
	var dead []*logv1.SettleNotices_GivenUp
	for _, x := range m.f.Notices(0, maxNotices) {
		dead = append(dead, &logv1.SettleNotices_GivenUp{Seq: x.Seq, Error: "no"})
	}
	m.must(settleCmd(nil, dead...))
	if got := m.f.DeadNotices(); len(got) != maxDeadNotices || got[len(got)-1].Notice.Seq != dead[len(dead)-1].Seq {
		t.Errorf("%d are kept", len(got))
	}
	a, b := m.f.Hash(), restored(t, snapshotOf(t, m.f)).Hash()
	if !bytes.Equal(a, b) {
		t.Error("a restore has another hash")
	}
	// What has gone makes room for as many, and what was sent is no dead one, whoever says so.
	again := m.must(submitCmd(m.f.NextJobID(), "again", 1000, mailed(cluster.MailEnd), mailed(cluster.MailEnd))).Jobs
	for _, id := range again {
		m.must(cancelCmd(id, 1000))
	}
	ns := m.f.Notices(0, maxNotices)
	if _, counts := m.f.Webhooks(); len(ns) != 2 || counts.Lost != 50 {
		t.Fatalf("%d wait, %d lost", len(ns), counts.Lost)
	}
	m.must(settleCmd([]uint64{ns[0].Seq}, &logv1.SettleNotices_GivenUp{Seq: ns[0].Seq}, &logv1.SettleNotices_GivenUp{Seq: ns[1].Seq}))
	last := m.f.DeadNotices()
	if _, counts := m.f.Webhooks(); counts.MailsSent != 1 || counts.MailsDead != uint64(len(dead)+1) || last[len(last)-1].Notice.Seq != ns[1].Seq || last[len(last)-2].Notice.Seq == ns[0].Seq {
		t.Errorf("%d were sent and %d given up", counts.MailsSent, counts.MailsDead)
	}
}

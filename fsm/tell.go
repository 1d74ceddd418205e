package fsm

import (
	"fmt"
	"slices"
	"sort"

	"github.com/berth-scheduler/berth/cluster"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// Bounds of what waits to be told. Beyond them a notice is not kept, and
// counted as lost.
const (
	maxMailsOfUser  = 2_000
	maxHookNotices  = 20_000
	maxNotices      = 100_000
	maxWebhooks     = 256
	maxHooksOfUser  = 8
	maxDeadNotices  = 1_000
	maxDeadReason   = 300
	maxNoticeNodes  = 512
	maxNoticeDetail = 512
)

// outbox is what is yet to be told of jobs, to whom, and what became of it. Its
// parts are replaced and never changed in place, but for the counts per target,
// which are never stored.
type outbox struct {
	told    telling
	notices []*logv1.Notice     // by seq
	hooks   []*logv1.Webhook    // by id
	dead    []*logv1.DeadNotice // oldest first

	mails map[uint32]int // that wait, by the owner's uid
	posts map[uint64]int // that wait, by webhook
}

// telling counts.
type telling struct{ nextSeq, nextWebhook, mailsSent, mailsDead, lost uint64 }

func (t telling) record() *logv1.Telling {
	return &logv1.Telling{NextSeq: t.nextSeq, NextWebhook: t.nextWebhook, MailsSent: t.mailsSent, MailsDead: t.mailsDead, Lost: t.lost}
}

func newOutbox() outbox {
	return outbox{mails: map[uint32]int{}, posts: map[uint64]int{}}
}

// tell keeps a notice for each of those who want to know what j, put in the
// place of old, has come to. Jobs that nobody is told of cost two comparisons.
func (s *State) tell(old, j *cluster.Job) {
	if j.Spec.Mail.Events == 0 && len(s.out.hooks) == 0 || s.rules < tellVersion {
		return
	}
	if ev := s.ofArray(j, happened(old, j)); ev != 0 {
		s.announce(j, ev, "")
	}
}

// happened is what makes the difference between old and j, as events. An end is
// both MailEnd and, if it was a bad one, MailFail.
func happened(old, j *cluster.Job) (ev cluster.MailEvents) {
	a := j.Last()
	if a != nil && a.Started != 0 && (old == nil || old.Last() == nil || old.Last().No != a.No || old.Last().Started == 0) {
		ev |= cluster.MailBegin
	}
	switch {
	case old != nil && old.State.Terminal():
	case j.State.Terminal():
		ev |= cluster.MailEnd
		if j.State != cluster.JobCompleted && j.State != cluster.JobCancelled {
			ev |= cluster.MailFail
		}
		if j.State == cluster.JobTimeout {
			ev |= cluster.MailTimeLimit
		}
	case old != nil && old.State.Live() && j.State.Waiting():
		ev |= cluster.MailRequeue
	}
	if j.Reason.Code == cluster.ReasonDependNever && (old == nil || old.Reason.Code != cluster.ReasonDependNever) {
		ev |= cluster.MailInvalidDepend
	}
	return ev
}

// announce keeps a notice of each event for each of those who want it. What is
// said of idle GPUs goes to the owner, wanted or not.
func (s *State) announce(j *cluster.Job, ev cluster.MailEvents, text string) {
	wanted := ev & (j.Spec.Mail.Events | cluster.MailIdle)
	for _, e := range apart(wanted) {
		s.notify(j, e, 0, text)
	}
	for _, h := range s.out.hooks {
		if !h.All && h.Uid != uint32(j.Owner.UID) {
			continue
		}
		for _, e := range apart(ev & cluster.MailEvents(h.Events)) {
			s.notify(j, e, h.Id, text)
		}
	}
}

// apart are the events in the order in which they are told. A bad end is told
// once, as that, and of several marks of the time limit the last alone.
func apart(ev cluster.MailEvents) (out []cluster.MailEvents) {
	if ev&cluster.MailFail != 0 {
		ev &^= cluster.MailEnd
	}
	for e := cluster.MailTimeLimit90; e > cluster.MailTimeLimit50; e >>= 1 {
		if ev&e != 0 {
			ev &^= cluster.MailMarks &^ e
		}
	}
	for e := cluster.MailEvents(1); e <= ev && e != 0; e <<= 1 {
		if ev&e != 0 {
			out = append(out, e)
		}
	}
	// What it was before its end comes before it.
	slices.SortStableFunc(out, func(a, b cluster.MailEvents) int { return ending(a) - ending(b) })
	return out
}

func ending(e cluster.MailEvents) int {
	if e == cluster.MailEnd || e == cluster.MailFail {
		return 1
	}
	return 0
}

func (s *State) notify(j *cluster.Job, e cluster.MailEvents, target uint64, text string) {
	o := &s.out
	uid := uint32(j.Owner.UID)
	if len(o.notices) >= maxNotices || target == 0 && o.mails[uid] >= maxMailsOfUser || o.posts[target] >= maxHookNotices && target != 0 {
		o.told.lost++
		s.touchTelling()
		return
	}
	n := &logv1.Notice{
		Seq: o.told.nextSeq + 1, AtUs: int64(s.now), Event: uint32(e), Target: target, Job: uint64(j.ID), Name: j.Spec.Name,
		User: j.Owner.Name, Uid: uid, Partition: j.Spec.Partition, Comment: j.Spec.Comment, State: uint32(j.State),
		Reason: string(j.Reason.Code), Detail: clip(j.Reason.Detail, maxNoticeDetail), Text: clip(text, maxNoticeDetail),
	}
	if target == 0 {
		n.To = j.Spec.Mail.To
	}
	if s.rules >= arrayMailVersion {
		s.ofWhichArray(j, e, n)
	}
	from := j.Eligible
	if a := j.Last(); a != nil && (!j.State.Waiting() || e == cluster.MailRequeue) {
		n.Attempt, n.Nodes = a.No, clip(cluster.FoldNames(a.NodeIDs()), maxNoticeNodes)
		if x := a.Exit; x != nil && a.State.Terminal() {
			n.ExitCode, n.Signal = &x.Code, x.Signal
		}
		if a.Started != 0 {
			n.QueuedUs = max(0, a.Started.Sub(from).Microseconds())
			end := s.now
			if a.Ended != 0 {
				end = a.Ended
			}
			n.RanUs = max(0, end.Sub(a.Started).Microseconds())
		}
	}
	o.told.nextSeq = n.Seq
	s.touchTelling()
	s.putNotice(n)
}

// ofWhichArray says in n of which array j is a task. What ofArray lets pass once
// for an array is of all of it, unless each task is told of.
func (s *State) ofWhichArray(j *cluster.Job, e cluster.MailEvents, n *logv1.Notice) {
	if j.ArrayJobID == 0 {
		return
	}
	n.ArrayJob, n.ArrayTask = uint64(j.ArrayJobID), j.ArrayTaskID
	const once = cluster.MailBegin | cluster.MailEnd | cluster.MailFail | cluster.MailTimeLimit | cluster.MailInvalidDepend
	a := s.arrays[j.ArrayJobID]
	if a == nil || e&once == 0 || j.Spec.Mail.Events&cluster.MailArrayTasks != 0 {
		return
	}
	n.WholeArray, n.ArrayTask = true, 0
	if !a.done() {
		return
	}
	switch good, all := a.good.n, a.len(); {
	case good == all:
		n.Text = cluster.JobCompleted.String()
	case good == 0:
		n.Text = fmt.Sprintf("none of %d tasks completed", all)
	default:
		n.Text = fmt.Sprintf("Mixed, %d of %d tasks completed", good, all)
	}
	if a.good.n < a.len() && j.State == cluster.JobCompleted { // the last to end is not what came of it
		n.State = uint32(cluster.JobFailed)
	}
}

func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && s[most]&0xc0 == 0x80 { // never within a character
		most--
	}
	return s[:most]
}

func (s *State) putNotice(n *logv1.Notice) {
	o := &s.out
	o.notices = append(o.notices, n)
	if n.Target == 0 {
		o.mails[n.Uid]++
	} else {
		o.posts[n.Target]++
	}
	s.hash.notices.touch(n.Seq)
}

func (s *State) touchTelling() { s.hash.rest.touch(entity{kind: kindTelling}) }

func (s *State) notice(seq uint64) *logv1.Notice {
	i := sort.Search(len(s.out.notices), func(i int) bool { return s.out.notices[i].Seq >= seq })
	if i < len(s.out.notices) && s.out.notices[i].Seq == seq {
		return s.out.notices[i]
	}
	return nil
}

// drop takes notices away for which gone is true, and returns them.
func (s *State) drop(gone func(*logv1.Notice) bool) (out []*logv1.Notice) {
	o := &s.out
	kept := make([]*logv1.Notice, 0, len(o.notices)) // a snapshot may hold the old slice
	for _, n := range o.notices {
		if !gone(n) {
			kept = append(kept, n)
			continue
		}
		out = append(out, n)
		s.hash.notices.touch(n.Seq)
		if n.Target != 0 {
			less(o.posts, n.Target)
		} else {
			less(o.mails, n.Uid)
		}
	}
	o.notices = kept
	return out
}

func less[K comparable](m map[K]int, k K) {
	if m[k]--; m[k] <= 0 {
		delete(m, k)
	}
}

// settleNotices takes over what became of notices.
func (s *State) settleNotices(c *logv1.SettleNotices) Result {
	why := map[uint64]string{}
	sent := map[uint64]struct{}{}
	for _, seq := range c.Sent {
		sent[seq] = struct{}{}
	}
	for _, d := range c.Dead {
		why[d.Seq] = d.Error
	}
	out := s.drop(func(n *logv1.Notice) bool {
		_, dead := why[n.Seq]
		_, ok := sent[n.Seq]
		return dead || ok
	})
	for _, n := range out {
		reason, dead := why[n.Seq]
		_, arrived := sent[n.Seq]
		s.countSent(n.Target, arrived)
		if dead && !arrived {
			s.bury(n, reason)
		}
	}
	s.touchTelling()
	return Result{}
}

func (s *State) countSent(target uint64, arrived bool) {
	o := &s.out
	if target == 0 {
		if arrived {
			o.told.mailsSent++
		} else {
			o.told.mailsDead++
		}
		return
	}
	i, ok := s.hook(target)
	if !ok {
		return
	}
	h := cloneHook(o.hooks[i])
	if arrived {
		h.Sent, h.LastSentUs = h.Sent+1, int64(s.now)
	} else {
		h.Dead++
	}
	s.setHooks(slices.Concat(o.hooks[:i], []*logv1.Webhook{h}, o.hooks[i+1:]), h.Id)
}

// bury keeps the newest notices that were given up.
func (s *State) bury(n *logv1.Notice, reason string) {
	o := &s.out
	d := &logv1.DeadNotice{Notice: n, Error: clip(reason, maxDeadReason), AtUs: int64(s.now)}
	from := 0
	if len(o.dead) >= maxDeadNotices {
		from = len(o.dead) - maxDeadNotices + 1
	}
	for _, old := range o.dead[:from] {
		s.hash.dead.touch(old.Notice.Seq)
	}
	o.dead = append(slices.Clone(o.dead[from:]), d)
	s.hash.dead.touch(n.Seq)
}

func (s *State) deadNotice(seq uint64) *logv1.DeadNotice {
	i := slices.IndexFunc(s.out.dead, func(d *logv1.DeadNotice) bool { return d.Notice.Seq == seq })
	if i < 0 {
		return nil
	}
	return s.out.dead[i]
}

// mark tells of a part of the time limit that a running attempt has used, once.
func (s *State) mark(index uint64, c *logv1.MarkAttempt) Result {
	old := s.jobs.get(cluster.JobID(c.Job))
	if old == nil {
		return refuse(cluster.CodeNotFound, "job %d is gone", c.Job)
	}
	a := old.Live()
	if a == nil || a.No != c.Attempt || a.Started == 0 {
		return refuse(cluster.CodeConflict, "attempt %d of job %d is not the one that runs", c.Attempt, c.Job)
	}
	news := cluster.MailEvents(c.Marks) & cluster.MailMarks &^ a.Marks
	if news == 0 {
		return Result{}
	}
	j := old.Clone()
	j.Last().Marks |= news
	j.Revision = index
	s.putJob(old, j)
	s.announce(j, news, "")
	return Result{}
}

// outView is the outbox as it is now, for a snapshot.
func (s *State) outView() outbox {
	return outbox{told: s.out.told, notices: slices.Clone(s.out.notices), hooks: s.out.hooks, dead: s.out.dead}
}

// applyTelling applies what is told of jobs, and what becomes of idle ones.
func (s *State) applyTelling(index uint64, cmd *logv1.Command) (r Result) {
	switch k := cmd.Kind.(type) {
	case *logv1.Command_AddWebhook:
		r = s.addWebhook(k.AddWebhook)
	case *logv1.Command_RemoveWebhook:
		r = s.removeWebhook(k.RemoveWebhook)
	case *logv1.Command_SettleNotices:
		r = s.settleNotices(k.SettleNotices)
	case *logv1.Command_MarkAttempt:
		r = s.mark(index, k.MarkAttempt)
	case *logv1.Command_IdleAttempt:
		r = s.idle(index, k.IdleAttempt)
	}
	return r
}

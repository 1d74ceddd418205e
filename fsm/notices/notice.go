package notices

import (
	"fmt"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/hostnames"
	"github.com/berth-scheduler/berth/fsm/command"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// Array is the progress of the tasks of an array.
type Array struct {
	// Over have ended, Good of them as COMPLETED; Begun were started once and have
	// not ended.
	Tasks, Over, Good, Begun int
}

func (a *Array) done() bool { return a.Over == a.Tasks }

// Wants reports whether anyone may want notices of j.
func (o *Outbox) Wants(j *cluster.Job) bool { return j.Spec.Mail.Events != 0 || len(o.hooks) > 0 }

// Tell queues a notice for everyone who wants to know of the change from old to j;
// a is its array, nil for none.
func (o *Outbox) Tell(at command.Entry, old, j *cluster.Job, a *Array) {
	if ev := ofArray(j, a, happened(old, j)); ev != 0 {
		o.Announce(at, j, a, ev, "")
	}
}

// happened returns the difference between old and j as events. An end is both
// MailEnd and, if it was a bad one, MailFail.
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

// Announce queues a notice of each event for everyone who wants it. Notices of idle
// GPUs go to the owner in any case.
func (o *Outbox) Announce(at command.Entry, j *cluster.Job, a *Array, ev cluster.MailEvents, text string) {
	wanted := ev & (j.Spec.Mail.Events | cluster.MailIdle)
	for _, e := range apart(wanted) {
		o.notify(at, j, a, e, 0, text)
	}
	for _, h := range o.hooks {
		if !h.All && h.Uid != uint32(j.Owner.UID) {
			continue
		}
		for _, e := range apart(ev & cluster.MailEvents(h.Events)) {
			o.notify(at, j, a, e, h.Id, text)
		}
	}
}

// apart returns the events in the order in which they are sent. A bad end is sent
// once, as such, and of several time-limit marks only the last.
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
	// Events before its end come first.
	slices.SortStableFunc(out, func(a, b cluster.MailEvents) int { return ending(a) - ending(b) })
	return out
}

func ending(e cluster.MailEvents) int {
	if e == cluster.MailEnd || e == cluster.MailFail {
		return 1
	}
	return 0
}

func (o *Outbox) notify(at command.Entry, j *cluster.Job, array *Array, e cluster.MailEvents, target uint64, text string) {
	uid := uint32(j.Owner.UID)
	if o.full(at, uid, target) {
		o.told.lost++
		o.touchTelling()
		return
	}
	n := &logv1.Notice{
		Seq: o.told.nextSeq + 1, AtUs: int64(at.Now), Event: uint32(e), Target: target, Job: uint64(j.ID), Name: j.Spec.Name,
		User: j.Owner.Name, Uid: uid, Partition: j.Spec.Partition, Comment: j.Spec.Comment, State: uint32(j.State),
		Reason: string(j.Reason.Code), Detail: Clip(j.Reason.Detail, maxNoticeDetail), Text: Clip(text, maxNoticeDetail),
	}
	if target == 0 {
		n.To = j.Spec.Mail.To
	}
	if at.Version >= command.ArrayMailVersion {
		ofWhichArray(j, array, e, n)
	}
	from := j.Eligible
	if a := j.Last(); a != nil && (!j.State.Waiting() || e == cluster.MailRequeue) {
		n.Attempt, n.Nodes = a.No, Clip(hostnames.Fold(a.NodeIDs()), maxNoticeNodes)
		if x := a.Exit; x != nil && a.State.Terminal() {
			n.ExitCode, n.Signal = &x.Code, x.Signal
		}
		if a.Started != 0 {
			n.QueuedUs = max(0, a.Started.Sub(from).Microseconds())
			end := at.Now
			if a.Ended != 0 {
				end = a.Ended
			}
			n.RanUs = max(0, end.Sub(a.Started).Microseconds())
		}
	}
	o.told.nextSeq = n.Seq
	o.touchTelling()
	o.putNotice(n)
}

// full reports whether nothing more is kept for a webhook, or for mail of a user.
func (o *Outbox) full(at command.Entry, uid uint32, target uint64) bool {
	if len(o.notices) >= maxNotices {
		return true
	}
	if target == 0 {
		return o.mails[uid] >= maxMailsOfUser
	}
	if at.Version < command.PostsVersion {
		return o.posts[target] >= maxHookNotices
	}
	most := maxHookNotices
	if i, ok := o.hook(target); ok && !o.hooks[i].All {
		most /= maxHooksOfUser
	}
	return o.posts[target] >= most || o.posted >= maxPosts
}

// ofWhichArray sets in n the array that j is a task of. What ofArray passes once
// per array is about all of it, unless each task is reported.
func ofWhichArray(j *cluster.Job, a *Array, e cluster.MailEvents, n *logv1.Notice) {
	if j.ArrayJobID == 0 {
		return
	}
	n.ArrayJob, n.ArrayTask = uint64(j.ArrayJobID), j.ArrayTaskID
	const once = cluster.MailBegin | cluster.MailEnd | cluster.MailFail | cluster.MailTimeLimit | cluster.MailInvalidDepend
	if a == nil || e&once == 0 || j.Spec.Mail.Events&cluster.MailArrayTasks != 0 {
		return
	}
	n.WholeArray, n.ArrayTask = true, 0
	if !a.done() {
		return
	}
	switch good, all := a.Good, a.Tasks; {
	case good == all:
		n.Text = cluster.JobCompleted.String()
	case good == 0:
		n.Text = fmt.Sprintf("none of %d tasks completed", all)
	default:
		n.Text = fmt.Sprintf("Mixed, %d of %d tasks completed", good, all)
	}
	if a.Good < a.Tasks && j.State == cluster.JobCompleted { // the last task to end does not decide the result
		n.State = uint32(cluster.JobFailed)
	}
}

// Clip cuts a text to most bytes, never within a character.
func Clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && s[most]&0xc0 == 0x80 { // never within a character
		most--
	}
	return s[:most]
}

// ofArray filters the events of j for its owner: of an array its first begin and
// its end, a bad one if that of any task was, unless the owner asked for each task.
func ofArray(j *cluster.Job, a *Array, ev cluster.MailEvents) cluster.MailEvents {
	if a == nil || ev == 0 || j.Spec.Mail.Events&cluster.MailArrayTasks != 0 {
		return ev
	}
	if a.Over > 0 || a.Begun > 1 {
		ev &^= cluster.MailBegin
	}
	if !a.done() {
		return ev &^ (cluster.MailEnd | cluster.MailFail | cluster.MailTimeLimit | cluster.MailInvalidDepend)
	}
	if a.Good < a.Tasks && ev&cluster.MailEnd != 0 {
		ev |= cluster.MailFail
	}
	return ev
}

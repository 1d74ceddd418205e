package fsm

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// letter is one notice as somebody expects it who writes down whom to tell of what.
type letter struct {
	seq    uint64
	event  cluster.MailEvents
	job    cluster.JobID
	target uint64 // 0 is the owner
	state  cluster.JobState
}

// subscriber is a webhook.
type subscriber struct {
	id         uint64
	uid        cluster.UID
	all        bool
	events     cluster.MailEvents
	sent, dead uint64
}

// clientOf is a job whose owner may want to be told.
type clientOf struct {
	id    cluster.JobID
	uid   cluster.UID
	mail  cluster.MailEvents
	state cluster.JobState
	began bool
	asked string
	marks cluster.MailEvents
}

// postOffice is all that is to be told.
type postOffice struct {
	t          *rapid.T
	m          *machine
	subs       []*subscriber
	jobs       []*clientOf
	letters    []letter
	seq, hooks uint64
	sent, lost uint64 // mails that arrived, and that were given up
	buried     []uint64
}

func (p *postOffice) draw(what string, n int) int { return rapid.IntRange(0, n-1).Draw(p.t, what) }

// tell writes one letter for each event and each of those who want it: the owner
// first, then webhooks by id; what an end was comes before it, a bad end is told once.
func (p *postOffice) tell(c *clientOf, events ...cluster.MailEvents) {
	write := func(wants cluster.MailEvents, target uint64) {
		var told []cluster.MailEvents
		for _, e := range events {
			if wants&e != 0 && !(e == cluster.MailEnd && slices.Contains(events, cluster.MailFail) && wants&cluster.MailFail != 0) {
				told = append(told, e)
			}
		}
		marks := []cluster.MailEvents{cluster.MailTimeLimit50, cluster.MailTimeLimit80, cluster.MailTimeLimit90}
		for i, e := range told { // of several marks the last alone
			if later := slices.ContainsFunc(told[i+1:], func(o cluster.MailEvents) bool { return slices.Contains(marks, o) }); slices.Contains(marks, e) && later {
				continue
			}
			p.seq++
			p.letters = append(p.letters, letter{p.seq, e, c.id, target, c.state})
		}
	}
	write(c.mail, 0)
	for _, s := range p.subs {
		if s.all || s.uid == c.uid {
			write(s.events, s.id)
		}
	}
}

func (p *postOffice) check(what string) {
	var got []letter
	for _, n := range p.m.f.Notices(0, maxNotices) {
		got = append(got, letter{n.Seq, cluster.MailEvents(n.Event), cluster.JobID(n.Job), n.Target, cluster.JobState(n.State)})
	}
	if !slices.Equal(got, p.letters) {
		p.t.Fatalf("%s: what waits to be told is\n%v, want\n%v", what, got, p.letters)
	}
	hooks, told := p.m.f.Webhooks()
	if told.NextSeq != p.seq || told.MailsSent != p.sent || told.MailsDead != p.lost || told.Lost != 0 || len(hooks) != len(p.subs) {
		p.t.Fatalf("%s: %v and %d webhooks; want seq %d, %d sent, %d given up, %d webhooks", what, told, len(hooks), p.seq, p.sent, p.lost, len(p.subs))
	}
	for i, s := range p.subs {
		if h := hooks[i]; h.Id != s.id || h.Sent != s.sent || h.Dead != s.dead {
			p.t.Fatalf("%s: webhook %d: %d sent, %d given up; want %+v", what, h.Id, h.Sent, h.Dead, *s)
		}
	}
	var dead []uint64
	for _, d := range p.m.f.DeadNotices() {
		dead = append(dead, d.Notice.Seq)
	}
	if !slices.Equal(dead, p.buried) {
		p.t.Fatalf("%s: given up are %v, want %v", what, dead, p.buried)
	}
}

func (p *postOffice) submit() string {
	c := &clientOf{uid: cluster.UID(1000 + p.draw("uid", 2)), state: cluster.JobPending}
	c.mail = rapid.SampledFrom([]cluster.MailEvents{
		0, cluster.MailAll, cluster.MailEnd, cluster.MailFail, cluster.MailBegin | cluster.MailEnd | cluster.MailFail, cluster.MailRequeue | cluster.MailTimeLimit,
		cluster.MailTimeLimit50 | cluster.MailTimeLimit90 | cluster.MailTimeLimit80,
	}).Draw(p.t, "mail")
	c.id = p.m.must(submitCmd(p.m.f.NextJobID(), fmt.Sprint("post-", p.m.index), c.uid, mailed(c.mail))).Jobs[0]
	p.jobs = append(p.jobs, c)
	return "submit"
}

func (p *postOffice) subscribe() string {
	if len(p.subs) > 0 && p.draw("remove", 3) == 0 {
		at := p.draw("which", len(p.subs))
		id := p.subs[at].id
		p.m.must(unhookCmd(id))
		p.subs = slices.Delete(p.subs, at, at+1)
		p.letters = slices.DeleteFunc(p.letters, func(l letter) bool { return l.target == id })
		return "one webhook less"
	}
	if len(p.subs) > 4 {
		return ""
	}
	p.hooks++
	s := &subscriber{id: p.hooks, uid: cluster.UID(1000 + p.draw("uid", 3)), all: p.draw("all", 3) == 0}
	s.events = rapid.SampledFrom([]cluster.MailEvents{cluster.MailAll, cluster.MailEnd, cluster.MailBegin | cluster.MailFail, cluster.MailTimeLimit50 | cluster.MailTimeLimit80}).Draw(p.t, "events")
	if r := p.m.must(hookCmd(s.uid, s.all, s.events)); r.Webhook != s.id {
		p.t.Fatalf("webhook %d, want %d", r.Webhook, s.id)
	}
	p.subs = append(p.subs, s)
	return "one webhook more"
}

// act takes a job further.
func (p *postOffice) act() string {
	if len(p.jobs) == 0 {
		return ""
	}
	c := p.jobs[p.draw("job", len(p.jobs))]
	how := p.draw("how", 7)
	switch {
	case c.state.Terminal():
		return ""
	case c.state == cluster.JobPending && how == 0:
		p.m.must(cancelCmd(c.id, 0))
		c.state = cluster.JobCancelled
		p.tell(c, cluster.MailEnd)
	case c.state == cluster.JobPending:
		p.m.start(c.id, share1(cluster.GPUID(fmt.Sprintf("n1-g%d", c.id%10)), 1, 1))
		c.state, c.began, c.asked, c.marks = cluster.JobStarting, false, "", 0
	case !c.began && how < 4:
		p.m.report(c.id, cluster.JobRunning)
		c.state, c.began = cluster.JobRunning, true
		p.tell(c, cluster.MailBegin)
	case how == 4 && c.asked == "":
		p.m.must(requeueCmd(c.id, 0, false))
		c.asked = "requeue"
	case how == 5 && c.began:
		// Said again, a mark is no news.
		e := cluster.MailEvents(p.draw("marks", 8)) * cluster.MailTimeLimit50
		p.m.must(markCmd(c.id, p.m.job(c.id).Last().No, e))
		var news []cluster.MailEvents
		for _, x := range []cluster.MailEvents{cluster.MailTimeLimit50, cluster.MailTimeLimit80, cluster.MailTimeLimit90} {
			if e&x != 0 && c.marks&x == 0 {
				news = append(news, x)
			}
		}
		c.marks |= e
		p.tell(c, news...)
	case c.asked == "requeue":
		p.m.report(c.id, cluster.JobCancelled)
		c.state = cluster.JobPending
		p.tell(c, cluster.MailRequeue)
	default:
		c.state = rapid.SampledFrom([]cluster.JobState{cluster.JobCompleted, cluster.JobFailed, cluster.JobTimeout}).Draw(p.t, "ends as")
		p.m.report(c.id, c.state)
		switch c.state {
		case cluster.JobCompleted:
			p.tell(c, cluster.MailEnd)
		case cluster.JobFailed:
			p.tell(c, cluster.MailEnd, cluster.MailFail)
		default:
			p.tell(c, cluster.MailTimeLimit, cluster.MailEnd, cluster.MailFail)
		}
	}
	return "job " + c.id.String()
}

// settle tells what became of some of the letters, and of one that is not there.
func (p *postOffice) settle() string {
	var sent []uint64
	var dead []*logv1.SettleNotices_GivenUp
	var kept []letter
	for _, l := range p.letters {
		fate := p.draw("fate", 4)
		if fate > 1 {
			kept = append(kept, l)
			continue
		}
		arrived := fate == 0
		if arrived {
			sent = append(sent, l.seq)
		} else {
			dead = append(dead, &logv1.SettleNotices_GivenUp{Seq: l.seq, Error: "no route"})
			p.buried = append(p.buried, l.seq)
		}
		if l.target == 0 && arrived {
			p.sent++
		} else if l.target == 0 {
			p.lost++
		}
		for _, s := range p.subs {
			if s.id == l.target && arrived {
				s.sent++
			} else if s.id == l.target {
				s.dead++
			}
		}
	}
	p.letters = kept
	cmd := settleCmd(append(sent, 1<<40), dead...)
	p.m.must(cmd)
	p.check("settled")
	p.m.must(cmd) // whose answer was lost
	return "settled twice"
}

// TestNoticesByTheList: what waits to be told is what somebody has on his list who
// writes down each event for each who wants it: once, in order, to nobody else; and
// nothing is told twice, however often it is said to have arrived.
func TestNoticesByTheList(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := &postOffice{t: t, m: newMachine(t)}
		p.m.must(initCmd("c1", 1000))
		n := node("n1", "boot1", 10)
		for i := range n.GPUs {
			n.GPUs[i].MaxShares = 16
		}
		p.m.must(registerCmd(n))
		steps := []func() string{p.submit, p.submit, p.subscribe, p.act, p.act, p.act, p.act, p.act, p.act, p.settle}
		for range rapid.IntRange(8, 40).Draw(t, "steps") {
			p.m.now = p.m.now.Add(time.Minute)
			if what := steps[p.draw("step", len(steps))](); what != "" {
				p.check(what)
			}
			if p.draw("restart", 12) == 0 {
				p.m.f = restored(t, snapshotOf(t, p.m.f))
				p.check("a restore")
			}
		}
	})
}

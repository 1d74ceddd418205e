package policies

import (
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler"
)

// mateOf is a job on a card, for what was learned of sharing.
func mateOf(j *cluster.Job, milli int64) scheduler.Mate {
	return scheduler.Mate{Job: j.ID, Signature: j.Spec.Signature, Owner: &j.Owner, Milli: milli}
}

// bears asks the scheduler's own rule whether t may lie on a card beside those
// on it: their owners share it, and nobody is predicted to be slowed down beyond the limit. It binds every
// placement, beside its own rules.
func (p *pass) bears(t *task, c *card) bool {
	if len(c.on) == 0 || c.gpu.Scope == cluster.ScopeAnyone && (p.snap.Interference == nil || p.opt.Base.MaxSlowdownMilli <= 0) {
		return true
	}
	on := make([]scheduler.Mate, 0, 8)
	for _, o := range c.on {
		on = append(on, mateOf(p.runs[o.run].job, o.share.Milli))
	}
	share := t.needs[p.f.groups[c.group].class].share
	return scheduler.Bears(p.snap.Interference, c.gpu, on, mateOf(t.job, share.Milli), &p.opt.Base)
}

// temper is what was learned of a job, by which its kind is told from others of
// the same needs.
func (p *pass) temper(j *cluster.Job) cluster.Temper {
	if p.snap.Interference == nil {
		return cluster.Temper{}
	}
	return p.snap.Interference.Jobs[j.Spec.Signature]
}

// bearsAll is bears for one who would join a group on cards like gpu.
func (p *pass) bearsAll(gpu *cluster.GPU, group []member, one *member) bool {
	if gpu.Scope == cluster.ScopeAnyone && (p.snap.Interference == nil || p.opt.Base.MaxSlowdownMilli <= 0) {
		return true
	}
	on := make([]scheduler.Mate, len(group))
	for i := range group {
		on[i] = mateOf(group[i].job, group[i].share.Milli)
	}
	return scheduler.Bears(p.snap.Interference, gpu, on, mateOf(one.job, one.share.Milli), &p.opt.Base)
}

package scene

import (
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/company"
	"github.com/berth-scheduler/berth/scheduler/policies/mirror"
)

// MateOf returns a job on a GPU as a Mate, for what was learned of sharing.
func MateOf(j *cluster.Job, milli int64) company.Mate {
	return company.Mate{Job: j.ID, Signature: j.Spec.Signature, Owner: &j.Owner, Milli: milli}
}

// bears asks the scheduler's own rule whether t may run on a GPU next to its
// residents: their owners share it, and no job is predicted to be slowed down
// beyond the limit. It binds every placement, in addition to its own rules.
func (p *Scene) bears(t *Task, c *mirror.Card) bool {
	if len(c.On) == 0 || !p.Choosy(c.GPU) {
		return true
	}
	on := make([]company.Mate, 0, 8)
	for _, o := range c.On {
		on = append(on, MateOf(p.Fleet.Runs[o.Run].Job, o.Share.Milli))
	}
	share := t.Needs[p.Fleet.Groups[c.Group].Class].Share
	return company.Bears(p.Snap.Interference, c.GPU, on, MateOf(t.Job, share.Milli), p.Pol)
}

// Temper returns what was learned of a job, which distinguishes its kind from
// others of the same needs.
func (p *Scene) Temper(j *cluster.Job) dispatch.Temper {
	if p.Snap.Interference == nil {
		return dispatch.Temper{}
	}
	return p.Snap.Interference.Jobs[j.Spec.Signature]
}

// Choosy reports whether on GPUs like gpu it matters which jobs share.
func (p *Scene) Choosy(gpu *cluster.GPU) bool {
	return gpu.Scope != cluster.ScopeAnyone || p.Snap.Interference != nil && p.Pol.MaxSlowdownMilli > 0
}

// Owner is a job's owner, as far as it matters on GPUs of a class.
type Owner struct{ uid, gid uint32 }

// OwnerOn returns the owner of a job on GPUs of a class, zero if it does not
// matter.
func (p *Scene) OwnerOn(j *cluster.Job, class int32) Owner {
	if p.Fleet.Classes[class].Scope == cluster.ScopeAnyone {
		return Owner{}
	}
	return Owner{uint32(j.Owner.UID), j.Owner.GID}
}

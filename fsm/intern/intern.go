// Package intern lets jobs share what they have in common: names and types, and a
// user's environment and command, which are mostly those of the previous job. It
// only saves memory.
package intern

import (
	"slices"

	"github.com/berth-scheduler/berth/cluster"
)

const (
	maxTexts  = 1 << 16 // distinct short texts held for sharing
	maxOwners = 1 << 12 // users whose last command and environment are held
	maxShared = 64      // longer texts are not worth a lookup
)

// Texts holds the texts for sharing. It drops all of them when full.
type Texts struct {
	texts map[string]string
	envs  map[cluster.UID][]string
	args  map[cluster.UID][]string
	jobs  map[cluster.UID]lastJob
}

// lastJob holds the parts of a user's last job that the next one may share as a
// whole.
type lastJob struct {
	spec      *cluster.Spec
	estimates []cluster.Estimate
}

// New returns an empty Texts.
func New() *Texts {
	return &Texts{texts: map[string]string{}, envs: map[cluster.UID][]string{}, args: map[cluster.UID][]string{}, jobs: map[cluster.UID]lastJob{}}
}

// Share replaces *v by the held text that equals it.
func Share[T ~string](t *Texts, v *T) {
	if len(*v) == 0 || len(*v) > maxShared {
		return
	}
	if have, ok := t.texts[string(*v)]; ok {
		*v = T(have)
		return
	}
	if len(t.texts) >= maxTexts {
		clear(t.texts)
	}
	t.texts[string(*v)] = string(*v)
}

func shareLines(held map[cluster.UID][]string, uid cluster.UID, v *[]string) {
	if last := held[uid]; slices.Equal(last, *v) {
		*v = last
		return
	}
	if len(held) >= maxOwners {
		clear(held)
	}
	held[uid] = *v
}

// Job makes a new or restored job share what it can, or its whole spec if that
// equals the one of the user's last job. Nobody else may have the job yet, and its
// spec and estimates must not be changed in place afterwards.
func (t *Texts) Job(j *cluster.Job) {
	Share(t, &j.Owner.Name)
	t.Spec(j.Owner.UID, j.Spec)
	Share(t, &j.Reason.Code)
	Share(t, &j.Queue)
	for i := range j.Estimates {
		t.Estimate(&j.Estimates[i])
	}
	for i := range j.Attempts {
		a := &j.Attempts[i]
		Share(t, &a.BootID)
		Share(t, &a.Reason.Code)
		for rank, b := range a.Berths() {
			t.Berth(b)
			if a.Gang != nil {
				Share(t, &a.Gang.Parts[rank].BootID)
			}
		}
		t.Estimate(&a.Estimate)
	}
	t.whole(j)
}

// whole replaces the spec and the estimates by equal ones of the user's last job.
func (t *Texts) whole(j *cluster.Job) {
	last := t.jobs[j.Owner.UID]
	if last.spec != nil && alike(last.spec, j.Spec) {
		j.Spec = last.spec
	}
	if len(j.Estimates) > 0 && slices.Equal(last.estimates, j.Estimates) {
		j.Estimates = last.estimates
	}
	if len(t.jobs) >= maxOwners {
		clear(t.jobs)
	}
	t.jobs[j.Owner.UID] = lastJob{j.Spec, j.Estimates}
}

// Spec makes a user's new spec share what it can. The job that gets it may share
// more with the previous one, which others are reading.
func (t *Texts) Spec(uid cluster.UID, s *cluster.Spec) {
	Share(t, &s.Name)
	Share(t, &s.Dir)
	Share(t, &s.Image)
	Share(t, &s.Partition)
	Share(t, &s.GPUType)
	Share(t, &s.Node)
	Share(t, &s.Signature)
	Share(t, &s.Program)
	Share(t, &s.Numbers)
	Share(t, &s.Retry.On)
	Share(t, &s.BatchScaling)
	Share(t, &s.Power.Cap)
	Share(t, &s.Power.Freq)
	Share(t, &s.Stdout)
	Share(t, &s.Stderr)
	shareLines(t.envs, uid, &s.Env)
	shareLines(t.args, uid, &s.Command)
}

// Estimate makes a new or restored estimate share what it can.
func (t *Texts) Estimate(e *cluster.Estimate) {
	Share(t, &e.GPUType)
	Share(t, &e.Source)
}

// Berth makes a new or restored berth share what it can.
func (t *Texts) Berth(b *cluster.Berth) {
	Share(t, &b.Node)
	for i := range b.GPUs {
		Share(t, &b.GPUs[i].GPU)
	}
}

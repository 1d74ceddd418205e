package fsm

import (
	"slices"

	"github.com/berth-scheduler/berth/cluster"
)

const (
	maxTexts  = 1 << 16 // distinct short texts held for sharing
	maxOwners = 1 << 12 // users whose last command and environment are held
	maxShared = 64      // longer texts are not worth a look
)

// cache lets jobs share what they have in common: names and types, and a
// user's environment and command, which are mostly those of the job before.
// It saves memory and decides nothing; it forgets all when it is full.
type cache struct {
	texts map[string]string
	envs  map[cluster.UID][]string
	args  map[cluster.UID][]string
	// keep takes what is large out of memory, see Options.Bulk.
	keep func(env []string, script []byte) cluster.Bulk
}

func newCache() cache {
	return cache{texts: map[string]string{}, envs: map[cluster.UID][]string{}, args: map[cluster.UID][]string{}}
}

func share[T ~string](c *cache, v *T) {
	if len(*v) == 0 || len(*v) > maxShared {
		return
	}
	if have, ok := c.texts[string(*v)]; ok {
		*v = T(have)
		return
	}
	if len(c.texts) >= maxTexts {
		clear(c.texts)
	}
	c.texts[string(*v)] = string(*v)
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

// sample makes a new or restored sample share what it can.
func (c *cache) sample(x *Sample) {
	share(c, &x.Signature)
	share(c, &x.GPUType)
	share(c, &x.CapMode)
	for i := range x.Company {
		share(c, &x.Company[i].Signature)
	}
}

// job makes a new or restored job share what it can. Nobody else has it yet.
func (c *cache) job(j *cluster.Job) {
	share(c, &j.Owner.Name)
	s := j.Spec
	share(c, &s.Name)
	share(c, &s.Dir)
	share(c, &s.Image)
	share(c, &s.Partition)
	share(c, &s.GPUType)
	share(c, &s.Node)
	share(c, &s.Signature)
	share(c, &s.Stdout)
	share(c, &s.Stderr)
	if !j.InArray() { // that of an array is its own
		c.apart(s)
	}
	shareLines(c.envs, j.Owner.UID, &s.Env)
	shareLines(c.args, j.Owner.UID, &s.Command)
	share(c, &j.Reason.Code)
	share(c, &j.Queue)
	for i := range j.Estimates {
		c.estimate(&j.Estimates[i])
	}
	for i := range j.Attempts {
		a := &j.Attempts[i]
		share(c, &a.BootID)
		share(c, &a.Reason.Code)
		for rank, b := range a.Berths() {
			c.berth(b)
			if a.Gang != nil {
				share(c, &a.Gang.Parts[rank].BootID)
			}
		}
		c.estimate(&a.Estimate)
	}
}

// apart moves what is large out of a new or restored spec.
func (c *cache) apart(s *cluster.Spec) {
	if _, bulk := s.Weight(); c.keep == nil || bulk == 0 || s.Bulk != nil {
		return
	}
	if b := c.keep(s.Env, s.Script); b != nil {
		s.Env, s.Script, s.Bulk = nil, nil, b
	}
}

func (c *cache) estimate(e *cluster.Estimate) {
	share(c, &e.GPUType)
	share(c, &e.Source)
}

func (c *cache) berth(b *cluster.Berth) {
	share(c, &b.Node)
	for i := range b.GPUs {
		share(c, &b.GPUs[i].GPU)
	}
}

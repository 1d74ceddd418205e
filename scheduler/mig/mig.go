// Package mig decides into which instances GPUs in MIG mode are cut, by what the waiting jobs
// need: MIG-Serving (Tan et al., Serving DNN Models with Multi-Instance GPUs, 2021) for jobs
// of any kind. Only instances on which nothing runs are replaced, so a GPU is cut anew part by
// part while jobs run on the others.
//
// The decision has two steps. Candidates adds to a snapshot one GPU for each size that an
// idle part could have, and the pass that plans everything else says which waiting jobs would
// start there: those that neither a quota nor anything but room keeps waiting, in its own
// order. Plan then packs the first of them into the idle parts of one GPU.
package mig

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
)

// Profile is a size of instance, as the driver describes it.
type Profile struct {
	Name   string // such as "1g.10gb"
	MemMiB int64  // what jobs can have of it
	// Compute is how many sevenths of the GPU's multiprocessors it has.
	Compute int
	// Size is how many of the GPU's memory slices it takes, and Starts where one can begin.
	Size   int
	Starts []int
}

// Instance is a part of a GPU: a profile that begins at a memory slice. A part that is to be
// made has no ID yet.
type Instance struct {
	ID          cluster.GPUID
	Profile     string
	Start, Size int
}

func (in Instance) overlaps(o Instance) bool {
	return in.Start < o.Start+o.Size && o.Start < in.Start+in.Size
}

// Card is a GPU in MIG mode whose agent replaces its instances.
type Card struct {
	Node cluster.NodeID
	UUID string
	Type string // of the GPU; its instances' types are Of(Type, profile)
	// Profiles are ordered by size, then by compute.
	Profiles  []Profile
	Instances []Instance
}

// Of returns the GPU type of an instance, such as "A100-SXM4-40GB.1g.5gb".
func Of(gpuType, profile string) string { return gpuType + "." + profile }

// Cut replaces instances of a GPU by others.
type Cut struct {
	Card *Card
	Drop []cluster.GPUID
	Make []Instance
	// For are the jobs that the new instances are for.
	For []cluster.JobID
}

// surely is how sure a prediction must be, 0-1000, for a job to have less than a whole GPU.
const surely = 300

// sevenths is what a GPU has in all of Profile.Compute.
const sevenths = 7

// holds reports whether a job could use an instance: it has the memory that the job declares
// or is predicted to need, and no smaller part of the GPU's multiprocessors than the job is
// expected to keep busy. A job of which nothing is known needs the whole GPU.
func (c *Card) holds(p *Profile, j *cluster.Job) bool {
	s := j.Spec
	if s.GPUs > 1 || s.NodeCount() > 1 || s.WholeNodes() {
		return false // its GPUs cannot be made one by one
	}
	if s.GPUType != "" {
		return s.GPUType == Of(c.Type, p.Name)
	}
	e := c.estimate(j)
	if e.ConfidenceMilli < surely {
		e = cluster.Estimate{}
	}
	mem := max(j.MinGPUMemMiB, cmp.Or(s.GPUMemMiB, e.GPUMemP95MiB, e.GPUMemMiB))
	milli := cmp.Or(s.GPUMilli, e.Milli)
	if mem == 0 || j.NeedWhole {
		return p.Compute == sevenths
	}
	return p.MemMiB >= mem && int64(p.Compute)*cluster.WholeGPU >= milli*sevenths
}

// ProfileOf names the profile of an instance, "" for one that the card does not have.
func (c *Card) ProfileOf(id cluster.GPUID) string {
	for _, in := range c.Instances {
		if in.ID == id {
			return in.Profile
		}
	}
	return ""
}

// Holds reports whether a job could use an instance.
func (c *Card) Holds(id cluster.GPUID, j *cluster.Job) bool {
	p := c.profile(c.ProfileOf(id))
	return p != nil && c.holds(p, j)
}

// Wastes reports whether an instance is larger than one that the card could have in its place
// and that a job could use.
func (c *Card) Wastes(id cluster.GPUID, j *cluster.Job) bool {
	p := c.profile(c.ProfileOf(id))
	return c.Holds(id, j) && slices.ContainsFunc(c.Profiles, func(q Profile) bool { return q.Size < p.Size && c.holds(&q, j) })
}

// estimate returns what a job is predicted to need of the whole GPU: by the estimate for its
// type, for one of its instances, or else for any GPU, since memory differs little.
func (c *Card) estimate(j *cluster.Job) cluster.Estimate {
	if e, known := cluster.EstimateFor(j.Estimates, c.Type); known {
		return e
	}
	for i := range slices.Backward(c.Profiles) {
		if e, known := cluster.EstimateFor(j.Estimates, Of(c.Type, c.Profiles[i].Name)); known {
			e.Milli = e.Milli * int64(c.Profiles[i].Compute) / sevenths
			return e
		}
	}
	if len(j.Estimates) > 0 {
		return j.Estimates[0]
	}
	return cluster.Estimate{}
}

// Candidates returns a snapshot with one more GPU for each profile of each card that fits into
// what is idle there, and the cards concerned; nil if there are none. snap is not modified.
func Candidates(snap *dispatch.Snapshot, cards []Card) (view *dispatch.Snapshot, idle []Card) {
	more := map[cluster.NodeID][]cluster.GPU{}
	for i := range cards {
		c := &cards[i]
		n := snapNode(snap, c.Node)
		if n == nil {
			continue
		}
		var add []cluster.GPU
		for k := range c.Profiles {
			if p := &c.Profiles[k]; len(newRoom(c, snap.Ledger).best(p)) > 0 {
				add = append(add, c.gpu(p))
			}
		}
		if len(add) > 0 {
			more[c.Node], idle = append(more[c.Node], add...), append(idle, *c)
		}
	}
	if len(idle) == 0 {
		return nil, nil
	}
	out := *snap
	out.Nodes, out.Ledger = slices.Clone(snap.Nodes), snap.Ledger.Clone()
	for i, n := range out.Nodes {
		if add := more[n.ID]; len(add) > 0 {
			with := *n
			with.GPUs = append(slices.Clip(n.GPUs), add...)
			out.Nodes[i] = &with
			out.Ledger.SetNode(&with)
		}
	}
	return &out, idle
}

// candidate begins the ids of the GPUs that Candidates adds.
const candidate = "MIG-candidate-"

// gpu is an instance that does not exist.
func (c *Card) gpu(p *Profile) cluster.GPU {
	return cluster.GPU{
		ID: cluster.GPUID(candidate + c.UUID + "-" + p.Name), Type: Of(c.Type, p.Name), MemMiB: p.MemMiB, SellableMiB: p.MemMiB,
		MaxShares: 1, CapMode: "mig", Scope: cluster.ScopeNever, State: cluster.GPUOK,
	}
}

// Potential returns the GPUs that a card could be cut into, one for each profile.
func (c *Card) Potential() []cluster.GPU {
	out := make([]cluster.GPU, 0, len(c.Profiles))
	for i := range c.Profiles {
		out = append(out, c.gpu(&c.Profiles[i]))
	}
	return out
}

// Wanted returns the jobs that would start on a candidate, or on an instance that is larger
// than they need; in the order of the plan.
func Wanted(starts []dispatch.Start, cards []Card, jobs map[cluster.JobID]*cluster.Job) []*cluster.Job {
	var out []*cluster.Job
	for i := range starts {
		gpus, j := starts[i].AllGPUs(), jobs[starts[i].Job]
		if j == nil || len(gpus) != 1 {
			continue
		}
		id := gpus[0].GPU
		if strings.HasPrefix(string(id), candidate) || slices.ContainsFunc(cards, func(c Card) bool { return c.Wastes(id, j) }) {
			out = append(out, j)
		}
	}
	return out
}

// Plan returns the cut of one GPU that lets the first of jobs start, and as many others as
// then fit into its idle parts; nil if no job gains. A job for which there is an idle instance
// of the right size already keeps that, so that no part is cut away from it.
func Plan(cards []Card, ledger *dispatch.Ledger, jobs []*cluster.Job) *Cut {
	rooms := make([]*room, len(cards))
	for i := range cards {
		rooms[i] = newRoom(&cards[i], ledger)
	}
	var at *room
	for _, j := range jobs {
		if slices.ContainsFunc(rooms, func(r *room) bool { return r.keep(j) }) {
			continue
		}
		if at != nil {
			at.place(j)
			continue
		}
		var best *room
		for _, r := range rooms {
			if in, _ := r.find(j); in != nil && (best == nil || len(r.spare) < len(best.spare)) {
				best = r
			}
		}
		if best != nil && best.place(j) {
			at = best
		}
	}
	if at == nil {
		return nil
	}
	return &at.cut
}

// room is a card while a cut is planned.
type room struct {
	card  *Card
	taken []Instance // stay, or are to be made
	spare []Instance // idle
	cut   Cut
}

func newRoom(c *Card, ledger *dispatch.Ledger) *room {
	r := &room{card: c, cut: Cut{Card: c}}
	for _, in := range c.Instances {
		if u, ok := ledger.GPU(in.ID); !ok || u.Shares > 0 || u.Closed {
			r.taken = append(r.taken, in)
		} else {
			r.spare = append(r.spare, in)
		}
	}
	return r
}

// keep leaves an idle instance to a job, if one suits it.
func (r *room) keep(j *cluster.Job) bool {
	i := slices.IndexFunc(r.spare, func(in Instance) bool {
		return r.card.Holds(in.ID, j) && !r.card.Wastes(in.ID, j)
	})
	if i < 0 {
		return false
	}
	r.taken = append(r.taken, r.spare[i])
	r.spare = slices.Delete(r.spare, i, i+1)
	return true
}

// place plans an instance for a job, and reports whether one fits.
func (r *room) place(j *cluster.Job) bool {
	in, drop := r.find(j)
	if in == nil {
		return false
	}
	r.taken, r.cut.Make, r.cut.For = append(r.taken, *in), append(r.cut.Make, *in), append(r.cut.For, j.ID)
	for _, d := range drop {
		r.cut.Drop = append(r.cut.Drop, d.ID)
		r.spare = slices.DeleteFunc(r.spare, func(s Instance) bool { return s.ID == d.ID })
	}
	return true
}

// find returns the smallest instance that a job could use and for which there is room, and
// the idle ones that must go for it; nil if there is none.
func (r *room) find(j *cluster.Job) (*Instance, []Instance) {
	for i := range r.card.Profiles {
		p := &r.card.Profiles[i]
		if !r.card.holds(p, j) {
			continue
		}
		if at := r.best(p); len(at) > 0 {
			return &at[0], at[1:]
		}
	}
	return nil, nil
}

// best returns where an instance of a profile fits, and after it the fewest idle ones that
// must go for it; empty if it fits nowhere.
func (r *room) best(p *Profile) []Instance {
	var best []Instance
	for _, start := range p.Starts {
		in := Instance{Profile: p.Name, Start: start, Size: p.Size}
		if slices.ContainsFunc(r.taken, in.overlaps) {
			continue
		}
		at := []Instance{in}
		for _, s := range r.spare {
			if s.overlaps(in) {
				at = append(at, s)
			}
		}
		if best == nil || len(at) < len(best) {
			best = at
		}
	}
	return best
}

func (c *Card) profile(name string) *Profile {
	i := slices.IndexFunc(c.Profiles, func(p Profile) bool { return p.Name == name })
	if i < 0 {
		return nil
	}
	return &c.Profiles[i]
}

func snapNode(snap *dispatch.Snapshot, id cluster.NodeID) *cluster.Node {
	i, found := slices.BinarySearchFunc(snap.Nodes, id, func(n *cluster.Node, id cluster.NodeID) int { return cmp.Compare(n.ID, id) })
	if !found {
		return nil
	}
	return snap.Nodes[i]
}

// String describes a cut as a reason: "cut anew for job 12: 3g.40gb".
func (c *Cut) String() string {
	names := make([]string, len(c.Make))
	for i, in := range c.Make {
		names[i] = in.Profile
	}
	return fmt.Sprintf("cut anew for job %s: %s", c.For[0], strings.Join(names, ", "))
}

// Done reports whether a GPU has what a cut was to make.
func (c *Cut) Done(now *Card) bool {
	return !slices.ContainsFunc(c.Make, func(in Instance) bool {
		return !slices.ContainsFunc(now.Instances, func(o Instance) bool { return o.Profile == in.Profile && o.Start == in.Start })
	})
}

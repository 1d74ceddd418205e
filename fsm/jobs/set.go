package jobs

import (
	"slices"
	"sort"

	"github.com/berth-scheduler/berth/cluster"
)

// blockLen bounds a block of a Set: a change moves at most this many ids.
const blockLen = 512

// Set is a set of jobs ordered by id: cheap to append to, to change anywhere and to
// copy as a whole. The zero value is empty.
type Set struct {
	blocks []block // none is empty
	n      int
	copies int // how often it was cloned
}

// block keeps ids apart from the jobs so that a search touches few cache lines.
type block struct {
	ids  []cluster.JobID
	jobs []*cluster.Job
	// since is how often its set had been cloned when it became this one's alone.
	since int
}

// own returns a block that is about to change, after copying it if a clone has it too.
func (s *Set) own(k int) *block {
	b := &s.blocks[k]
	if b.since != s.copies {
		b.ids, b.jobs, b.since = slices.Clone(b.ids), slices.Clone(b.jobs), s.copies
	}
	return b
}

// at returns the block that holds or would hold id.
func (s *Set) at(id cluster.JobID) int {
	return max(0, sort.Search(len(s.blocks), func(i int) bool { return s.blocks[i].ids[0] > id })-1)
}

// Get returns the job with the given id, or nil.
func (s *Set) Get(id cluster.JobID) *cluster.Job {
	if len(s.blocks) == 0 {
		return nil
	}
	b := &s.blocks[s.at(id)]
	if i, found := slices.BinarySearch(b.ids, id); found {
		return b.jobs[i]
	}
	return nil
}

// Put adds j, or replaces the job with its id.
func (s *Set) Put(j *cluster.Job) {
	if len(s.blocks) == 0 {
		s.blocks = append(s.blocks, s.single(j))
		s.n++
		return
	}
	k := s.at(j.ID)
	b := s.own(k)
	i, found := slices.BinarySearch(b.ids, j.ID)
	switch {
	case found:
		b.jobs[i] = j
		return
	case len(b.ids) < blockLen:
		b.ids, b.jobs = slices.Insert(b.ids, i, j.ID), slices.Insert(b.jobs, i, j)
	case i == blockLen:
		s.blocks = slices.Insert(s.blocks, k+1, s.single(j))
	default:
		half := blockLen / 2
		right := block{ids: slices.Clone(b.ids[half:]), jobs: slices.Clone(b.jobs[half:]), since: s.copies}
		clear(b.jobs[half:])
		b.ids, b.jobs = b.ids[:half], b.jobs[:half]
		s.blocks = slices.Insert(s.blocks, k+1, right)
		s.Put(j)
		return
	}
	s.n++
}

func (s *Set) single(j *cluster.Job) block {
	return block{ids: []cluster.JobID{j.ID}, jobs: []*cluster.Job{j}, since: s.copies}
}

// Remove removes the job with the given id, if it is there.
func (s *Set) Remove(id cluster.JobID) {
	if len(s.blocks) == 0 {
		return
	}
	k := s.at(id)
	b := &s.blocks[k]
	i, found := slices.BinarySearch(b.ids, id)
	if !found {
		return
	}
	s.n--
	b = s.own(k)
	b.ids, b.jobs = slices.Delete(b.ids, i, i+1), slices.Delete(b.jobs, i, i+1)
	if len(b.ids) == 0 {
		s.blocks = slices.Delete(s.blocks, k, k+1)
	}
}

// List returns the jobs in order, in a new slice.
func (s *Set) List() []*cluster.Job {
	out := make([]*cluster.Job, 0, s.n)
	for i := range s.blocks {
		out = append(out, s.blocks[i].jobs...)
	}
	return out
}

// Clone returns an independent copy. Both share each block until one of them changes
// it.
func (s *Set) Clone() Set {
	s.copies++
	return Set{blocks: slices.Clone(s.blocks), n: s.n, copies: s.copies}
}

// Last returns the highest id, 0 in an empty set.
func (s *Set) Last() cluster.JobID {
	if len(s.blocks) == 0 {
		return 0
	}
	ids := s.blocks[len(s.blocks)-1].ids
	return ids[len(ids)-1]
}

// Len returns the number of jobs in the set.
func (s *Set) Len() int { return s.n }

// All calls f with the jobs in order, until it returns false.
func (s *Set) All(f func(*cluster.Job) bool) {
	for i := range s.blocks {
		for _, j := range s.blocks[i].jobs {
			if !f(j) {
				return
			}
		}
	}
}

// cursor walks a Set that must not change meanwhile.
type cursor struct {
	set  *Set
	b, i int
}

// From returns a cursor at the first job with an id above after.
func (s *Set) From(after cluster.JobID) cursor {
	c := cursor{set: s}
	if len(s.blocks) == 0 {
		return c
	}
	c.b = s.at(after)
	c.i = sort.Search(len(s.blocks[c.b].ids), func(i int) bool { return s.blocks[c.b].ids[i] > after })
	c.settle()
	return c
}

func (c *cursor) settle() {
	if c.b < len(c.set.blocks) && c.i == len(c.set.blocks[c.b].ids) {
		c.b, c.i = c.b+1, 0
	}
}

func (c *cursor) done() bool { return c.b >= len(c.set.blocks) }

func (c *cursor) id() cluster.JobID { return c.set.blocks[c.b].ids[c.i] }

func (c *cursor) next() *cluster.Job {
	j := c.set.blocks[c.b].jobs[c.i]
	c.i++
	c.settle()
	return j
}

// Merge calls f with the jobs of disjoint sets with ids above after, ordered by id,
// until f returns false.
func Merge(sets []*Set, after cluster.JobID, f func(*cluster.Job) bool) {
	var cs []cursor
	for _, s := range sets {
		if c := s.From(after); !c.done() {
			cs = append(cs, c)
		}
	}
	for len(cs) > 0 {
		least := 0
		for k := 1; k < len(cs); k++ {
			if cs[k].id() < cs[least].id() {
				least = k
			}
		}
		if !f(cs[least].next()) {
			return
		}
		if cs[least].done() {
			cs = slices.Delete(cs, least, least+1)
		}
	}
}

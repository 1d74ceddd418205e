package fsm

import (
	"slices"
	"sort"

	"github.com/berth-scheduler/berth/cluster"
)

// blockLen bounds a block of a jobSet: a change moves at most this many ids.
const blockLen = 512

// jobSet is a set of jobs in order of their ids: cheap to add to at the end,
// to change anywhere and to copy in one go. The zero value is empty.
type jobSet struct {
	blocks []block // none empty
	n      int
}

// block keeps ids beside the jobs so that a search touches few cache lines.
type block struct {
	ids  []cluster.JobID
	jobs []*cluster.Job
}

// at returns the block that holds or would hold id.
func (s *jobSet) at(id cluster.JobID) int {
	return max(0, sort.Search(len(s.blocks), func(i int) bool { return s.blocks[i].ids[0] > id })-1)
}

// get returns the job with the given id, or nil.
func (s *jobSet) get(id cluster.JobID) *cluster.Job {
	if len(s.blocks) == 0 {
		return nil
	}
	b := &s.blocks[s.at(id)]
	if i, found := slices.BinarySearch(b.ids, id); found {
		return b.jobs[i]
	}
	return nil
}

// put adds j, or puts it in the place of the job with its id.
func (s *jobSet) put(j *cluster.Job) {
	if len(s.blocks) == 0 {
		s.blocks = append(s.blocks, block{ids: []cluster.JobID{j.ID}, jobs: []*cluster.Job{j}})
		s.n++
		return
	}
	k := s.at(j.ID)
	b := &s.blocks[k]
	i, found := slices.BinarySearch(b.ids, j.ID)
	switch {
	case found:
		b.jobs[i] = j
		return
	case len(b.ids) < blockLen:
		b.ids, b.jobs = slices.Insert(b.ids, i, j.ID), slices.Insert(b.jobs, i, j)
	case i == blockLen:
		s.blocks = slices.Insert(s.blocks, k+1, block{ids: []cluster.JobID{j.ID}, jobs: []*cluster.Job{j}})
	default:
		half := blockLen / 2
		right := block{ids: slices.Clone(b.ids[half:]), jobs: slices.Clone(b.jobs[half:])}
		clear(b.jobs[half:])
		b.ids, b.jobs = b.ids[:half], b.jobs[:half]
		s.blocks = slices.Insert(s.blocks, k+1, right)
		s.put(j)
		return
	}
	s.n++
}

// remove takes the job with the given id out, if it is there.
func (s *jobSet) remove(id cluster.JobID) {
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
	b.ids, b.jobs = slices.Delete(b.ids, i, i+1), slices.Delete(b.jobs, i, i+1)
	if len(b.ids) == 0 {
		s.blocks = slices.Delete(s.blocks, k, k+1)
	}
}

// list returns the jobs in order, in a slice of its own.
func (s *jobSet) list() []*cluster.Job {
	out := make([]*cluster.Job, 0, s.n)
	for i := range s.blocks {
		out = append(out, s.blocks[i].jobs...)
	}
	return out
}

// clone returns an independent copy.
func (s *jobSet) clone() jobSet {
	c := jobSet{blocks: make([]block, len(s.blocks)), n: s.n}
	for i, b := range s.blocks {
		c.blocks[i] = block{ids: slices.Clone(b.ids), jobs: slices.Clone(b.jobs)}
	}
	return c
}

// last returns the highest id, 0 in an empty set.
func (s *jobSet) last() cluster.JobID {
	if len(s.blocks) == 0 {
		return 0
	}
	ids := s.blocks[len(s.blocks)-1].ids
	return ids[len(ids)-1]
}

// cursor walks a jobSet that does not change meanwhile.
type cursor struct {
	set  *jobSet
	b, i int
}

// from returns a cursor at the first job with an id above after.
func (s *jobSet) from(after cluster.JobID) cursor {
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

// merge calls f with the jobs of disjoint sets above an id, in order of their
// ids, until f returns false.
func merge(sets []*jobSet, after cluster.JobID, f func(*cluster.Job) bool) {
	var cs []cursor
	for _, s := range sets {
		if c := s.from(after); !c.done() {
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

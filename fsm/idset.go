package fsm

import (
	"slices"
	"sort"

	"github.com/berth-scheduler/berth/cluster"
)

// blockLen bounds a block of an idSet: removing moves at most this many ids.
const blockLen = 512

// idSet is a set of job ids in order, cheap to add to at the end and to
// remove from anywhere.
type idSet struct {
	blocks [][]cluster.JobID // none empty
	n      int
}

// at returns the block that holds or would hold id.
func (s *idSet) at(id cluster.JobID) int {
	return max(0, sort.Search(len(s.blocks), func(i int) bool { return s.blocks[i][0] > id })-1)
}

func (s *idSet) add(id cluster.JobID) {
	if len(s.blocks) == 0 {
		s.blocks = [][]cluster.JobID{append(make([]cluster.JobID, 0, blockLen), id)}
		s.n++
		return
	}
	b := s.at(id)
	i, found := slices.BinarySearch(s.blocks[b], id)
	if found {
		return
	}
	s.n++
	if len(s.blocks[b]) < blockLen {
		s.blocks[b] = slices.Insert(s.blocks[b], i, id)
		return
	}
	if i == blockLen {
		s.blocks = slices.Insert(s.blocks, b+1, append(make([]cluster.JobID, 0, blockLen), id))
		return
	}
	right := append(make([]cluster.JobID, 0, blockLen), s.blocks[b][blockLen/2:]...)
	s.blocks[b] = s.blocks[b][:blockLen/2]
	s.blocks = slices.Insert(s.blocks, b+1, right)
	s.n--
	s.add(id)
}

func (s *idSet) remove(id cluster.JobID) {
	if len(s.blocks) == 0 {
		return
	}
	b := s.at(id)
	i, found := slices.BinarySearch(s.blocks[b], id)
	if !found {
		return
	}
	s.n--
	s.blocks[b] = slices.Delete(s.blocks[b], i, i+1)
	if len(s.blocks[b]) == 0 {
		s.blocks = slices.Delete(s.blocks, b, b+1)
	}
}

// after calls f with each id above the given one, in order, until f returns
// false.
func (s *idSet) after(id cluster.JobID, f func(cluster.JobID) bool) {
	for b := s.at(id); b < len(s.blocks); b++ {
		for _, x := range s.blocks[b] {
			if x > id && !f(x) {
				return
			}
		}
	}
}

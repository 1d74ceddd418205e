package fit

// Split is a forest that separates trees by whether they use columns from a certain
// one on: where only those columns change from row to row, as they do for one job
// on many types of GPU, the other trees are summed once. It is immutable and safe
// for concurrent use; a nil Split has no trees.
type Split struct {
	f    *Forest
	late []int32 // trees that use late columns, rising
	is   []bool  // by tree
}

// Split separates the trees; column is the first of the late ones.
func (f *Forest) Split(column int) *Split {
	if f == nil {
		return nil
	}
	s := &Split{f: f, is: make([]bool, len(f.starts))}
	for t := range f.starts {
		end := len(f.nodes)
		if t+1 < len(f.starts) {
			end = int(f.starts[t+1])
		}
		for _, n := range f.nodes[f.starts[t]:end] {
			if n.right != 0 && int(n.column) >= column {
				s.is[t] = true
			}
		}
		if s.is[t] {
			s.late = append(s.late, int32(t))
		}
	}
	return s
}

// Trees returns the number of trees in the forest.
func (s *Split) Trees() int {
	if s == nil {
		return 0
	}
	return len(s.is)
}

// Early appends to sums, for each k from 0 to the number of trees, the output for
// row of the first k trees, without those that use late columns.
func (s *Split) Early(row, sums []float64) []float64 {
	total := 0.0
	sums = append(sums, total)
	if s == nil {
		return sums
	}
	for t := range s.is {
		if !s.is[t] {
			total += s.f.Range(row, t, t+1)
		}
		sums = append(sums, total)
	}
	return sums
}

// Late returns the sum for row of those of the first k trees that use late columns.
func (s *Split) Late(row []float64, k int) float64 {
	total := 0.0
	if s == nil {
		return total
	}
	for _, t := range s.late {
		if int(t) >= k {
			break
		}
		total += s.f.Range(row, int(t), int(t)+1)
	}
	return total
}

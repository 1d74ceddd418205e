package cells

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// Limits on what a tenant may be guaranteed.
const (
	// MaxLevel is the largest level: cells of 2^MaxLevel GPUs.
	MaxLevel = 12
	// MaxCount is the largest number of cells of one level.
	MaxCount = 100_000
)

// Cell is a guarantee of Count cells of GPUs GPUs each: aligned groups, each of one
// type and one node, or of several nodes of a rack. GPUs is a power of two.
type Cell struct {
	GPUType string
	GPUs    int
	Count   int
}

// String returns the form that ParseCell reads.
func (c Cell) String() string { return fmt.Sprintf("%s:%d=%d", c.GPUType, c.GPUs, c.Count) }

// Tenant is a group of users with a guarantee, possibly empty; then all its jobs
// run on what others leave.
type Tenant struct {
	Name  string
	Cells []Cell
}

// ParseCell reads TYPE:GPUS=COUNT, for example "A100-SXM4-80GB:8=2": two groups of
// eight GPUs. The error says what was wrong and what is expected.
func ParseCell(s string) (Cell, error) {
	head, count, ok1 := cutLast(s, "=")
	name, size, ok2 := cutLast(head, ":")
	if !ok1 || !ok2 || name == "" {
		return Cell{}, fmt.Errorf("%.80q: want TYPE:GPUS=COUNT, such as A100-SXM4-80GB:8=2 for two groups of 8 GPUs", s)
	}
	c := Cell{GPUType: name}
	var err error
	if c.GPUs, err = strconv.Atoi(size); err != nil || c.GPUs < 1 || c.GPUs > 1<<MaxLevel || bits.OnesCount(uint(c.GPUs)) != 1 {
		return Cell{}, fmt.Errorf("%.80q: a cell of %.20q GPUs; want a power of two from 1 to %d", s, size, 1<<MaxLevel)
	}
	if c.Count, err = strconv.Atoi(count); err != nil || c.Count < 1 || c.Count > MaxCount {
		return Cell{}, fmt.Errorf("%.80q: %.20q cells; want 1 to %d", s, count, MaxCount)
	}
	return c, nil
}

// cutLast splits at the last sep, since names of types may hold it.
func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

func sortTenants(ts []Tenant) []Tenant {
	ts = slices.Clone(ts)
	slices.SortStableFunc(ts, func(a, b Tenant) int { return cmp.Compare(a.Name, b.Name) })
	return ts
}

// level returns the least level whose power of two is at least g.
func level(g int) int { return bits.Len(uint(g - 1)) }

// needs returns how many cells of each level each tenant has of a type.
func needs(ts []Tenant, gpuType string) [][]int {
	out := make([][]int, len(ts)+1) // one for jobs without a tenant
	for i := range out {
		out[i] = make([]int, MaxLevel+1)
	}
	for i, t := range ts {
		for _, c := range t.Cells {
			if c.GPUType == gpuType {
				out[i][level(c.GPUs)] += c.Count
			}
		}
	}
	return out
}

// Shortage is a guarantee that the hardware in service cannot keep.
type Shortage struct {
	Tenant  string
	GPUType string
	// GPUs is the size of the cells, Missing how many of Want have no room.
	GPUs, Want, Missing int
}

// String describes the shortage.
func (s Shortage) String() string {
	return fmt.Sprintf("tenant %s: %d of its %d cells of %d GPUs (%s) cannot be kept", s.Tenant, s.Missing, s.Want, s.GPUs, s.GPUType)
}

package fit

import (
	"encoding/binary"
	"fmt"
	"math"
)

// MaxNodes bounds a forest: one read from elsewhere must not take more.
const MaxNodes = 1 << 15

// nodeBytes is the size of one encoded node.
const nodeBytes = 1 + 2 + 4

// Forest is a sum of regression trees over rows of Columns numbers. It is immutable
// and safe for concurrent use; a nil Forest predicts 0.
type Forest struct {
	Columns int
	nodes   []node
	starts  []int32 // first node of each tree
}

// node is a leaf if right is 0, and value is then its output. Otherwise the left
// child, the next node, is for rows whose column is at most value, and the right
// child is right nodes further on.
type node struct {
	value  float32
	right  uint16
	column uint8
}

// Trees returns the number of trees in the forest.
func (f *Forest) Trees() int {
	if f == nil {
		return 0
	}
	return len(f.starts)
}

// Nodes returns the number of nodes of all trees.
func (f *Forest) Nodes() int {
	if f == nil {
		return 0
	}
	return len(f.nodes)
}

// First returns a forest of the first k trees, which shares f's memory.
func (f *Forest) First(k int) *Forest {
	if f == nil || k <= 0 {
		return nil
	}
	if k >= len(f.starts) {
		return f
	}
	return &Forest{Columns: f.Columns, nodes: f.nodes[:f.starts[k]], starts: f.starts[:k]}
}

// Predict returns the sum of the trees' outputs for row, which has Columns numbers.
func (f *Forest) Predict(row []float64) float64 { return f.Range(row, 0, f.Trees()) }

// Range sums up the trees from (inclusive) to to (exclusive).
func (f *Forest) Range(row []float64, from, to int) float64 {
	sum := 0.0
	for t := from; t < to; t++ {
		at := f.starts[t]
		for {
			n := &f.nodes[at]
			if n.right == 0 {
				sum += float64(n.value)
				break
			}
			if row[n.column] <= float64(n.value) {
				at++
			} else {
				at += int32(n.right)
			}
		}
	}
	return sum
}

// Append appends to b the encoding of f: columns, trees, nodes, then each tree's
// length and each node, little-endian.
func (f *Forest) Append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint16(b, uint16(f.columns()))
	b = binary.LittleEndian.AppendUint16(b, uint16(f.Trees()))
	b = binary.LittleEndian.AppendUint32(b, uint32(f.Nodes()))
	if f == nil {
		return b
	}
	for i, s := range f.starts {
		end := len(f.nodes)
		if i+1 < len(f.starts) {
			end = int(f.starts[i+1])
		}
		b = binary.LittleEndian.AppendUint16(b, uint16(end-int(s)))
	}
	for _, n := range f.nodes {
		b = append(b, n.column)
		b = binary.LittleEndian.AppendUint16(b, n.right)
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(n.value))
	}
	return b
}

func (f *Forest) columns() int {
	if f == nil {
		return 0
	}
	return f.Columns
}

// ReadForest decodes the result of Append for rows of the given number of columns
// and returns what follows it. It refuses what could make Predict fail or never
// end: children outside their tree, columns that do not exist, numbers that are not
// finite. Errors wrap ErrData.
func ReadForest(b []byte, columns int) (*Forest, []byte, error) {
	if len(b) < 8 {
		return nil, nil, fmt.Errorf("%w: forest cut short", ErrData)
	}
	cols, trees, nodes := int(binary.LittleEndian.Uint16(b)), int(binary.LittleEndian.Uint16(b[2:])), int(binary.LittleEndian.Uint32(b[4:]))
	b = b[8:]
	if trees == 0 && nodes == 0 && cols == 0 {
		return nil, b, nil
	}
	switch {
	case cols != columns:
		return nil, nil, fmt.Errorf("%w: forest over %d columns, must be %d", ErrData, cols, columns)
	case nodes > MaxNodes || trees > nodes:
		return nil, nil, fmt.Errorf("%w: forest of %d trees and %d nodes, at most %d nodes are allowed", ErrData, trees, nodes, MaxNodes)
	case len(b) < 2*trees+nodeBytes*nodes:
		return nil, nil, fmt.Errorf("%w: forest cut short", ErrData)
	}
	f := &Forest{Columns: cols, nodes: make([]node, nodes), starts: make([]int32, trees)}
	at := 0
	for i := range f.starts {
		f.starts[i] = int32(at)
		at += int(binary.LittleEndian.Uint16(b[2*i:]))
	}
	if at != nodes {
		return nil, nil, fmt.Errorf("%w: trees of %d nodes in a forest of %d", ErrData, at, nodes)
	}
	b = b[2*trees:]
	for i := range f.nodes {
		f.nodes[i] = node{column: b[0], right: binary.LittleEndian.Uint16(b[1:]), value: math.Float32frombits(binary.LittleEndian.Uint32(b[3:]))}
		b = b[nodeBytes:]
	}
	return f, b, f.check()
}

// check makes sure that every walk ends at a leaf of its own tree. Children come
// after their parents, so a walk cannot cycle.
func (f *Forest) check() error {
	for t, start := range f.starts {
		end := int32(len(f.nodes))
		if t+1 < len(f.starts) {
			end = f.starts[t+1]
		}
		if start == end {
			return fmt.Errorf("%w: tree %d is empty", ErrData, t)
		}
		for i := start; i < end; i++ {
			n := &f.nodes[i]
			if v := float64(n.value); math.IsNaN(v) || math.IsInf(v, 0) {
				return fmt.Errorf("%w: tree %d: node %d holds %v", ErrData, t, i-start, v)
			}
			if n.right != 0 && (int(n.column) >= f.Columns || i+int32(n.right) >= end || i+1 >= end) {
				return fmt.Errorf("%w: tree %d: node %d points outside", ErrData, t, i-start)
			}
		}
	}
	return nil
}

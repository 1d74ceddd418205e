package graph

import (
	"cmp"
	"math"
	"slices"
)

// The constants of PyTorch's CUDACachingAllocator
// (c10/cuda/CUDACachingAllocator.cpp).
const (
	roundBlock    = 512
	smallRequest  = 1 << 20  // up to here from the small pool
	smallSegment  = 2 << 20  // size of small segments
	middleRequest = 10 << 20 // below this a large segment is taken
	largeSegment  = 20 << 20
	roundLarge    = 2 << 20 // above, requests are rounded to this
)

// Peak replays events through a model of PyTorch's caching allocator and returns
// the peak memory, in bytes, that it held from the driver: what NVML shows for the
// process less the CUDA context. As in PyTorch, freed blocks stay cached. Events
// that free unknown blocks are ignored.
func Peak(events []Event) int64 {
	a := newAllocator()
	for i := range events {
		switch e := &events[i]; e.Kind {
		case Alloc:
			a.alloc(e.Tensor, e.Bytes)
		case Free:
			a.release(e.Tensor)
		case Compute:
		}
	}
	return a.reserved
}

// block is a piece of a segment. prev and next are its neighbours there.
type block struct {
	seq        int64 // order of creation, for a total order among equal sizes
	size       int64
	used       bool
	small      bool
	prev, next *block
}

type allocator struct {
	reserved int64
	seq      int64
	used     map[int32]*block
	free     [2][]*block // small and large pool, by size and age
}

func newAllocator() *allocator { return &allocator{used: map[int32]*block{}} }

func bySize(a, b *block) int {
	return cmp.Or(cmp.Compare(a.size, b.size), cmp.Compare(a.seq, b.seq))
}

func (a *allocator) pool(small bool) *[]*block {
	if small {
		return &a.free[0]
	}
	return &a.free[1]
}

func roundUp(n, to int64) int64 {
	if n > math.MaxInt64-to {
		return math.MaxInt64 / to * to
	}
	return (n + to - 1) / to * to
}

func (a *allocator) alloc(id int32, bytes int64) {
	if bytes <= 0 {
		return
	}
	size := roundUp(bytes, roundBlock)
	small := size <= smallRequest
	b := a.take(size, small)
	if b == nil {
		b = a.segment(size, small)
	}
	if rest := b.size - size; (small && rest >= roundBlock) || (!small && rest > smallRequest) {
		a.seq++
		tail := &block{seq: a.seq, size: rest, small: small, prev: b, next: b.next}
		if b.next != nil {
			b.next.prev = tail
		}
		b.next, b.size = tail, size
		a.put(tail)
	}
	b.used = true
	a.used[id] = b
}

// take removes the smallest cached block that fits, or returns nil.
func (a *allocator) take(size int64, small bool) *block {
	p := a.pool(small)
	i, _ := slices.BinarySearchFunc(*p, size, func(b *block, size int64) int { return cmp.Compare(b.size, size) })
	if i == len(*p) {
		return nil
	}
	b := (*p)[i]
	*p = slices.Delete(*p, i, i+1)
	return b
}

// segment requests more from the driver.
func (a *allocator) segment(size int64, small bool) *block {
	n := roundUp(size, roundLarge)
	switch {
	case small:
		n = smallSegment
	case size < middleRequest:
		n = largeSegment
	}
	a.reserved = satAdd(a.reserved, n)
	a.seq++
	return &block{seq: a.seq, size: n, small: small}
}

func (a *allocator) put(b *block) {
	p := a.pool(b.small)
	i, _ := slices.BinarySearchFunc(*p, b, bySize)
	*p = slices.Insert(*p, i, b)
}

func (a *allocator) drop(b *block) {
	p := a.pool(b.small)
	if i, ok := slices.BinarySearchFunc(*p, b, bySize); ok {
		*p = slices.Delete(*p, i, i+1)
	}
}

// release returns a block to its pool, merged with its free neighbours.
func (a *allocator) release(id int32) {
	b, ok := a.used[id]
	if !ok {
		return
	}
	delete(a.used, id)
	b.used = false
	if n := b.next; n != nil && !n.used {
		a.drop(n)
		b.size += n.size
		if b.next = n.next; b.next != nil {
			b.next.prev = b
		}
	}
	if v := b.prev; v != nil && !v.used {
		a.drop(v)
		v.size += b.size
		if v.next = b.next; v.next != nil {
			v.next.prev = v
		}
		b = v
	}
	a.put(b)
}

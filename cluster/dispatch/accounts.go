package dispatch

import (
	"iter"
	"slices"
	"sync/atomic"
)

// blockLen is how many accounts a block holds: cloning the GPUs of ten thousand
// nodes takes five thousand steps, and changing one afterwards copies 16.
const blockLen = 16

// accounts is a list that is cheap to copy: copies share their blocks, and a shared
// block is copied before it is changed.
type accounts[T any] struct {
	n      int
	blocks []*block[T]
}

type block[T any] struct {
	shared atomic.Bool // never cleared: copies are not counted
	rows   [blockLen]T
}

// clone returns a copy. It may be called concurrently.
func (a *accounts[T]) clone() accounts[T] {
	for _, p := range a.blocks {
		if !p.shared.Load() {
			p.shared.Store(true)
		}
	}
	return accounts[T]{a.n, slices.Clone(a.blocks)}
}

// at returns the account at i for reading. It may or may not follow later changes.
func (a *accounts[T]) at(i int) *T { return &a.blocks[i/blockLen].rows[i%blockLen] }

// edit returns the account at i for writing.
func (a *accounts[T]) edit(i int) *T {
	p := &a.blocks[i/blockLen]
	if (*p).shared.Load() {
		*p = &block[T]{rows: (*p).rows}
	}
	return &(*p).rows[i%blockLen]
}

func (a *accounts[T]) add(r T) {
	if a.n%blockLen == 0 {
		a.blocks = append(a.blocks, &block[T]{})
	}
	a.n++
	*a.edit(a.n - 1) = r
}

// all yields the accounts in order, for reading.
func (a *accounts[T]) all() iter.Seq2[int, *T] {
	return func(yield func(int, *T) bool) {
		for i := range a.n {
			if !yield(i, a.at(i)) {
				return
			}
		}
	}
}

// without returns the accounts for which gone is false.
func (a *accounts[T]) without(gone func(*T) bool) accounts[T] {
	var out accounts[T]
	for _, r := range a.all() {
		if !gone(r) {
			out.add(*r)
		}
	}
	return out
}

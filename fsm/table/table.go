package table

import (
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"
)

// Table holds the entities of one kind by their keys. Values are immutable: a
// change puts another one in the place of the old, so that a copy of the table
// stays as it is.
type Table[K comparable, V any] struct {
	rows    map[K]V
	compare func(a, b K) int
	digests *Digests[K] // nil in a copy
	ordered ordered[K, V]
}

// Of is what tells the entities of one kind from those of others.
type Of[K comparable, V any] struct {
	Kind Kind
	// Key is how the key of one is hashed.
	Key func(K) []byte
	// Compare is the order in which they are written.
	Compare func(a, b K) int
	// Record is the stored form of one.
	Record func(K, V) proto.Message
}

// New returns an empty table whose entities count in h.
func New[K comparable, V any](h *Hash, of Of[K, V]) *Table[K, V] {
	t := &Table[K, V]{rows: map[K]V{}, compare: of.Compare}
	t.digests = NewDigests(h, of.Kind, of.Key, func(k K) proto.Message {
		v, ok := t.rows[k]
		if !ok {
			return nil
		}
		return of.Record(k, v)
	})
	return t
}

// Get returns the entity with a key, the zero value when there is none.
func (t *Table[K, V]) Get(k K) V { return t.rows[k] }

// Has reports whether there is an entity with a key.
func (t *Table[K, V]) Has(k K) bool {
	_, ok := t.rows[k]
	return ok
}

// Len is how many there are.
func (t *Table[K, V]) Len() int { return len(t.rows) }

// Put adds an entity, or puts it in the place of the one with its key.
func (t *Table[K, V]) Put(k K, v V) {
	t.ordered.put(k, t.Has(k))
	t.rows[k] = v
	t.digests.Touch(k)
}

// Drop forgets the entity with a key.
func (t *Table[K, V]) Drop(k K) {
	t.ordered.forget()
	delete(t.rows, k)
	t.digests.Touch(k)
}

// Rows are the entities by key, in no order. They are not to be changed.
func (t *Table[K, V]) Rows() map[K]V { return t.rows }

// Keys returns all keys in order.
func (t *Table[K, V]) Keys() []K { return slices.SortedFunc(maps.Keys(t.rows), t.compare) }

// List returns all entities in the order of their keys.
func (t *Table[K, V]) List() []V { return slices.Clone(t.Shared()) }

// Shared is List without a copy: the slice stays as it is, and is not to be changed. It
// may be called by several at once, but not beside a change.
func (t *Table[K, V]) Shared() []V { return t.ordered.list(t) }

// View is a copy to read from, which stays as it is.
func (t *Table[K, V]) View() *Table[K, V] {
	return &Table[K, V]{rows: maps.Clone(t.rows), compare: t.compare}
}

// Text is a key that is text, for Of.
func Text[K ~string](k K) []byte { return []byte(k) }

// One is the key of what there is at most one of.
type One struct{}

// NewOne returns the digest of what there is at most one of.
func NewOne(h *Hash, kind Kind, record func() proto.Message) *Digests[One] {
	return NewDigests(h, kind, func(One) []byte { return nil }, func(One) proto.Message { return record() })
}

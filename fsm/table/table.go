package table

import (
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"
)

// Table holds the entities of one kind by key. Values are immutable: a change
// replaces the value, so that a copy of the table does not change.
type Table[K comparable, V any] struct {
	rows    map[K]V
	compare func(a, b K) int
	digests *Digests[K] // nil in a copy
	ordered ordered[K, V]
}

// Of is what distinguishes the entities of one kind from others.
type Of[K comparable, V any] struct {
	Kind Kind
	// Key returns how a key is hashed.
	Key func(K) []byte
	// Compare is the order in which they are written.
	Compare func(a, b K) int
	// Record returns the stored form of an entity, of its arguments alone.
	Record func(K, V) proto.Message
}

// New returns an empty table whose entities count in h.
func New[K comparable, V any](h *Hash, of Of[K, V]) *Table[K, V] {
	t := &Table[K, V]{rows: map[K]V{}, compare: of.Compare}
	t.digests = OfValues(h, of.Kind, of.Key, func(k K) func() proto.Message {
		v, ok := t.rows[k]
		if !ok {
			return nil
		}
		return func() proto.Message { return of.Record(k, v) }
	})
	return t
}

// Get returns the entity with a key, the zero value if there is none.
func (t *Table[K, V]) Get(k K) V { return t.rows[k] }

// Has reports whether there is an entity with a key.
func (t *Table[K, V]) Has(k K) bool {
	_, ok := t.rows[k]
	return ok
}

// Len returns the number of entities.
func (t *Table[K, V]) Len() int { return len(t.rows) }

// Put adds an entity, or replaces the one with its key.
func (t *Table[K, V]) Put(k K, v V) {
	t.ordered.put(k, t.Has(k))
	t.rows[k] = v
	t.digests.Touch(k)
}

// Drop removes the entity with a key.
func (t *Table[K, V]) Drop(k K) {
	t.ordered.forget()
	delete(t.rows, k)
	t.digests.Touch(k)
}

// Rows returns the entities by key, unordered. The caller must not modify the map.
func (t *Table[K, V]) Rows() map[K]V { return t.rows }

// Keys returns all keys in order.
func (t *Table[K, V]) Keys() []K { return slices.SortedFunc(maps.Keys(t.rows), t.compare) }

// List returns all entities in the order of their keys.
func (t *Table[K, V]) List() []V { return slices.Clone(t.Shared()) }

// Shared is List without a copy: the slice does not change, and the caller must not
// modify it. It may be called concurrently, but not concurrently with a change.
func (t *Table[K, V]) Shared() []V { return t.ordered.list(t) }

// View returns a copy for reading, which does not change.
func (t *Table[K, V]) View() *Table[K, V] {
	return &Table[K, V]{rows: maps.Clone(t.rows), compare: t.compare}
}

// Text returns a key that is text, for Of.
func Text[K ~string](k K) []byte { return []byte(k) }

// One is the key of an entity of which there is at most one.
type One struct{}

// NewOne returns the digest of an entity of which there is at most one.
func NewOne(h *Hash, kind Kind, record func() proto.Message) *Digests[One] {
	return NewDigests(h, kind, func(One) []byte { return nil }, func(One) proto.Message { return record() })
}

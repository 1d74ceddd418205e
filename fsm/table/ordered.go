package table

import (
	"slices"
	"sync"
)

// ordered keeps the entities of a table sorted by key, since sorting ten thousand
// nodes for each submission takes longer than everything else about it.
type ordered[K comparable, V any] struct {
	mu    sync.Mutex // for concurrent readers
	keys  []K        // nil if it must be rebuilt
	rows  []V        // of the keys; never changed once handed out
	again []K        // keys whose entity was replaced since
}

// put records that an entity is put; there says that it replaces another.
func (o *ordered[K, V]) put(k K, there bool) {
	if o.keys == nil {
		return
	}
	if !there || len(o.again) > len(o.keys)/2 {
		o.forget()
		return
	}
	o.again = append(o.again, k)
}

func (o *ordered[K, V]) forget() { o.keys, o.rows, o.again = nil, nil, nil }

func (o *ordered[K, V]) list(t *Table[K, V]) []V {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.keys == nil:
		o.keys = t.Keys()
		o.rows = make([]V, len(o.keys))
		for i, k := range o.keys {
			o.rows[i] = t.rows[k]
		}
	case len(o.again) > 0:
		o.rows = slices.Clone(o.rows)
		for _, k := range o.again {
			i, _ := slices.BinarySearchFunc(o.keys, k, t.compare) // it is there
			o.rows[i] = t.rows[k]
		}
		o.again = o.again[:0]
	}
	return slices.Clip(o.rows)
}

package table

import (
	"maps"
	"slices"

	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// Writer sends records until the first error.
type Writer struct {
	put func(*logv1.Record) error
	err error
}

// NewWriter returns a writer that sends with put.
func NewWriter(put func(*logv1.Record) error) *Writer { return &Writer{put: put} }

// Send sends one record.
func (w *Writer) Send(r *logv1.Record) {
	if w.err == nil {
		w.err = w.put(r)
	}
}

// Err returns the first error, or nil.
func (w *Writer) Err() error { return w.err }

// SortedKeys returns the keys of a map in order.
func SortedKeys[K interface{ ~string | ~uint64 }, V any](m map[K]V) []K {
	return slices.Sorted(maps.Keys(m))
}

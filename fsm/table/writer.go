package table

import (
	"maps"
	"slices"

	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// Writer sends records until the first error.
type Writer struct {
	put func(n int, record func(int) *logv1.Record) error
	err error
}

// NewWriter returns a writer that sends with put.
func NewWriter(put func(*logv1.Record) error) *Writer {
	return InParts(func(n int, record func(int) *logv1.Record) error {
		for i := range n {
			if err := put(record(i)); err != nil {
				return err
			}
		}
		return nil
	})
}

// InParts returns a writer that sends with put, which gets the number of the next
// records and a function that returns each, also of several at once.
func InParts(put func(n int, record func(int) *logv1.Record) error) *Writer {
	return &Writer{put: put}
}

// Send sends one record.
func (w *Writer) Send(r *logv1.Record) { w.Many(1, func(int) *logv1.Record { return r }) }

// Many sends n records in order.
func (w *Writer) Many(n int, record func(int) *logv1.Record) {
	if w.err == nil {
		w.err = w.put(n, record)
	}
}

// Err returns the first error, or nil.
func (w *Writer) Err() error { return w.err }

// SortedKeys returns the keys of a map in order.
func SortedKeys[K interface{ ~string | ~uint64 }, V any](m map[K]V) []K {
	return slices.Sorted(maps.Keys(m))
}

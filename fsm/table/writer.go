package table

import (
	"maps"
	"slices"

	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// Records are N records of one kind.
type Records struct {
	N int
	// Whole returns a record.
	Whole func(i int) *logv1.Record
	// Own and Shared return it in two parts, the second of which others have as well:
	// encoded one behind the other they are the record. They are nil if there are none.
	Own, Shared func(i int) *logv1.Record
	// Same reports whether Shared of two records is the same.
	Same func(i, k int) bool
}

// Writer sends records until the first error.
type Writer struct {
	put func(*Records) error
	err error
}

// NewWriter returns a writer that sends with put.
func NewWriter(put func(*logv1.Record) error) *Writer {
	return InParts(func(rs *Records) error {
		for i := range rs.N {
			if err := put(rs.Whole(i)); err != nil {
				return err
			}
		}
		return nil
	})
}

// InParts returns a writer that sends with put, which may ask for several records at
// once.
func InParts(put func(*Records) error) *Writer { return &Writer{put: put} }

// Send sends one record.
func (w *Writer) Send(r *logv1.Record) {
	w.Many(&Records{N: 1, Whole: func(int) *logv1.Record { return r }})
}

// Many sends records in order.
func (w *Writer) Many(rs *Records) {
	if w.err == nil {
		w.err = w.put(rs)
	}
}

// Err returns the first error, or nil.
func (w *Writer) Err() error { return w.err }

// SortedKeys returns the keys of a map in order.
func SortedKeys[K interface{ ~string | ~uint64 }, V any](m map[K]V) []K {
	return slices.Sorted(maps.Keys(m))
}

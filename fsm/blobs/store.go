// Package blobs is the part of the state machine for the large parts of specs,
// environments with their scripts: each is sent separately, stored once for all who
// share it, and kept as long as a waiting or running job, or an array, names it. It
// also counts the spec bytes of users.
package blobs

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/table"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// Sum is the hash by which specs name an environment with its script.
type Sum = [sha256.Size]byte

// Keeper moves an environment with its script out of memory; a nil Keeper, or a nil
// result, leaves it there.
type Keeper func(env []string, script []byte) cluster.Bulk

// Store holds large parts by hash.
type Store struct {
	keep    Keeper
	uploads uploads
	given   map[Sum]cluster.Bulk // from the snapshot that is being read
	digests *table.Digests[Sum]  // of uploads

	// The rest is counted from the jobs and never stored.
	users map[cluster.UID]*userBytes
	total int64
	held  map[Sum]*heldBulk
}

// New returns an empty store.
func New(h *table.Hash) *Store {
	b := &Store{
		uploads: uploads{bySum: map[Sum]*upload{}, bytes: map[cluster.UID]int64{}},
		users:   map[cluster.UID]*userBytes{}, held: map[Sum]*heldBulk{},
	}
	b.digests = table.NewDigests(h, table.Upload, func(s Sum) []byte { return s[:] }, func(s Sum) proto.Message {
		if u := b.uploads.bySum[s]; u != nil {
			return u.record()
		}
		return nil
	})
	return b
}

// KeepBy sets the keeper from now on.
func (b *Store) KeepBy(keep Keeper) { b.keep = keep }

// Apart moves the large parts out of a new or restored spec.
func (b *Store) Apart(now cluster.Time, s *cluster.Spec) {
	if _, bulk := s.Weight(); bulk == 0 || s.Bulk != nil {
		return
	}
	s.Env, s.Script, s.Bulk = nil, nil, b.hold(now, s.Env, s.Script)
}

// hold stores the large parts outside of memory or, if that is not possible, in it.
func (b *Store) hold(now cluster.Time, env []string, script []byte) cluster.Bulk {
	if b.keep != nil {
		if k := b.keep(env, script); k != nil {
			return k
		}
	}
	k := cluster.HoldBulk(env, script)
	if have := b.Of(now, k.Sum()); have != nil {
		return have
	}
	return k
}

// whole stores the result of cluster.EncodeBulk; it returns nil for anything else,
// and for data with another hash.
func (b *Store) whole(now cluster.Time, data []byte, sum Sum) cluster.Bulk {
	env, script, ok := cluster.ParseBulk(data)
	if !ok {
		return nil
	}
	if k := b.hold(now, env, script); k.Sum() == sum {
		return k
	}
	return nil
}

// Of returns the content with a hash, nil if no job has it and no recent upload
// brought it.
func (b *Store) Of(now cluster.Time, sum Sum) cluster.Bulk {
	if h := b.held[sum]; h != nil {
		return h.bulk
	}
	if u := b.uploadOf(now, sum); u != nil {
		return u.bulk
	}
	return nil
}

// Named is Of for conversions; it also finds what the snapshot being read has
// brought.
func (b *Store) Named(now cluster.Time, sum []byte) cluster.Bulk {
	if len(sum) != sha256.Size {
		return nil
	}
	if k := b.given[Sum(sum)]; k != nil {
		return k
	}
	return b.Of(now, Sum(sum))
}

// View returns a copy for writing a snapshot; it does not change.
func (b *Store) View() *Store { return &Store{uploads: uploads{bySum: maps.Clone(b.uploads.bySum)}} }

// Each sends the large parts, each once, and the uploads; named is what other
// records name.
func (b *Store) Each(w *table.Writer, named map[Sum]cluster.Bulk) {
	all := map[Sum]cluster.Bulk{}
	maps.Copy(all, named)
	for sum, u := range b.uploads.bySum {
		if u.bulk != nil && all[sum] == nil {
			all[sum] = u.bulk
		}
	}
	inOrder := func(a, b Sum) int { return bytes.Compare(a[:], b[:]) }
	for _, sum := range slices.SortedFunc(maps.Keys(all), inOrder) {
		if w.Err() != nil {
			return
		}
		w.Send(&logv1.Record{Kind: &logv1.Record_Bulk{Bulk: &logv1.Bulk{Data: cluster.EncodeBulk(all[sum].Load())}}})
	}
	for _, sum := range slices.SortedFunc(maps.Keys(b.uploads.bySum), inOrder) {
		w.Send(&logv1.Record{Kind: &logv1.Record_Upload{Upload: b.uploads.bySum[sum].record()}})
	}
}

// Load restores a record that Each sent.
func (b *Store) Load(now cluster.Time, r *logv1.Record) error {
	switch m := r.Kind.(type) {
	case *logv1.Record_Bulk:
		return b.loadBulk(now, m.Bulk)
	case *logv1.Record_Upload:
		return b.loadUpload(m.Upload)
	}
	return nil
}

func (b *Store) loadBulk(now cluster.Time, m *logv1.Bulk) error {
	sum := sha256.Sum256(m.GetData())
	k := b.whole(now, m.GetData(), sum)
	if k == nil {
		return fmt.Errorf("environment and script of %d bytes are malformed", len(m.GetData()))
	}
	if b.given == nil {
		b.given = map[Sum]cluster.Bulk{}
	}
	b.given[sum] = k
	return nil
}

// Settle sorts what a snapshot brought, once all of it was read.
func (b *Store) Settle() {
	b.given = nil
	b.uploads.settle()
}

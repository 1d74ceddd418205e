// Package table holds what all kinds of entities of the state have in common: they
// are found by key, digested after a change, written in an order that does not
// depend on maps, and copied as a whole.
package table

import (
	"crypto/sha256"
	"encoding/binary"

	"google.golang.org/protobuf/proto"
)

// digest is a SHA-256 as four numbers, so that digests can be summed.
type digest [4]uint64

func (d *digest) add(o digest) {
	for i := range d {
		d[i] += o[i]
	}
}

func (d *digest) sub(o digest) {
	for i := range d {
		d[i] -= o[i]
	}
}

// MaxDirty is how many entities are left to be digested when the hash is asked for: a
// snapshot pauses the state machine for that, 5 µs each. An entry after which there
// are more digests down to half as many, so that the next ones need not, but no more
// than MaxDirty.
const MaxDirty = 2048

// Hash keeps the sum of the digests of all entities. Sums do not depend on order,
// so a change costs the digest of what changed, and a job that changes five times
// between two hashes is digested once. The hash guards against faults and not
// against an adversary, who would have to be the leader.
type Hash struct {
	sum    digest
	dirty  int // keys over all parts
	parts  []func(limit int) int
	buf    []byte
	number []byte
}

// Now returns the canonical hash of the entities and of meta, which changes with
// every entry and is not stored. Equal states have equal hashes, whatever their
// histories.
func (h *Hash) Now(meta proto.Message) []byte {
	for _, settle := range h.parts {
		settle(h.dirty)
	}
	sum := h.sum
	sum.add(h.digest(Meta, nil, meta))
	out := make([]byte, 0, sha256.Size)
	for _, v := range sum {
		out = binary.BigEndian.AppendUint64(out, v)
	}
	return out
}

// Some spreads the cost of the next hash over the entries before it.
func (h *Hash) Some() {
	if h.dirty <= MaxDirty {
		return
	}
	left := min(h.dirty-MaxDirty/2, MaxDirty)
	for _, settle := range h.parts {
		left -= settle(left)
	}
}

// Dirty returns how many entities have yet to be digested.
func (h *Hash) Dirty() int { return h.dirty }

// digest hashes kind, key and record. Records have no maps and no unknown
// fields, so the deterministic encoding is canonical.
func (h *Hash) digest(k Kind, key []byte, rec proto.Message) (d digest) {
	buf := append(h.buf[:0], byte(k))
	buf = binary.AppendUvarint(buf, uint64(len(key)))
	buf = append(buf, key...)
	buf, err := proto.MarshalOptions{Deterministic: true}.MarshalAppend(buf, rec)
	if err != nil {
		panic("fsm: encode record: " + err.Error()) // non-UTF-8 text never gets in
	}
	h.buf = buf
	sum := sha256.Sum256(buf)
	for i := range d {
		d[i] = binary.BigEndian.Uint64(sum[8*i:])
	}
	return d
}

// Number returns a numeric key for Digests, valid until the next call.
func (h *Hash) Number(n uint64) []byte {
	h.number = binary.BigEndian.AppendUint64(h.number[:0], n)
	return h.number
}

// Digests holds the digests of one kind of entities.
type Digests[K comparable] struct {
	hash  *Hash
	have  map[K]digest
	dirty map[K]struct{}
}

// NewDigests returns the digests of entities of a kind in h. key returns how an
// entity's key is hashed, and record its stored form, nil if it is gone.
func NewDigests[K comparable](h *Hash, kind Kind, key func(K) []byte, record func(K) proto.Message) *Digests[K] {
	d := &Digests[K]{hash: h, have: map[K]digest{}, dirty: map[K]struct{}{}}
	h.parts = append(h.parts, func(limit int) int {
		return d.settle(limit, func(k K) (digest, bool) {
			rec := record(k)
			if rec == nil {
				return digest{}, false
			}
			return h.digest(kind, key(k), rec), true
		})
	})
	return d
}

// Touch records that an entity was added, changed or removed.
func (d *Digests[K]) Touch(key K) {
	n := len(d.dirty)
	d.dirty[key] = struct{}{}
	d.hash.dirty += len(d.dirty) - n
}

// Len returns how many digests are held.
func (d *Digests[K]) Len() int { return len(d.have) }

// settle brings at most limit digests up to date, and returns how many it did.
// Which ones does not matter: the sum is the same once all are.
func (d *Digests[K]) settle(limit int, of func(K) (digest, bool)) int {
	n := 0
	for key := range d.dirty {
		if n == limit {
			break
		}
		n++
		delete(d.dirty, key)
		d.hash.sum.sub(d.have[key])
		now, ok := of(key)
		if !ok {
			delete(d.have, key)
			continue
		}
		d.have[key] = now
		d.hash.sum.add(now)
	}
	d.hash.dirty -= n
	return n
}

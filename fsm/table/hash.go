// Package table holds what all kinds of entities of the state have in common: they
// are found by key, digested after a change, written in an order that does not
// depend on maps, and copied as a whole.
package table

import (
	"bytes"
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

// MaxDirty is how many entities are left to be digested when the hash is asked for, 5 µs
// each, for which a checkpoint pauses the state machine. An entry after which there
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
	parts  []part
	buf    []byte
	number []byte
}

// part is the digests of one kind.
type part interface {
	// settle brings at most limit digests up to date, and returns how many it did.
	settle(limit int) int
	// share is settle for all of them, by several at once.
	share(t Together)
	// leave has p compute what settle would.
	leave(p *Pending)
}

// Now returns the canonical hash of the entities and of meta, which changes with
// every entry and is not stored. Equal states have equal hashes, whatever their
// histories.
func (h *Hash) Now(meta proto.Message) []byte {
	for _, p := range h.parts {
		p.settle(h.dirty)
	}
	sum := h.sum
	sum.add(h.digest(Meta, nil, meta))
	return sum.bytes()
}

// Later returns the hash that Now would return, with most that has to be digested left
// to the caller: a snapshot need not pause the state machine for it.
func (h *Hash) Later(meta proto.Message) *Pending {
	p := &Pending{rest: make([]pending, 0, h.dirty+1)}
	for _, part := range h.parts {
		part.leave(p)
	}
	p.sum.add(h.sum) // after those that settle
	p.rest = append(p.rest, pending{kind: Meta, record: func() proto.Message { return meta }})
	return p
}

// Pending is a hash that is computed when it is asked for, from what was immutable or
// copied.
type Pending struct {
	sum  digest
	rest []pending
}

// pending is an entity that has yet to be digested.
type pending struct {
	kind   Kind
	key    []byte
	record func() proto.Message
}

// Sum returns the hash. It is called once.
func (p *Pending) Sum() []byte {
	var h Hash
	for _, e := range p.rest {
		p.sum.add(h.digest(e.kind, e.key, e.record()))
	}
	return p.sum.bytes()
}

func (d *digest) bytes() []byte {
	out := make([]byte, 0, sha256.Size)
	for _, v := range d {
		out = binary.BigEndian.AppendUint64(out, v)
	}
	return out
}

// Settle does what Now has to do first, by several at once.
func (h *Hash) Settle(t Together) {
	for _, p := range h.parts {
		p.share(t)
	}
}

// Some spreads the cost of the next hash over the entries before it.
func (h *Hash) Some() {
	if h.dirty <= MaxDirty {
		return
	}
	left := min(h.dirty-MaxDirty/2, MaxDirty)
	for _, p := range h.parts {
		left -= p.settle(left)
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
	kind  Kind
	key   func(K) []byte
	now   func(K) proto.Message
	later func(K) func() proto.Message // nil if entities change in place
	have  map[K]digest
	dirty map[K]struct{}
}

// NewDigests returns the digests of entities of a kind in h. key returns how an
// entity's key is hashed, and record its stored form, nil if it is gone.
func NewDigests[K comparable](h *Hash, kind Kind, key func(K) []byte, record func(K) proto.Message) *Digests[K] {
	d := &Digests[K]{hash: h, kind: kind, key: key, now: record, have: map[K]digest{}, dirty: map[K]struct{}{}}
	h.parts = append(h.parts, d)
	return d
}

// OfValues is NewDigests for immutable entities: record returns a function that
// returns the stored form of an entity as it is now, whenever it is called.
func OfValues[K comparable](h *Hash, kind Kind, key func(K) []byte, record func(K) func() proto.Message) *Digests[K] {
	d := NewDigests(h, kind, key, func(k K) proto.Message {
		if r := record(k); r != nil {
			return r()
		}
		return nil
	})
	d.later = record
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

// settle implements part. Which ones it settles does not matter: the sum is the same
// once all are.
func (d *Digests[K]) settle(limit int) int {
	n := 0
	for key := range d.dirty {
		if n == limit {
			break
		}
		n++
		delete(d.dirty, key)
		if rec := d.now(key); rec != nil {
			d.set(key, d.hash.digest(d.kind, d.key(key), rec))
		} else {
			d.drop(key)
		}
	}
	d.hash.dirty -= n
	return n
}

func (d *Digests[K]) set(key K, is digest) {
	d.hash.sum.sub(d.have[key])
	d.have[key] = is
	d.hash.sum.add(is)
}

func (d *Digests[K]) drop(key K) {
	d.hash.sum.sub(d.have[key])
	delete(d.have, key)
}

// sharedAtOnce is how many digests are computed before they are entered.
const sharedAtOnce = 4096

// share implements part.
func (d *Digests[K]) share(t Together) {
	if d.later == nil {
		d.settle(len(d.dirty))
		return
	}
	most := min(len(d.dirty), sharedAtOnce)
	if most == 0 {
		return
	}
	var lanes [Lanes]Hash
	keys, rest, is := make([]K, 0, most), make([]pending, 0, most), make([]digest, most)
	enter := func() {
		t.Split(len(rest), func(lane, from, to int) {
			for i := from; i < to; i++ {
				is[i] = lanes[lane].digest(d.kind, rest[i].key, rest[i].record())
			}
		})
		for i, key := range keys {
			d.set(key, is[i])
		}
		keys, rest = keys[:0], rest[:0]
	}
	d.hash.dirty -= len(d.dirty)
	for key := range d.dirty {
		record := d.later(key)
		if record == nil {
			d.drop(key)
			continue
		}
		keys, rest = append(keys, key), append(rest, pending{d.kind, bytes.Clone(d.key(key)), record})
		if len(keys) == most {
			enter()
		}
	}
	enter()
	clear(d.dirty)
}

// leave implements part.
func (d *Digests[K]) leave(p *Pending) {
	if d.later == nil {
		d.settle(len(d.dirty))
		return
	}
	for key := range d.dirty {
		p.sum.sub(d.have[key])
		if record := d.later(key); record != nil {
			p.rest = append(p.rest, pending{d.kind, bytes.Clone(d.key(key)), record})
		}
	}
}

package fsm

import (
	"crypto/sha256"
	"encoding/binary"

	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/proto/conv"
)

// kind is the class of an entity, part of what is hashed.
type kind byte

const (
	kindMeta kind = iota + 1
	kindConfig
	kindNode
	kindJob
	kindQueue
	kindRequest
	kindToken
	kindDenied
	kindWeights
	kindSample
	kindKept
	kindPin
	kindInterference
	kindPartition
	kindStanding
	kindSpent
	kindNotice
	kindHook
	kindDead
	kindTelling
	kindReservation
	kindUnshared
)

// kindArray is far from those above, which go on.
const kindArray kind = 64

// entity names a thing of which there are few: all but jobs, requests and
// samples, which have keys that take less room.
type entity struct {
	kind kind
	key  string
}

// digest is a SHA-256 as four numbers, so that digests add up.
type digest [4]uint64

// Digesting is put off until the hash is asked for, but not without end:
// beyond maxDirty an entry does some of it, so that no single one pays for
// all.
const (
	maxDirty  = 4096
	someDirty = 1024
)

// hasher keeps the sum of the digests of all entities. Sums do not depend on
// order, so a change costs the digest of what changed, and a job that changes
// five times between two hashes is digested once. The hash guards against
// faults and not against an adversary, who would have to be the leader.
type hasher struct {
	sum      digest
	jobs     part[cluster.JobID]
	requests part[requestKey]
	samples  part[uint64]
	notices  part[uint64]
	dead     part[uint64]
	arrays   part[cluster.JobID]
	rest     part[entity]
	buf      []byte
}

// part holds the digests of one class of entities.
type part[K comparable] struct {
	have  map[K]digest
	dirty map[K]struct{}
}

func newPart[K comparable]() part[K] {
	return part[K]{have: map[K]digest{}, dirty: map[K]struct{}{}}
}

func newHasher() hasher {
	return hasher{
		jobs: newPart[cluster.JobID](), requests: newPart[requestKey](), samples: newPart[uint64](), arrays: newPart[cluster.JobID](),
		notices: newPart[uint64](), dead: newPart[uint64](), rest: newPart[entity](),
	}
}

func (p *part[K]) touch(key K) { p.dirty[key] = struct{}{} }

// settle brings at most limit digests up to date. Which ones is of no
// account: the sum is the same once all are.
func (p *part[K]) settle(sum *digest, limit int, of func(K) (digest, bool)) {
	for key := range p.dirty {
		if limit--; limit < 0 {
			return
		}
		delete(p.dirty, key)
		sum.sub(p.have[key])
		d, ok := of(key)
		if !ok {
			delete(p.have, key)
			continue
		}
		p.have[key] = d
		sum.add(d)
	}
}

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

// hashNow returns the canonical hash of the state. Equal states have equal
// hashes, however they came about.
func (s *State) hashNow() []byte {
	h := &s.hash
	h.requests.settle(&h.sum, len(h.requests.dirty), s.requestDigest)
	h.samples.settle(&h.sum, len(h.samples.dirty), s.sampleDigest)
	h.notices.settle(&h.sum, len(h.notices.dirty), s.noticeDigest)
	h.dead.settle(&h.sum, len(h.dead.dirty), s.deadDigest)
	h.rest.settle(&h.sum, len(h.rest.dirty), s.entityDigest)
	h.arrays.settle(&h.sum, len(h.arrays.dirty), s.arrayDigest)
	h.jobs.settle(&h.sum, len(h.jobs.dirty), s.jobDigest)
	sum := h.sum
	sum.add(h.digest(kindMeta, nil, s.metaRecord()))
	out := make([]byte, 0, sha256.Size)
	for _, v := range sum {
		out = binary.BigEndian.AppendUint64(out, v)
	}
	return out
}

// hashSome spreads the cost of a coming hash over the entries before it.
func (s *State) hashSome() {
	h := &s.hash
	if len(h.jobs.dirty) > maxDirty {
		h.jobs.settle(&h.sum, someDirty, s.jobDigest)
	}
	if len(h.requests.dirty) > maxDirty {
		h.requests.settle(&h.sum, someDirty, s.requestDigest)
	}
	if len(h.notices.dirty) > maxDirty {
		h.notices.settle(&h.sum, someDirty, s.noticeDigest)
	}
}

func (s *State) jobDigest(id cluster.JobID) (digest, bool) {
	j := s.jobs.get(id)
	if j == nil {
		return digest{}, false
	}
	return s.hash.digest(kindJob, binary.BigEndian.AppendUint64(nil, uint64(id)), conv.JobToLog(j)), true
}

func (s *State) arrayDigest(id cluster.JobID) (digest, bool) {
	a := s.arrays[id]
	if a == nil {
		return digest{}, false
	}
	return s.hash.digest(kindArray, binary.BigEndian.AppendUint64(nil, uint64(id)), a.record()), true
}

func (s *State) requestDigest(k requestKey) (digest, bool) {
	r, ok := s.requests[k]
	if !ok {
		return digest{}, false
	}
	return s.hash.digest(kindRequest, k[:], r.record()), true
}

func (s *State) sampleDigest(seq uint64) (digest, bool) {
	x := s.sample(seq)
	if x == nil {
		return digest{}, false
	}
	return s.hash.digest(kindSample, binary.BigEndian.AppendUint64(nil, seq), x.record()), true
}

func (s *State) noticeDigest(seq uint64) (digest, bool) {
	n := s.notice(seq)
	if n == nil {
		return digest{}, false
	}
	return s.hash.digest(kindNotice, binary.BigEndian.AppendUint64(nil, seq), n), true
}

func (s *State) deadDigest(seq uint64) (digest, bool) {
	d := s.deadNotice(seq)
	if d == nil {
		return digest{}, false
	}
	return s.hash.digest(kindDead, binary.BigEndian.AppendUint64(nil, seq), d), true
}

func (s *State) entityDigest(e entity) (digest, bool) {
	m := s.record(e)
	if m == nil {
		return digest{}, false
	}
	return s.hash.digest(e.kind, []byte(e.key), m), true
}

// digest hashes kind, key and record. Records have no maps and no unknown
// fields, so the deterministic encoding is canonical.
func (h *hasher) digest(k kind, key []byte, rec proto.Message) (d digest) {
	buf := append(h.buf[:0], byte(k))
	buf = binary.AppendUvarint(buf, uint64(len(key)))
	buf = append(buf, key...)
	buf, err := proto.MarshalOptions{Deterministic: true}.MarshalAppend(buf, rec)
	if err != nil {
		panic("fsm: encode record: " + err.Error()) // text that is not UTF-8 never gets in
	}
	h.buf = buf
	sum := sha256.Sum256(buf)
	for i := range d {
		d[i] = binary.BigEndian.Uint64(sum[8*i:])
	}
	return d
}

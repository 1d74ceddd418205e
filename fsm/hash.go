package fsm

import (
	"crypto/sha256"
	"encoding/binary"
	"strconv"

	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/cluster"
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
)

type entity struct {
	kind kind
	key  string
}

// digest is a SHA-256 as four numbers, so that digests add up.
type digest [4]uint64

// hasher keeps the sum of the digests of all entities. Sums do not depend on
// order, so a change costs the digest of what changed, and only when the hash
// is asked for: until then touched entities gather. It guards against faults,
// not against an adversary, who would have to be the leader.
type hasher struct {
	sum   digest
	have  map[entity]digest
	dirty map[entity]struct{}
}

func newHasher() hasher {
	return hasher{have: map[entity]digest{}, dirty: map[entity]struct{}{}}
}

func (h *hasher) touch(k kind, key string) { h.dirty[entity{k, key}] = struct{}{} }

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
	for e := range s.hash.dirty { // the sum does not depend on the order
		s.hash.sum.sub(s.hash.have[e])
		rec := s.record(e)
		if rec == nil {
			delete(s.hash.have, e)
			continue
		}
		d := digestOf(e, rec)
		s.hash.have[e] = d
		s.hash.sum.add(d)
	}
	clear(s.hash.dirty)
	sum := s.hash.sum
	meta := entity{kind: kindMeta}
	sum.add(digestOf(meta, s.record(meta)))
	out := make([]byte, 0, sha256.Size)
	for _, v := range sum {
		out = binary.BigEndian.AppendUint64(out, v)
	}
	return out
}

func digestOf(e entity, rec proto.Message) (d digest) {
	// Records have no maps, so the deterministic encoding is canonical.
	buf := append([]byte{byte(e.kind)}, e.key...)
	buf = append(buf, 0)
	buf, err := proto.MarshalOptions{Deterministic: true}.MarshalAppend(buf, rec)
	if err != nil {
		panic("fsm: encode record: " + err.Error()) // strings that are not UTF-8 never get in
	}
	h := sha256.Sum256(buf)
	for i := range d {
		d[i] = binary.BigEndian.Uint64(h[8*i:])
	}
	return d
}

func jobKey(id cluster.JobID) string { return strconv.FormatUint(uint64(id), 10) }

func sampleKey(seq uint64) string { return strconv.FormatUint(seq, 10) }

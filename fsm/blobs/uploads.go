package blobs

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/command"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// PartBytes is how many bytes of an environment and script one entry carries; the
// last one carries the rest.
const PartBytes = 64 << 10

// maxBulk exceeds what cluster.Spec.Check allows, encoded.
const maxBulk = 2 << 20

// Life is how long content waits for a job that names it, from its first part on.
const Life = time.Minute

// upload is an environment and script, complete or partial, that no job names yet.
// Values are immutable.
type upload struct {
	sum   Sum
	uid   cluster.UID
	size  int
	at    cluster.Time // of its first part
	parts [][]byte     // by number, nil where missing; empty once complete
	bulk  cluster.Bulk // set once complete
}

// uploads are the present uploads.
type uploads struct {
	bySum map[Sum]*upload
	order []uploadAge // oldest first; some may be gone
	bytes map[cluster.UID]int64
	total int64
}

type uploadAge struct {
	sum Sum
	at  cluster.Time
}

// put adds an upload, or replaces its earlier version.
func (u *uploads) put(x *upload) {
	if u.bySum[x.sum] == nil {
		u.order = append(u.order, uploadAge{x.sum, x.at})
		u.bytes[x.uid] += int64(x.size)
		u.total += int64(x.size)
	}
	u.bySum[x.sum] = x
}

func (u *uploads) drop(x *upload) {
	delete(u.bySum, x.sum)
	u.total -= int64(x.size)
	if u.bytes[x.uid] -= int64(x.size); u.bytes[x.uid] == 0 {
		delete(u.bytes, x.uid)
	}
}

// settle sorts the uploads of a snapshot.
func (u *uploads) settle() {
	slices.SortFunc(u.order, func(a, b uploadAge) int { return cmp.Compare(a.at, b.at) })
}

func (u *upload) record() *logv1.Upload {
	return &logv1.Upload{Sum: u.sum[:], Uid: uint32(u.uid), Size: uint32(u.size), AtUs: int64(u.at), Parts: u.parts}
}

// uploadOf returns an upload that has not expired, nil if there is none.
func (b *Store) uploadOf(now cluster.Time, sum Sum) *upload {
	if u := b.uploads.bySum[sum]; u != nil && now.Sub(u.at) <= Life {
		return u
	}
	return nil
}

// Put stores a part of an environment and script. A repeated part gets the same
// answer as a new one.
func (b *Store) Put(at command.Entry, c *logv1.PutBulk) command.Result {
	size, from := int64(c.Size), int64(c.Part)*PartBytes
	if len(c.Sum) != sha256.Size || size < cluster.BulkFrom || size > maxBulk || from >= size || int64(len(c.Data)) != min(PartBytes, size-from) {
		return command.Refuse(cluster.CodeInvalid, "part %d of %d bytes of an environment and script of %d, with a hash of %d", c.Part, len(c.Data), size, len(c.Sum))
	}
	sum := Sum(c.Sum)
	if b.Of(at.Now, sum) != nil {
		return command.Result{Existing: true}
	}
	next := &upload{sum: sum, uid: cluster.UID(c.Uid), size: int(size), at: at.Now, parts: make([][]byte, (size+PartBytes-1)/PartBytes)}
	if old := b.uploadOf(at.Now, sum); old != nil {
		if old.size != next.size {
			return command.Refuse(cluster.CodeConflict, "an environment and script of %d bytes has the hash of one of %d", size, old.size)
		}
		if old.parts[c.Part] != nil {
			return command.Result{Existing: true}
		}
		next.uid, next.at = old.uid, old.at
		copy(next.parts, old.parts)
	}
	next.parts[c.Part] = c.Data
	if !slices.ContainsFunc(next.parts, func(p []byte) bool { return p == nil }) {
		if next.bulk = b.whole(at.Now, bytes.Join(next.parts, nil), sum); next.bulk == nil {
			return command.Refuse(cluster.CodeInvalid, "the parts of an environment and script are not what their hash says")
		}
		next.parts = nil
	}
	b.expire(at.Now)
	b.uploads.put(next)
	b.digests.Touch(sum)
	return command.Result{}
}

// expire drops uploads that no job has claimed.
func (b *Store) expire(now cluster.Time) {
	u := &b.uploads
	for len(u.order) > 0 && now.Sub(u.order[0].at) > Life {
		if x := u.bySum[u.order[0].sum]; x != nil && x.at == u.order[0].at {
			b.drop(x)
		}
		u.order = u.order[1:]
	}
}

func (b *Store) drop(x *upload) {
	b.uploads.drop(x)
	b.digests.Touch(x.sum)
}

// Take removes uploads that jobs now have.
func (b *Store) Take(now cluster.Time, jobs []*cluster.Job) {
	if len(b.uploads.bySum) == 0 {
		return
	}
	b.expire(now)
	for _, j := range jobs {
		if j.Spec.Bulk == nil {
			continue
		}
		if x := b.uploads.bySum[j.Spec.Bulk.Sum()]; x != nil {
			b.drop(x)
		}
	}
}

func (b *Store) loadUpload(m *logv1.Upload) error {
	if len(m.GetSum()) != sha256.Size || m.GetSize() < cluster.BulkFrom || m.GetSize() > maxBulk {
		return errors.New("upload is malformed")
	}
	x := &upload{sum: Sum(m.Sum), uid: cluster.UID(m.Uid), size: int(m.Size), at: cluster.Time(m.AtUs)}
	if b.uploads.bySum[x.sum] != nil {
		return errors.New("upload appears twice")
	}
	if len(m.Parts) == 0 {
		x.bulk = b.given[x.sum]
	} else if x.parts = partsOf(m); x.parts == nil {
		return errors.New("upload has parts that it cannot have")
	}
	if x.bulk == nil && x.parts == nil {
		return errors.New("upload is whole and what it brought is not there")
	}
	b.uploads.put(x)
	b.digests.Touch(x.sum)
	return nil
}

// partsOf returns the parts of an incomplete upload; nil for anything else.
func partsOf(m *logv1.Upload) [][]byte {
	size, lacks := int(m.Size), false
	parts := make([][]byte, (size+PartBytes-1)/PartBytes)
	if len(m.Parts) != len(parts) {
		return nil
	}
	for i, p := range m.Parts {
		switch len(p) {
		case 0:
			lacks = true
		case min(PartBytes, size-i*PartBytes):
			parts[i] = p
		default:
			return nil
		}
	}
	if !lacks {
		return nil
	}
	return parts
}

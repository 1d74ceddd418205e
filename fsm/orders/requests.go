package orders

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/table"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

const (
	// RequestLife is how long the answer to a request is kept.
	RequestLife = 10 * time.Minute
	// MaxRequests is how many answers are kept.
	MaxRequests = 1_000_000
)

// Key is the key of a request of a user.
type Key [16]byte

// Request is the answer to a client's request id. Values are immutable.
type Request struct {
	Key      Key
	BodyHash [16]byte
	First    cluster.JobID
	Count    int
	At       cluster.Time
	// ids is set if some of the jobs are arrays, whose ids are further apart.
	ids []cluster.JobID
}

// Jobs returns the ids of the jobs.
func (r *Request) Jobs() []cluster.JobID {
	if r.ids != nil {
		return slices.Clone(r.ids)
	}
	ids := make([]cluster.JobID, r.Count)
	for i := range ids {
		ids[i] = r.First + cluster.JobID(i)
	}
	return ids
}

func (r *Request) record() *logv1.Request {
	m := &logv1.Request{Key: r.Key[:], BodyHash: r.BodyHash[:], AtUs: int64(r.At)}
	for _, id := range r.Jobs() {
		m.Jobs = append(m.Jobs, uint64(id))
	}
	return m
}

// KeyOf returns a key that keeps users' request ids apart, whatever they contain.
func KeyOf(uid cluster.UID, id string) Key {
	buf := strconv.AppendUint(nil, uint64(uid), 10)
	sum := sha256.Sum256(append(append(buf, 0), id...))
	return Key(sum[:16])
}

// ListIDs records the ids of the jobs of a request if they are not consecutive: an
// array's id is that of its first task.
func (r *Request) ListIDs(jobs []*cluster.Job) {
	if len(jobs) < 2 || jobs[len(jobs)-1].ID == jobs[0].ID+cluster.JobID(len(jobs)-1) {
		return
	}
	for _, j := range jobs {
		r.ids = append(r.ids, j.ID)
	}
}

// Requests holds the answers to requests.
type Requests struct {
	byKey *table.Table[Key, *Request]
	order []*Request // oldest first
}

// NewRequests returns an empty Requests.
func NewRequests(h *table.Hash) Requests {
	return Requests{byKey: table.New(h, table.Of[Key, *Request]{
		Kind: table.Request, Key: func(k Key) []byte { return k[:] },
		Compare: func(a, b Key) int { return bytes.Compare(a[:], b[:]) },
		Record:  func(_ Key, r *Request) proto.Message { return r.record() },
	})}
}

// Get returns the request with a key, nil if there is none.
func (q *Requests) Get(k Key) *Request { return q.byKey.Get(k) }

// Has reports whether there is a request with a key.
func (q *Requests) Has(k Key) bool { return q.byKey.Has(k) }

// Order returns all requests, oldest first. The caller must not modify them.
func (q *Requests) Order() []*Request { return q.order }

// Len returns the number of requests.
func (q *Requests) Len() int { return q.byKey.Len() }

// Add stores an answer.
func (q *Requests) Add(r *Request) {
	q.byKey.Put(r.Key, r)
	q.order = append(q.order, r)
}

// Expire drops the answers that are too old, and the oldest if there is no room for
// one more.
func (q *Requests) Expire(now cluster.Time) {
	n := 0
	for n < len(q.order) && (now.Sub(q.order[n].At) > RequestLife || len(q.order)-n >= MaxRequests) {
		q.byKey.Drop(q.order[n].Key)
		q.order[n] = nil
		n++
	}
	q.order = q.order[n:]
}

// View returns a copy for writing a snapshot; it does not change.
func (q *Requests) View() Requests { return Requests{order: slices.Clone(q.order)} }

// Each sends all records.
func (q *Requests) Each(w *table.Writer) {
	for _, r := range q.order {
		w.Send(&logv1.Record{Kind: &logv1.Record_Request{Request: r.record()}})
	}
}

// Load restores a record that Each sent.
func (q *Requests) Load(m *logv1.Request) error {
	r := &Request{Count: len(m.Jobs), At: cluster.Time(m.AtUs)}
	if len(m.Key) != len(r.Key) || len(m.BodyHash) != len(r.BodyHash) || len(m.Jobs) == 0 {
		return errors.New("request is malformed")
	}
	copy(r.Key[:], m.Key)
	copy(r.BodyHash[:], m.BodyHash)
	r.First = cluster.JobID(m.Jobs[0])
	if m.Jobs[len(m.Jobs)-1]-m.Jobs[0] != uint64(len(m.Jobs)-1) {
		for _, id := range m.Jobs {
			r.ids = append(r.ids, cluster.JobID(id))
		}
	}
	if q.Has(r.Key) {
		return errors.New("request appears twice")
	}
	q.Add(r)
	return nil
}

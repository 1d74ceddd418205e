package journal

import (
	"bytes"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

const (
	// maxRequests bounds the requests kept for one attempt.
	maxRequests = 1024
	// requestLife is how long a request is certainly kept: longer than any client keeps
	// retrying, and than what was sent may be in transit.
	requestLife = 2 * time.Minute
)

// Ask records that the agent is about to execute r for an attempt: then it is on disk and known
// is nil. If a request with that id was recorded before, known is that request, and nothing may
// be executed: its state has the outcome. An id used by another user, or for another request,
// is an error, as is an attempt that is not here, and one with too many requests. Ask sets r's
// time and state.
func (j *Journal) Ask(id cluster.AttemptID, r *nodev1.KeptRequest) (known *nodev1.KeptRequest, err error) {
	now := time.Now()
	r.At, r.State = timestamppb.New(now), nodev1.RequestState_REQUEST_STATE_INTENDED
	err = j.putIf(recToken, requestRecord(id, r), func() (bool, error) {
		if known, err = j.asked(id, r); known != nil || err != nil {
			return false, err
		}
		rec := j.live[id]
		if rec == nil || rec.End != nil {
			return false, cluster.Errorf(cluster.CodeConflict, "job %s has ended here", id.Job)
		}
		return true, rec.makeRoom(now)
	}, func() { j.ask(id, r) })
	return known, err
}

// Asked returns the request recorded under r's id, or nil; it fails as Ask does if that was a
// different request.
func (j *Journal) Asked(id cluster.AttemptID, r *nodev1.KeptRequest) (known *nodev1.KeptRequest, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.asked(id, r)
}

// asked is Asked; the caller holds j.mu.
func (j *Journal) asked(id cluster.AttemptID, r *nodev1.KeptRequest) (*nodev1.KeptRequest, error) {
	rec := j.live[id]
	if rec == nil || rec.requests[r.Id] == nil {
		return nil, nil
	}
	k := rec.requests[r.Id]
	if k.Uid != r.Uid || !bytes.Equal(k.Hash, r.Hash) {
		return nil, cluster.Errorf(cluster.CodeAlreadyExists, "request id %q was used for another request; make a new one", r.Id)
	}
	return k, nil
}

// Became records the outcome of a request, for those that repeat it. The record need not reach
// the disk, since what it is about does not survive a power failure either.
func (j *Journal) Became(id cluster.AttemptID, r *nodev1.KeptRequest) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if rec := j.live[id]; rec == nil || rec.requests[r.Id] == nil {
		return nil // the attempt is forgotten, and its requests with it
	}
	j.step("before journal request")
	defer j.step("after journal request")
	j.ask(id, r)
	if err := j.write(recToken, requestRecord(id, r)); err != nil {
		return err
	}
	if j.size > max(rewriteAbove, 2*j.base) {
		return j.rewrite()
	}
	return nil
}

// requestRecord returns a record of a kind that older agents ignore.
func requestRecord(id cluster.AttemptID, r *nodev1.KeptRequest) *nodev1.Assignment {
	return &nodev1.Assignment{Job: uint64(id.Job), Attempt: id.No, Request: r}
}

// ask takes over a known request. The caller holds j.mu, or exclusive access.
func (j *Journal) ask(id cluster.AttemptID, r *nodev1.KeptRequest) {
	rec := j.live[id]
	switch {
	case rec == nil:
	case r.State == nodev1.RequestState_REQUEST_STATE_VOID:
		delete(rec.requests, r.Id)
	default:
		if rec.requests == nil {
			rec.requests = map[string]*nodev1.KeptRequest{}
		}
		rec.requests[r.Id] = r
	}
}

// makeRoom drops the older half of an attempt's requests when there are too many, among those
// that can no longer be repeated.
func (rec *Record) makeRoom(now time.Time) error {
	if len(rec.requests) < maxRequests {
		return nil
	}
	var old []*nodev1.KeptRequest
	for _, r := range rec.requests {
		// A clock that was set back makes a request look young, which is safe.
		if now.Sub(r.At.AsTime()) > requestLife {
			old = append(old, r)
		}
	}
	if len(old) == 0 {
		return cluster.Errorf(cluster.CodeExhausted, "the node was asked for %d commands and signals of job %d within %s, which is all that it remembers; try again in a minute",
			maxRequests, rec.Assignment.Job, requestLife)
	}
	slices.SortFunc(old, func(a, b *nodev1.KeptRequest) int { return a.At.AsTime().Compare(b.At.AsTime()) })
	for _, r := range old[:(len(old)+1)/2] {
		delete(rec.requests, r.Id)
	}
	return nil
}

// replayRequest takes over a record of a request; false if a is not one.
func (j *Journal) replayRequest(a *nodev1.Assignment) bool {
	if a.Request == nil {
		return false
	}
	j.ask(conv.AttemptOf(a), a.Request)
	return true
}

// Requests returns the remembered requests of an attempt, in no particular order.
func (j *Journal) Requests(id cluster.AttemptID) (out []*nodev1.KeptRequest) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if rec := j.live[id]; rec != nil {
		out = slices.AppendSeq(out, maps.Values(rec.requests))
	}
	return out
}

package archive

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/history"
	"github.com/berth-scheduler/berth/coordinator/raftnode"
	peerv1 "github.com/berth-scheduler/berth/proto/berth/peer/v1"
)

const (
	fetchChunk   = 4 << 20 // about as much in one message
	fetchMessage = 16 << 20
	fetchLimit   = 10 * time.Minute
)

// fillHoles gets what is missing: from the state, if it is still there, otherwise
// from the other coordinators. What none of them has is given up if it is the
// oldest part; otherwise it stays a hole and is requested again.
func (a *Archive) fillHoles(ctx context.Context, s *history.Store) {
	for _, h := range s.Holes() {
		if err := a.fillFromState(s, h); err != nil {
			a.note(err)
			return
		}
	}
	for _, h := range s.Holes() {
		if a.fillFromPeers(ctx, s, h) {
			a.giveUp(s)
		}
	}
}

// fillFromState takes what the state machine has of a hole.
func (a *Archive) fillFromState(s *history.Store, h history.Span) error {
	for at := h.From; at < h.To; {
		e := a.fsm.Ended(at, historyBatch)
		part := history.Span{From: at, To: min(h.To, e.UpTo)}
		if part.From >= part.To {
			return nil
		}
		if !e.Missed {
			records, err := recordsOf(e.Jobs, part.To)
			if err != nil {
				return err
			}
			if err := s.Fill(part, records); err != nil {
				return err
			}
		}
		at = part.To
	}
	return nil
}

func recordsOf(jobs []*cluster.Job, upTo uint64) ([][]byte, error) {
	var out [][]byte
	for _, j := range jobs {
		if j.Revision > upTo {
			break
		}
		r, err := history.Record(j)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

// fillFromPeers asks one coordinator after the other. It reports whether all of
// them answered and had reached the hole: then none has what is left.
func (a *Archive) fillFromPeers(ctx context.Context, s *history.Store, h history.Span) (all bool) {
	all = true
	for _, m := range a.members() {
		if m.ID == a.cfg.ID {
			continue
		}
		upTo, jobs, err := a.fetch(ctx, s, m, h)
		if jobs > 0 {
			a.log.Info("history: fetched finished jobs", "from", m.ID, "after", h.From, "until", h.To, "jobs", jobs)
		}
		if err != nil || upTo < h.To {
			all = false
			a.log.Debug("history: a coordinator did not have all that was asked for", "from", m.ID, "index", upTo, "err", err)
		}
		if !missing(s, h) {
			return false
		}
	}
	return all && len(a.members()) > 0
}

func missing(s *history.Store, h history.Span) bool {
	return slices.ContainsFunc(s.Holes(), func(x history.Span) bool { return x.From < h.To && h.From < x.To })
}

// giveUp drops the oldest hole if it is at the beginning of what is kept: it is
// older than what any coordinator keeps.
func (a *Archive) giveUp(s *history.Store) {
	holes, st := s.Holes(), s.Stats()
	if len(holes) == 0 {
		return
	}
	if h := holes[0]; h.From == st.Floor {
		if err := s.Raise(h.To); err != nil {
			a.note(err)
			return
		}
		a.log.Warn("history: no coordinator has the jobs that ended in the oldest part of the log; history begins after it", "until", h.To)
		return
	}
	if h := holes[len(holes)-1]; a.given.Swap(h.To) != h.To {
		a.log.Error("history: no coordinator has the jobs that ended in a part of the log", "after", h.From, "until", h.To)
	}
}

// fetch fills a hole, or parts of it, from one coordinator.
func (a *Archive) fetch(ctx context.Context, s *history.Store, m raftnode.Member, h history.Span) (upTo uint64, jobs int, err error) {
	ctx, cancel := context.WithTimeout(ctx, fetchLimit)
	defer cancel()
	conn, err := a.peers.Get(m.Addr)
	if err != nil {
		return 0, 0, err
	}
	stream, err := peerv1.NewPeerServiceClient(conn).FetchHistory(ctx, &peerv1.FetchHistoryRequest{After: h.From, Until: h.To}, grpc.MaxCallRecvMsgSize(fetchMessage))
	if err != nil {
		return 0, 0, err
	}
	for {
		r, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return 0, jobs, errors.New("the stream ended early")
		case err != nil:
			return 0, jobs, err
		case r.Last:
			return r.UpTo, jobs, nil
		}
		span := history.Span{From: r.After, To: r.Until}
		if !inHole(s.Holes(), span) {
			continue // it arrived from elsewhere meanwhile
		}
		if err := s.Fill(span, r.Records); err != nil {
			return 0, jobs, err
		}
		jobs += len(r.Records)
	}
}

func inHole(holes []history.Span, x history.Span) bool {
	return slices.ContainsFunc(holes, func(h history.Span) bool { return h.From <= x.From && x.To <= h.To })
}

// Send sends the finished jobs of a part of the log that are in the store, and how
// far that is.
func (a *Archive) Send(req *peerv1.FetchHistoryRequest, stream grpc.ServerStreamingServer[peerv1.FetchHistoryResponse]) error {
	st := a.store.Load()
	if st == nil {
		return status.Error(codes.Unavailable, "the store of finished jobs is not open")
	}
	for at := req.After; at < req.Until; {
		p, ok, err := st.Read(at, req.Until, fetchChunk)
		if err != nil {
			return status.Error(codes.DataLoss, err.Error())
		}
		if !ok {
			break
		}
		if err := stream.Send(&peerv1.FetchHistoryResponse{After: p.From, Until: p.To, Records: p.Records}); err != nil {
			return err
		}
		at = p.To
	}
	return stream.Send(&peerv1.FetchHistoryResponse{Last: true, UpTo: st.UpTo()})
}

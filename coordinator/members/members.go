// Package members is what coordinators tell each other: their status, how far the
// leader is, and which finished jobs they have.
package members

import (
	"context"
	"os"
	"time"

	"google.golang.org/grpc"

	"github.com/berth-scheduler/berth/coordinator/archive"
	"github.com/berth-scheduler/berth/coordinator/learner"
	"github.com/berth-scheduler/berth/coordinator/office"
	"github.com/berth-scheduler/berth/coordinator/peers"
	"github.com/berth-scheduler/berth/coordinator/raftnode"
	"github.com/berth-scheduler/berth/coordinator/space"
	"github.com/berth-scheduler/berth/fsm"
	peerv1 "github.com/berth-scheduler/berth/proto/berth/peer/v1"
)

// memberTimeout bounds the query to each coordinator: a status must come soon even
// if one of them is gone.
const memberTimeout = time.Second

// Config identifies this coordinator.
type Config struct{ ID, Dir, Version string }

// Needs is what the package depends on. All fields are required.
type Needs struct {
	FSM     *fsm.FSM
	Raft    *raftnode.Node
	Office  *office.Office
	Peers   *peers.Conns
	Archive *archive.Archive
	Space   *space.Watch
	// Peer returns the caller over mutual TLS: a role and an id.
	Peer func(ctx context.Context) (role, id string, err error)
}

// Members asks coordinators, and answers for this one.
type Members struct {
	cfg     Config
	fsm     *fsm.FSM
	raft    *raftnode.Node
	office  *office.Office
	peers   *peers.Conns
	archive *archive.Archive
	space   *space.Watch
	peer    func(ctx context.Context) (role, id string, err error)
	builtIn fsm.WeightsVersion
}

// New returns a Members.
func New(cfg Config, d Needs) *Members {
	return &Members{
		cfg: cfg, fsm: d.FSM, raft: d.Raft, office: d.Office, peers: d.Peers, archive: d.Archive, space: d.Space, peer: d.Peer, builtIn: learner.BuiltIn(),
	}
}

// Register registers the service for other coordinators with s.
func (m *Members) Register(s *grpc.Server) { peerv1.RegisterPeerServiceServer(s, &service{m: m}) }

// Ask returns how a coordinator describes itself.
func (m *Members) Ask(ctx context.Context, who raftnode.Member) (*peerv1.GetMemberResponse, error) {
	if who.ID == m.cfg.ID {
		return m.self(), nil
	}
	ctx, cancel := context.WithTimeout(ctx, memberTimeout)
	defer cancel()
	conn, err := m.peers.Get(who.Addr)
	if err != nil {
		return nil, err
	}
	return peerv1.NewPeerServiceClient(conn).GetMember(ctx, &peerv1.GetMemberRequest{})
}

func (m *Members) self() *peerv1.GetMemberResponse {
	index, hash := m.fsm.LastCheckpoint()
	weights := m.builtIn
	if ws := m.fsm.WeightsState(); len(ws.Versions) > 0 {
		weights = ws.Versions[0]
	}
	past, disk := m.archive.Stats(), m.space.State()
	return &peerv1.GetMemberResponse{
		DiskFree: disk.Free.Bytes, DiskSize: disk.Free.Size, DiskFull: disk.Level == space.Full, DiskProblem: disk.Problem(m.cfg.Dir),
		HistoryJobs: uint64(past.Jobs), HistoryBytes: uint64(past.Bytes), HistoryHoles: uint32(len(past.Holes)), HistoryProblem: m.archive.Problem(),
		Id: m.cfg.ID, Term: m.raft.Term(), LastIndex: m.raft.LastIndex(), AppliedIndex: m.raft.AppliedIndex(),
		StateHash: hash, StateHashIndex: index, Pid: uint32(os.Getpid()), Version: m.cfg.Version,
		EntryVersion: fsm.EntryVersion, WeightsVersion: weights.Version, WeightsSha256: weights.SHA256,
	}
}

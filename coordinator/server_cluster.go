package coordinator

import (
	"context"
	"encoding/hex"
	"os"
	"sort"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/raftnode"
	"github.com/berth-scheduler/berth/coordinator/space"
	"github.com/berth-scheduler/berth/fsm"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	peerv1 "github.com/berth-scheduler/berth/proto/berth/peer/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// clusterServer answers administrators, and users who look around.
type clusterServer struct {
	apiv1.UnimplementedClusterServiceServer
	c *Coordinator
}

// memberTimeout bounds the question to each coordinator: a status must come
// soon even when one of them is gone.
const memberTimeout = time.Second

// GetStatus lists the coordinators and counts the jobs.
func (s *clusterServer) GetStatus(ctx context.Context, _ *apiv1.GetStatusRequest) (*apiv1.GetStatusResponse, error) {
	id, name, _, _ := s.c.fsm.Config()
	resp := &apiv1.GetStatusResponse{
		ClusterId: id, Name: name, Index: s.c.fsm.Index(), AnsweredBy: s.c.cfg.ID, Policy: string(s.c.cfg.Policy.Mode), MaxShares: uint32(max(0, s.c.cfg.Policy.MaxShares)),
	}
	if s.c.cfg.Planner != nil {
		resp.Policy = s.c.cfg.Planner.Name()
	}
	leader, _ := s.c.raft.Leader()
	members := s.c.raft.Members()
	resp.Members = make([]*apiv1.Member, len(members))
	var wg sync.WaitGroup
	for i, m := range members {
		wg.Go(func() { resp.Members[i] = s.c.member(ctx, m, m.ID == leader) })
	}
	wg.Wait()
	for st, n := range s.c.fsm.Counts() {
		if n > 0 {
			resp.Jobs = append(resp.Jobs, &apiv1.JobCount{State: st.String(), Count: uint32(n)})
		}
	}
	sort.Slice(resp.Jobs, func(i, k int) bool { return resp.Jobs[i].State < resp.Jobs[k].State })
	resp.Now = timestamppb.New(s.c.cfg.Clock()) // last: the members were asked meanwhile
	return resp, nil
}

// member asks one coordinator how it stands.
func (c *Coordinator) member(ctx context.Context, m raftnode.Member, leader bool) *apiv1.Member {
	out := &apiv1.Member{Id: m.ID, Address: m.Addr, Voter: m.Voter, Leader: leader}
	r, err := c.ask(ctx, m)
	if err != nil {
		return out
	}
	out.Reachable = true
	out.Term, out.LastIndex, out.AppliedIndex = r.Term, r.LastIndex, r.AppliedIndex
	out.StateHash, out.StateHashIndex = hex.EncodeToString(r.StateHash), r.StateHashIndex
	out.Pid, out.Version = r.Pid, r.Version
	out.ModelVersion, out.ModelSha256 = r.WeightsVersion, hex.EncodeToString(r.WeightsSha256)
	out.DiskFree, out.DiskSize, out.DiskProblem = r.DiskFree, r.DiskSize, r.DiskProblem
	out.HistoryJobs, out.HistoryBytes, out.HistoryHoles, out.HistoryProblem = r.HistoryJobs, r.HistoryBytes, r.HistoryHoles, r.HistoryProblem
	return out
}

// ask returns how a coordinator describes itself.
func (c *Coordinator) ask(ctx context.Context, m raftnode.Member) (*peerv1.GetMemberResponse, error) {
	if m.ID == c.cfg.ID {
		return c.self(), nil
	}
	ctx, cancel := context.WithTimeout(ctx, memberTimeout)
	defer cancel()
	conn, err := c.peers.get(m.Addr)
	if err != nil {
		return nil, err
	}
	return peerv1.NewPeerServiceClient(conn).GetMember(ctx, &peerv1.GetMemberRequest{})
}

func (c *Coordinator) self() *peerv1.GetMemberResponse {
	index, hash := c.fsm.LastCheckpoint()
	weights := c.builtIn
	if ws := c.fsm.WeightsState(); len(ws.Versions) > 0 {
		weights = ws.Versions[0]
	}
	past, disk := c.archive.stats(), c.space.State()
	return &peerv1.GetMemberResponse{
		DiskFree: disk.Free.Bytes, DiskSize: disk.Free.Size, DiskFull: disk.Level == space.Full, DiskProblem: disk.Problem(c.cfg.Dir),
		HistoryJobs: uint64(past.Jobs), HistoryBytes: uint64(past.Bytes), HistoryHoles: uint32(len(past.Holes)), HistoryProblem: c.archive.problem(),
		Id: c.cfg.ID, Term: c.raft.Term(), LastIndex: c.raft.LastIndex(), AppliedIndex: c.raft.AppliedIndex(),
		StateHash: hash, StateHashIndex: index, Pid: uint32(os.Getpid()), Version: c.cfg.Version,
		EntryVersion: fsm.EntryVersion, WeightsVersion: weights.Version, WeightsSha256: weights.SHA256,
	}
}

// peerServer answers other coordinators.
type peerServer struct {
	peerv1.UnimplementedPeerServiceServer
	c *Coordinator
}

// GetMember describes this coordinator.
func (s *peerServer) GetMember(ctx context.Context, _ *peerv1.GetMemberRequest) (*peerv1.GetMemberResponse, error) {
	if role, _, err := s.c.cfg.Peer(ctx); err != nil || role != roleCoordinator {
		return nil, status.Error(codes.PermissionDenied, "this is for coordinators")
	}
	return s.c.self(), nil
}

// ListNodes describes nodes: what the ledger says, what was measured last, and
// what gossip says, side by side.
func (s *clusterServer) ListNodes(ctx context.Context, req *apiv1.ListNodesRequest) (*apiv1.ListNodesResponse, error) {
	resp := &apiv1.ListNodesResponse{Index: s.c.fsm.Index()}
	if len(req.Ids) == 0 {
		for _, n := range s.c.fsm.Nodes() {
			resp.Nodes = append(resp.Nodes, s.c.nodeView(n))
		}
		return resp, nil
	}
	for _, id := range req.Ids {
		n, ok := s.c.fsm.Node(cluster.NodeID(id))
		if !ok {
			return nil, toStatus(ctx, s.c.log, noNode(id))
		}
		resp.Nodes = append(resp.Nodes, s.c.nodeView(n))
	}
	return resp, nil
}

func noNode(id string) error {
	return cluster.Errorf(cluster.CodeNotFound, "node %q is not known; see: berth node list", id)
}

func (c *Coordinator) nodeView(n *cluster.Node) *apiv1.Node {
	var v *apiv1.Node
	c.fsm.Read(func(st *fsm.State) {
		v = conv.NodeToAPI(n, st.Ledger())
		tellReserved(v, st, c.nowTime())
		tellDrainLater(v, st.Reservations(), c.nowTime())
		for _, g := range v.Gpus {
			g.Queued = uint32(len(st.Queue(cluster.GPUID(g.Uuid))))
		}
	})
	last, shown := c.live.last(n.ID)
	detail := c.live.details(n.ID)
	if !last.IsZero() {
		v.LastContact = timestamppb.New(last)
	}
	for _, j := range c.fsm.NodeJobs(n.ID) {
		v.Jobs = append(v.Jobs, uint64(j.ID))
	}
	v.Gossip = c.members.view(string(n.ID))
	for _, p := range c.fsm.Partitions() {
		if p.Nodes.Holds(n.ID) {
			v.Partitions = append(v.Partitions, p.Name)
		}
	}
	for _, g := range v.Gpus {
		for _, id := range c.fsm.GPUJobs(cluster.GPUID(g.Uuid)) {
			g.Jobs = append(g.Jobs, uint64(id))
		}
		g.Detail = detail[cluster.GPUID(g.Uuid)]
		if u := shown[cluster.GPUID(g.Uuid)]; u != nil {
			g.MeasuredUsedMib, g.MeasuredUtilMilli = u.UsedMib, u.UtilMilli
			g.BusyMs, g.BusySince = u.BusyMs, u.Since
		}
		if free, ok := c.members.freeMiB(string(n.ID), g.Uuid); ok {
			g.GossipFreeMib = free
		}
	}
	return v
}

// FenceNode gives up a silent node: its jobs end as lost, or wait again when
// they allow it.
func (s *clusterServer) FenceNode(ctx context.Context, req *apiv1.FenceNodeRequest) (*apiv1.FenceNodeResponse, error) {
	who := callerOf(ctx)
	if err := s.c.authorize(who, actAdmin, nil); err != nil {
		return nil, toStatus(ctx, s.c.log, err)
	}
	r, err := s.c.prop.One(ctx, &logv1.Command{Kind: &logv1.Command_FenceNode{FenceNode: &logv1.FenceNode{Node: req.Id, By: uint32(who.uid)}}})
	if err != nil {
		return nil, toStatus(ctx, s.c.log, err)
	}
	s.c.log.InfoContext(ctx, "node fenced", "node", req.Id, "lost", len(r.Lost), "requeued", len(r.Requeued), "uid", who.uid)
	n, ok := s.c.fsm.Node(cluster.NodeID(req.Id))
	if !ok {
		return nil, toStatus(ctx, s.c.log, noNode(req.Id))
	}
	resp := &apiv1.FenceNodeResponse{Node: s.c.nodeView(n)}
	for _, id := range r.Lost {
		resp.Lost = append(resp.Lost, uint64(id))
	}
	for _, id := range r.Requeued {
		resp.Requeued = append(resp.Requeued, uint64(id))
	}
	return resp, nil
}

// RemoveNode forgets a node on which nothing runs, and its certificate is
// good for nothing any more.
func (s *clusterServer) RemoveNode(ctx context.Context, req *apiv1.RemoveNodeRequest) (*apiv1.RemoveNodeResponse, error) {
	who := callerOf(ctx)
	if err := s.c.authorize(who, actAdmin, nil); err != nil {
		return nil, toStatus(ctx, s.c.log, err)
	}
	_, err := s.c.prop.One(ctx, &logv1.Command{Kind: &logv1.Command_RemoveNode{RemoveNode: &logv1.RemoveNode{Node: req.Id}}})
	if err != nil {
		return nil, toStatus(ctx, s.c.log, err)
	}
	s.c.log.InfoContext(ctx, "node removed", "node", req.Id, "uid", who.uid)
	return &apiv1.RemoveNodeResponse{}, nil
}

// CreateToken makes a single-use token with which a node may join.
func (s *clusterServer) CreateToken(ctx context.Context, req *apiv1.CreateTokenRequest) (*apiv1.CreateTokenResponse, error) {
	who := callerOf(ctx)
	if err := s.c.authorize(who, actAdmin, nil); err != nil {
		return nil, toStatus(ctx, s.c.log, err)
	}
	text, expires, err := s.c.createToken(ctx, who.uid, req.Role, req.Id, req.Ttl.AsDuration())
	if err != nil {
		return nil, toStatus(ctx, s.c.log, err)
	}
	return &apiv1.CreateTokenResponse{Token: text, Expires: timestamppb.New(expires)}, nil
}

package admin

import (
	"context"
	"encoding/hex"
	"sort"
	"sync"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/api/authorize"
	"github.com/berth-scheduler/berth/coordinator/lead"
	"github.com/berth-scheduler/berth/coordinator/raftnode"
	"github.com/berth-scheduler/berth/fsm"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

// clusterServer serves administrators, and users who look around.
type clusterServer struct {
	apirpc.UnimplementedClusterServiceServer
	c *Admin
}

// GetStatus lists the coordinators and counts the jobs; in brief it only counts,
// and waits for no other coordinator.
func (s *clusterServer) GetStatus(ctx context.Context, req *apiv1.GetStatusRequest) (*apiv1.GetStatusResponse, error) {
	id, name, _, _ := s.c.fsm.Config()
	resp := &apiv1.GetStatusResponse{
		ClusterId: id, Name: name, Index: s.c.fsm.Index(), AnsweredBy: s.c.cfg.ID, Policy: string(s.c.cfg.Policy.Mode), MaxShares: uint32(max(0, s.c.cfg.Policy.MaxShares)),
	}
	if s.c.cfg.Planner != nil {
		resp.Policy = s.c.cfg.Planner.Name()
	}
	if !req.Brief {
		resp.Members = s.c.askMembers(ctx)
		resp.Figures = s.c.figures.ToAPI()
	}
	for st, n := range s.c.fsm.Counts() {
		if st == cluster.JobPending {
			for _, idle := range s.c.standby() {
				n -= idle // these are not being waited for
			}
		}
		if n > 0 {
			resp.Jobs = append(resp.Jobs, &apiv1.JobCount{State: st.String(), Count: uint32(n)})
		}
	}
	sort.Slice(resp.Jobs, func(i, k int) bool { return resp.Jobs[i].State < resp.Jobs[k].State })
	resp.Warnings, resp.Trades = s.c.lead.Warnings(), lead.TradesOf(s.c.lead)
	resp.Now = timestamppb.New(s.c.clock()) // last: the members were queried meanwhile
	return resp, nil
}

// standby returns how many replicas stand by in each partition, of services that have
// as many as they should.
func (c *Admin) standby() map[string]int {
	out, now := map[string]int{}, cluster.TimeOf(c.clock())
	for _, r := range c.fsm.Services() {
		for _, j := range r.Jobs {
			if j.State == cluster.JobPending && c.fsm.Barred(j, now).Code == cluster.ReasonStandby {
				out[j.Spec.Partition] += j.Count()
			}
		}
	}
	return out
}

// askMembers asks all coordinators at once for their status.
func (c *Admin) askMembers(ctx context.Context) []*apiv1.Member {
	leader, _ := c.office.Leader()
	members := c.raft.Members()
	out := make([]*apiv1.Member, len(members))
	var wg sync.WaitGroup
	for i, m := range members {
		wg.Go(func() { out[i] = c.member(ctx, m, m.ID == leader) })
	}
	wg.Wait()
	return out
}

// member asks one coordinator for its status.
func (c *Admin) member(ctx context.Context, m raftnode.Member, leader bool) *apiv1.Member {
	out := &apiv1.Member{Id: m.ID, Address: m.Addr, Voter: m.Voter, Leader: leader}
	r, err := c.members.Ask(ctx, m)
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

// ListNodes describes nodes: what the ledger says, what was last measured, and what
// gossip says, side by side.
func (s *clusterServer) ListNodes(ctx context.Context, req *apiv1.ListNodesRequest) (*apiv1.ListNodesResponse, error) {
	resp := &apiv1.ListNodesResponse{Index: s.c.fsm.Index()}
	nodes := s.c.fsm.Nodes()
	if len(req.Ids) > 0 {
		nodes = nil
	}
	for _, id := range req.Ids {
		n, ok := s.c.fsm.Node(cluster.NodeID(id))
		if !ok {
			return nil, noNode(id)
		}
		nodes = append(nodes, n)
	}
	for _, n := range nodes {
		v := s.c.nodeView(n)
		if req.Brief {
			shorten(v)
		}
		resp.Nodes = append(resp.Nodes, v)
	}
	return resp, nil
}

// shorten removes from a node what only a view of that node alone shows.
func shorten(v *apiv1.Node) {
	v.History = nil
	for _, g := range v.Gpus {
		g.Detail = nil
	}
}

func noNode(id string) error {
	return cluster.Errorf(cluster.CodeNotFound, "node %q is not known; see: berth node list", id)
}

func (c *Admin) nodeView(n *cluster.Node) *apiv1.Node {
	var v *apiv1.Node
	c.fsm.Read(func(st *fsm.State) {
		v = conv.NodeToAPI(n, st.Ledger())
		tellReserved(v, st, c.nowTime())
		tellDrainLater(v, st.Reservations(), c.nowTime())
		for _, g := range v.Gpus {
			g.Queued = uint32(len(st.Queue(cluster.GPUID(g.Uuid))))
		}
	})
	heard := c.nodes.Contact(n.ID)
	if !heard.At.IsZero() {
		v.LastContact = timestamppb.New(heard.At)
	}
	for _, j := range c.fsm.NodeJobs(n.ID) {
		v.Jobs = append(v.Jobs, uint64(j.ID))
	}
	if v.Gossip = heard.Gossip; !heard.Heard.IsZero() {
		v.GossipHeard = timestamppb.New(heard.Heard)
	}
	v.CutOff, v.Images = c.nodes.CutOff(n.ID), uint32(heard.Images)
	if since, why, idle := c.lead.KeptUp(n.ID); idle && n.Schedulable() && v.PowerReason == "" {
		v.PowerReason, v.PowerSince = why, timestamppb.New(since.Std())
	}
	for _, p := range c.fsm.Partitions() {
		if p.Nodes.Holds(n.ID) {
			v.Partitions = append(v.Partitions, p.Name)
		}
	}
	for _, g := range v.Gpus {
		g.Jobs = apiconv.IDs[uint64](c.fsm.GPUJobs(cluster.GPUID(g.Uuid)))
		g.Detail = heard.Detail[cluster.GPUID(g.Uuid)]
		if u := heard.Usage[cluster.GPUID(g.Uuid)]; u != nil {
			g.MeasuredUsedMib, g.MeasuredUtilMilli = u.UsedMib, u.UtilMilli
			g.BusyMs, g.BusySince = u.BusyMs, u.Since
			g.PowerW, g.TemperatureC = u.PowerW, u.TemperatureC
		}
		if free, ok := c.nodes.FreeMiB(n.ID, cluster.GPUID(g.Uuid)); ok {
			g.GossipFreeMib = free
		}
		g.GossipStrayMib = c.nodes.StrayMiB(n.ID, cluster.GPUID(g.Uuid))
	}
	return v
}

// FenceNode gives up a silent node: its jobs end as lost, or are requeued if they
// allow it.
func (s *clusterServer) FenceNode(ctx context.Context, req *apiv1.FenceNodeRequest) (*apiv1.FenceNodeResponse, error) {
	who, r, err := s.c.order(ctx, &logv1.Command{Kind: &logv1.Command_FenceNode{FenceNode: &logv1.FenceNode{Node: req.Id, By: uint32(authorize.CallerOf(ctx).UID)}}})
	if err != nil {
		return nil, err
	}
	s.c.log.InfoContext(ctx, "node fenced", "node", req.Id, "lost", len(r.Lost), "requeued", len(r.Requeued), "uid", who.UID)
	n, ok := s.c.fsm.Node(cluster.NodeID(req.Id))
	if !ok {
		return nil, noNode(req.Id)
	}
	return &apiv1.FenceNodeResponse{Node: s.c.nodeView(n), Lost: apiconv.IDs[uint64](r.Lost), Requeued: apiconv.IDs[uint64](r.Requeued)}, nil
}

// RemoveNode forgets a node on which nothing runs, and voids its certificate.
func (s *clusterServer) RemoveNode(ctx context.Context, req *apiv1.RemoveNodeRequest) (*apiv1.RemoveNodeResponse, error) {
	who, _, err := s.c.order(ctx, &logv1.Command{Kind: &logv1.Command_RemoveNode{RemoveNode: &logv1.RemoveNode{Node: req.Id}}})
	if err != nil {
		return nil, err
	}
	s.c.log.InfoContext(ctx, "node removed", "node", req.Id, "uid", who.UID)
	return &apiv1.RemoveNodeResponse{}, nil
}

// CreateToken creates a single-use token with which a node may join.
func (s *clusterServer) CreateToken(ctx context.Context, req *apiv1.CreateTokenRequest) (*apiv1.CreateTokenResponse, error) {
	who := authorize.CallerOf(ctx)
	if err := s.c.auth.May(who, authorize.Admin, nil); err != nil {
		return nil, err
	}
	text, expires, err := s.c.nodes.CreateToken(ctx, who.UID, req.Role, req.Id, req.Ttl.AsDuration())
	if err != nil {
		return nil, err
	}
	return &apiv1.CreateTokenResponse{Token: text, Expires: timestamppb.New(expires)}, nil
}

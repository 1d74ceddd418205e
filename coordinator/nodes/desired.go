package nodes

import (
	"context"
	"net"
	"slices"
	"time"

	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// ending is how an attempt should end: at once, after saving its state, or when its
// time limit is up, which may change while it runs. With begin, a multi-node one
// may start.
type ending struct {
	stop, room, begin bool
	cut               int64 // memory that its shares were changed to, 0 if they were not
	limit             time.Duration
	token             cluster.Token // of a node that came back it is a different one
}

// sendDesired sends what should be on the node: all of it if full, otherwise what
// differs from what was last sent.
func (ss *session) sendDesired(full bool) error {
	d := &nodev1.Desired{Term: ss.term, Full: full}
	d.Revision = ss.n.fsm.Index()
	now := map[cluster.AttemptID]ending{}
	for _, j := range ss.n.fsm.NodeJobs(ss.node) {
		a := j.Live()
		if a == nil {
			continue
		}
		rank := a.Rank(ss.node)
		if rank < 0 || !a.PartLive(rank) || j.Spec.Ranked() && !ss.gangs {
			continue
		}
		id, end := cluster.AttemptID{Job: j.ID, No: a.No}, endingOf(j, a, rank)
		now[id] = end
		if was, known := ss.sent[id]; full || !known || was != end {
			as := conv.Assignment(j, a, rank)
			as.Stop = end.stop
			var usual cluster.GPUPower
			if p, ok := ss.n.fsm.Partition(j.Spec.Partition); ok {
				if usual = p.Power; p.SessionIdle > 0 {
					as.SessionIdle = durationpb.New(p.SessionIdle)
				}
			}
			power := a.BerthAt(rank).Power(j.Spec.Power, usual)
			as.PowerCap, as.GpuFreq = string(power.Cap), string(power.Freq)
			if _, auto := power.Cap.Slowdown(); auto {
				as.Found, as.FoundBefore = conv.CapSearchToNode(a.Search), conv.CapSearchToNode(j.FoundBefore(a))
			}
			if as.Ranks != nil {
				as.Ranks.MasterAddr = masterAddr(ss.n.fsm, j.Spec, a)
			}
			d.Assignments = append(d.Assignments, as)
		}
	}
	for id := range ss.sent {
		if _, ok := now[id]; !ok {
			d.Released = append(d.Released, &nodev1.AttemptRef{Job: uint64(id.Job), Attempt: id.No})
		}
	}
	ss.sent = now
	resumes := ss.resumes(d)
	if !full && !resumes && len(d.Assignments) == 0 && len(d.Released) == 0 {
		return nil
	}
	return ss.send(&nodev1.SessionResponse{Kind: &nodev1.SessionResponse_Desired{Desired: d}})
}

// resumes adds to d which GPUs administrators resumed. It reports whether that is
// news to the agent.
func (ss *session) resumes(d *nodev1.Desired) bool {
	n, ok := ss.n.fsm.Node(ss.node)
	if !ok {
		return false
	}
	newest := ss.resumed
	for _, o := range n.Orders {
		if o.Resumed != 0 {
			d.Resumes = append(d.Resumes, &nodev1.GPUResume{Uuid: string(o.GPU), Index: o.Resumed, At: timestamppb.New(o.At.Std())})
			newest = max(newest, o.Resumed)
		}
	}
	news := newest > ss.resumed
	ss.resumed = newest
	return news
}

// endingOf returns what the agent of a node's rank should do with an attempt now. A
// batch script runs on the first node: when it ends the others are done.
func endingOf(j *cluster.Job, a *cluster.Attempt, rank int) ending {
	done := rank > 0 && j.Spec.BatchStep() && a.Gang.Parts[0].State.Terminal()
	return ending{stop: j.Cancel != nil || a.Gang.Stopping() || done, room: a.Preempt != nil || !a.Stays(rank), begin: a.Gang != nil && a.Gang.Go, cut: cutOf(a), limit: j.Spec.TimeLimit, token: a.TokenOf(rank)}
}

// masterAddr returns where the others reach the first process of an attempt: the
// host of the first node's address, which the node gave or from which its agent
// calls, or its name. If nodes join and leave, it stays the same whichever are
// there. An agent on the coordinator's machine calls from the loopback device: that
// is an address only for others that do. On one node they meet there, since it
// exists whatever network the job has.
func masterAddr(f *fsm.FSM, s *cluster.Spec, a *cluster.Attempt) string {
	if a.Gang == nil {
		return "127.0.0.1"
	}
	addr := HostOf(f, a.Berth.Node)
	if !loopback(addr) {
		return addr
	}
	if s.InPlace && slices.ContainsFunc(f.Nodes(), func(n *cluster.Node) bool { return !loopback(HostOf(f, n.ID)) }) {
		return string(a.Berth.Node)
	}
	for _, b := range a.Berths() {
		if !loopback(HostOf(f, b.Node)) {
			return string(a.Berth.Node)
		}
	}
	return addr
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// peerHost returns the address from which a stream comes, "" if it has none.
func peerHost(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ""
	}
	host, _, err := net.SplitHostPort(p.Addr.String())
	if err != nil || net.ParseIP(host) == nil {
		return ""
	}
	return host
}

// HostOf returns the host of the address of a node, or its name.
func HostOf(f *fsm.FSM, id cluster.NodeID) string {
	n, ok := f.Node(id)
	if !ok {
		return string(id)
	}
	host, _, err := net.SplitHostPort(n.Address)
	if err != nil {
		host = n.Address
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		return string(id)
	}
	return host
}

// cutOf returns the memory that an attempt's shares were reduced to, 0 if they were
// not: its agent must be told of a change.
func cutOf(a *cluster.Attempt) (mib int64) {
	if (a.Idle == nil || len(a.Idle.Was) == 0) && a.Resize == nil {
		return 0
	}
	for _, g := range a.Berth.GPUs {
		mib += g.Share.MemMiB
	}
	return mib
}

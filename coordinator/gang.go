package coordinator

import (
	"context"
	"fmt"
	"hash/fnv"
	"net"
	"time"

	"google.golang.org/grpc/peer"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

const (
	defaultGangTimeout = 10 * time.Minute
	firstGangPort      = 20_000
	lastGangPort       = 29_999
	// undoEvery is how often the leader looks for gangs that are late.
	undoEvery = time.Second
)

// endingOf is what the agent of a node's rank is to make of an attempt now. A
// batch script runs on the first node: with it the others have done their part.
func endingOf(j *cluster.Job, a *cluster.Attempt, rank int) ending {
	done := rank > 0 && j.Spec.BatchStep() && a.Gang.Parts[0].State.Terminal()
	return ending{stop: j.Cancel != nil || a.Gang.Stopping() || done, room: a.Preempt != nil, begin: a.Gang != nil && a.Gang.Go, cut: cutOf(a), limit: j.Spec.TimeLimit}
}

// gangOf is what a start on several nodes will have, for passes that come after
// the one that planned it; nil for one node.
func gangOf(st *cluster.Start) *cluster.Gang {
	if len(st.Rest) == 0 {
		return nil
	}
	g := &cluster.Gang{Rest: st.Rest}
	for range st.Berths() {
		g.Parts = append(g.Parts, cluster.Part{State: cluster.JobStarting})
	}
	return g
}

// takeAll takes all berths of a start, or none and reports false.
func takeAll(l *cluster.Ledger, st *cluster.Start) bool {
	for i, b := range st.Berths() {
		if l.Take(b) {
			continue
		}
		for k, o := range st.Berths() {
			if k < i {
				l.Release(o)
			}
		}
		return false
	}
	return true
}

// masterAddr is where the first process of an attempt is found by the others:
// the host of the first node's address, which the node gave or from which its
// agent calls, or its name. An agent beside the coordinator calls from the
// loopback device: that is an address only for others that do. On one node they
// meet there, since it is there whatever network the job has.
func (c *Coordinator) masterAddr(a *cluster.Attempt) string {
	if a.Gang == nil {
		return "127.0.0.1"
	}
	addr := hostOf(c.fsm, a.Berth.Node)
	if !loopback(addr) {
		return addr
	}
	for _, b := range a.Berths() {
		if !loopback(hostOf(c.fsm, b.Node)) {
			return string(a.Berth.Node)
		}
	}
	return addr
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// peerHost is the address from which a stream comes, "" when it has none.
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

func hostOf(f *fsm.FSM, id cluster.NodeID) string {
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

// ports are those at which live attempts meet, by host.
type ports map[string]map[uint16]struct{}

func (u ports) on(host string) map[uint16]struct{} {
	if u[host] == nil {
		u[host] = map[uint16]struct{}{}
	}
	return u[host]
}

// assignPorts gives each start of several processes a port for them to meet at:
// the same for the same attempt, but where a live one on the same host has it.
func (p *planner) assignPorts(starts []cluster.Start) {
	var used ports
	for i := range starts {
		st := &starts[i]
		j, ok := p.fsm.Job(st.Job)
		if !ok || !j.Spec.Ranked() {
			continue
		}
		if used == nil {
			used = p.portsInUse()
		}
		on := used.on(hostOf(p.fsm, st.Berth.Node))
		st.Port = p.choosePort(cluster.AttemptID{Job: st.Job, No: st.Attempt}, on)
		on[st.Port] = struct{}{}
	}
}

func (p *planner) portsInUse() ports {
	used := ports{}
	live, _ := p.fsm.Jobs(fsm.Query{
		States: []cluster.JobState{cluster.JobStarting, cluster.JobRunning, cluster.JobCompleting, cluster.JobUnreachable},
		Keep:   func(j *cluster.Job) bool { return j.Live() != nil && j.Live().Port != 0 },
	})
	for _, j := range live {
		used.on(hostOf(p.fsm, j.Live().Berth.Node))[j.Live().Port] = struct{}{}
	}
	return used
}

func (p *planner) choosePort(id cluster.AttemptID, used map[uint16]struct{}) uint16 {
	first, last := p.ports[0], p.ports[1]
	if first == 0 || last < first {
		first, last = firstGangPort, lastGangPort
	}
	n := uint32(last-first) + 1
	h := fnv.New32a()
	_, _ = h.Write([]byte(id.String())) // never fails
	at := h.Sum32() % n
	for range n {
		if _, taken := used[first+uint16(at)]; !taken {
			break
		}
		at = (at + 1) % n
	}
	return first + uint16(at)
}

// undoLate gives up gangs of which not all nodes became ready in time, until
// ctx ends. Since when each waits is in the log, so that a new leader goes on
// where the last one was.
func (c *Coordinator) undoLate(ctx context.Context) error {
	bound := c.cfg.GangTimeout
	if bound <= 0 {
		bound = defaultGangTimeout
	}
	for sleep(ctx, min(undoEvery, bound/4)) {
		now := cluster.TimeOf(c.cfg.Clock())
		late, _ := c.fsm.Jobs(fsm.Query{
			States: []cluster.JobState{cluster.JobStarting, cluster.JobUnreachable},
			Keep: func(j *cluster.Job) bool {
				a := j.Live()
				return a != nil && a.Gang != nil && !a.Gang.Go && !a.Gang.Stopping() && now.Sub(a.Placed) > bound
			},
		})
		for _, j := range late {
			a := j.Live()
			why := fmt.Sprintf("%s not ready to start within %s", notReady(a), bound)
			_, err := c.prop.One(ctx, &logv1.Command{Kind: &logv1.Command_UndoGang{UndoGang: &logv1.UndoGang{Job: uint64(j.ID), Attempt: a.No, Why: why}}})
			if err != nil && ctx.Err() == nil {
				c.log.WarnContext(ctx, "cannot give up a gang that is late", "job", j.ID.String(), "err", err)
			} else if err == nil {
				c.log.InfoContext(ctx, "gang given up before its start", "job", j.ID.String(), "attempt", a.No, "reason", why)
			}
		}
	}
	return ctx.Err()
}

// notReady names the nodes that hold up the others.
func notReady(a *cluster.Attempt) string {
	var ids []cluster.NodeID
	for rank, b := range a.Berths() {
		if !a.Gang.Parts[rank].Ready {
			ids = append(ids, b.Node)
		}
	}
	if len(ids) == 1 {
		return "node " + string(ids[0]) + " was"
	}
	return "nodes " + cluster.FoldNames(ids) + " were"
}

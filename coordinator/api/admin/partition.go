package admin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/api/authorize"
	"github.com/berth-scheduler/berth/coordinator/api/resource"
	"github.com/berth-scheduler/berth/fsm"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
	"github.com/berth-scheduler/berth/scheduler/site"
)

// ListPartitions describes partitions by name, and what is in them now.
func (s *clusterServer) ListPartitions(ctx context.Context, req *apiv1.ListPartitionsRequest) (*apiv1.ListPartitionsResponse, error) {
	resp := &apiv1.ListPartitionsResponse{}
	parts := s.c.fsm.Partitions()
	for _, name := range req.Names {
		if !slices.ContainsFunc(parts, func(p *cluster.Partition) bool { return p.Name == name }) {
			return nil, noSuchPartition(name)
		}
	}
	waiting, live := s.c.partitionJobs()
	for _, p := range parts {
		if len(req.Names) == 0 || slices.Contains(req.Names, p.Name) {
			resp.Partitions = append(resp.Partitions, s.c.partitionView(p, waiting[p.Name], live[p.Name]))
		}
	}
	return resp, nil
}

// partitionJobs counts the jobs of each partition that wait for room, and those that
// run.
func (c *Admin) partitionJobs() (waiting, live map[string]int) {
	waiting, live = c.fsm.PartitionJobs()
	for name, n := range c.standby() {
		waiting[name] -= n
	}
	return waiting, live
}

func noSuchPartition(name string) error {
	return cluster.Errorf(cluster.CodeNotFound, "partition %q is not known; see: berth partition list", name)
}

func (c *Admin) partitionView(p *cluster.Partition, waiting, live int) *apiv1.Partition {
	m := conv.PartitionToAPI(p)
	m.Policy = c.lead.Scheduling().Of(p.Name).Name()
	m.JobsWaiting, m.JobsRunning = uint32(waiting), uint32(live)
	loans, _ := c.fsm.Jobs(fsm.Query{States: liveStates(), Keep: func(j *cluster.Job) bool { return j.OnLoan() != "" }})
	lent, borrowed := site.Loans(loans, p)
	m.GpusLent, m.GpusBorrowed = uint32(lent), uint32(borrowed)
	c.fsm.Read(func(st *fsm.State) {
		for _, n := range site.NodesOf(st.Nodes(), p) {
			m.NodesTotal++
			if n.Schedulable() {
				m.NodesReady++
			}
			for i := range n.GPUs {
				m.GpusTotal++
				if u, ok := st.Ledger().GPU(n.GPUs[i].ID); ok && u.Shares > 0 {
					m.GpusUsed++
				}
			}
		}
	})
	return m
}

// SetPartition adds a partition, or changes what the request says of one.
func (s *clusterServer) SetPartition(ctx context.Context, req *apiv1.SetPartitionRequest) (*apiv1.SetPartitionResponse, error) {
	who := authorize.CallerOf(ctx)
	if err := s.c.auth.May(who, authorize.Admin, nil); err != nil {
		return nil, err
	}
	var p *cluster.Partition
	if err := resource.Set(ctx, s.c.prop, func() (*logv1.Command, error) {
		old, _ := s.c.fsm.Partition(req.Name)
		var err error
		if p, err = merged(old, req); err != nil {
			return nil, err
		}
		cmd := &logv1.SetPartition{Partition: conv.PartitionToLog(p)}
		if old != nil {
			cmd.Base = old.Revision
		}
		return &logv1.Command{Kind: &logv1.Command_SetPartition{SetPartition: cmd}}, nil
	}); err != nil {
		return nil, err
	}
	s.c.log.InfoContext(ctx, "partition set", "partition", p.Name, "nodes", p.Nodes.String(), "default", p.Default, "down", p.Down, "uid", who.UID)
	waiting, live := s.c.partitionJobs()
	return &apiv1.SetPartitionResponse{
		Partition: s.c.partitionView(p, waiting[p.Name], live[p.Name]), Warnings: s.c.doubts(p),
	}, nil
}

// merged returns a partition as a request changes it; old is nil for a new one.
func merged(old *cluster.Partition, req *apiv1.SetPartitionRequest) (p *cluster.Partition, err error) {
	p = &cluster.Partition{Name: req.Name}
	if old != nil {
		*p = *old
	} else if err := cluster.CheckPartitionName(req.Name); err != nil {
		return nil, err
	} else if req.Nodes == nil {
		return nil, cluster.Errorf(cluster.CodeInvalid, "nodes: new partition %s needs some; give a host list such as gpu[01-04],n7, or %s", req.Name, cluster.AllNodes)
	}
	if req.Nodes != nil {
		if p.Nodes, err = cluster.ParseHostList(req.GetNodes()); err != nil {
			return nil, err
		}
	}
	if req.SetGpuTypes {
		p.GPUTypes = slices.Compact(slices.Sorted(slices.Values(req.GpuTypes)))
	}
	if req.SetNetworks {
		p.Networks = apiconv.Texts[cluster.Network](req.Networks)
	}
	if req.Default != nil {
		p.Default = req.GetDefault()
	}
	if req.Down != nil {
		p.Down = req.GetDown()
	}
	if err := setModes(p, req); err != nil {
		return nil, err
	}
	setLending(p, req)
	for _, l := range req.Access {
		p.Access = p.Access.With(l.List, l.Names)
	}
	for _, t := range []struct {
		from *durationpb.Duration
		to   *time.Duration
	}{{req.MaxTime, &p.MaxTime}, {req.SessionIdle, &p.SessionIdle}, {req.DefaultTime, &p.DefaultTime}} {
		if t.from != nil {
			*t.to = t.from.AsDuration()
		}
	}
	for _, n := range []struct{ from, to *int64 }{
		{req.MemPerGpuMib, &p.Host.MemPerGPUMiB}, {req.CpuPerGpuMilli, &p.Host.CPUPerGPUMilli},
		{req.LeastMemMib, &p.Host.LeastMemMiB}, {req.LeastCpuMilli, &p.Host.LeastCPUMilli}, {req.MaxGpus, &p.MaxGPUs},
	} {
		if n.from != nil {
			*n.to = *n.from
		}
	}
	return p, p.Check()
}

// liveStates returns the states of jobs that hold something.
func liveStates() []cluster.JobState {
	return []cluster.JobState{cluster.JobStarting, cluster.JobRunning, cluster.JobCompleting, cluster.JobUnreachable}
}

// doubts returns warnings about what may be intended or a mistake.
func (c *Admin) doubts(p *cluster.Partition) []string {
	var out, unknown []string
	for _, id := range p.Nodes.Names() {
		if _, ok := c.fsm.Node(id); !ok {
			unknown = append(unknown, string(id))
		}
	}
	if n := len(unknown); n > 0 {
		more := ""
		if n > 5 {
			unknown, more = unknown[:5], fmt.Sprintf(" and %d more", n-5)
		}
		out = append(out, fmt.Sprintf("no such node yet: %s%s; jobs run there once it joins", strings.Join(unknown, ", "), more))
	}
	nodes := site.NodesOf(c.fsm.Nodes(), p)
	for _, t := range p.GPUTypes {
		if !slices.ContainsFunc(nodes, func(n *cluster.Node) bool {
			return slices.ContainsFunc(n.GPUs, func(g cluster.GPU) bool { return g.Type == t })
		}) {
			out = append(out, fmt.Sprintf("no node of the partition has a GPU of type %s now", t))
		}
	}
	for _, name := range p.Lend.To {
		if _, ok := c.fsm.Partition(name); !ok {
			out = append(out, fmt.Sprintf("no such partition yet: %s; its jobs can borrow once it exists", name))
		}
	}
	outside := 0
	running, _ := c.fsm.Jobs(fsm.Query{
		States: liveStates(),
		Keep:   func(j *cluster.Job) bool { return j.Spec.Partition == p.Name },
	})
	for _, j := range running {
		if a := j.Live(); a != nil && a.Loan == "" && slices.ContainsFunc(a.NodeIDs(), func(id cluster.NodeID) bool { return !p.Nodes.Holds(id) }) {
			outside++
		}
	}
	if outside > 0 {
		out = append(out, fmt.Sprintf("%d of its jobs run on nodes that are no longer in it; they continue there", outside))
	}
	return out
}

// RemovePartition forgets a partition without waiting or running jobs.
func (s *clusterServer) RemovePartition(ctx context.Context, req *apiv1.RemovePartitionRequest) (*apiv1.RemovePartitionResponse, error) {
	who, _, err := s.c.order(ctx, &logv1.Command{Kind: &logv1.Command_RemovePartition{RemovePartition: &logv1.RemovePartition{Name: req.Name}}})
	if err != nil {
		return nil, err
	}
	s.c.log.InfoContext(ctx, "partition removed", "partition", req.Name, "uid", who.UID)
	return &apiv1.RemovePartitionResponse{}, nil
}

// setLending sets to whom a partition lends, if the request says so. One that
// begins to lend lends to short jobs, too.
func setLending(p *cluster.Partition, req *apiv1.SetPartitionRequest) {
	lent := p.Lend.On()
	if req.SetLendTo {
		p.Lend.To = req.LendTo
	}
	switch {
	case req.LendShort != nil:
		p.Lend.Short = req.LendShort.AsDuration()
	case !lent && p.Lend.On():
		p.Lend.Short = cluster.DefaultLendShort
	}
}

// setModes sets what happens to running jobs, if the request says so.
func setModes(p *cluster.Partition, req *apiv1.SetPartitionRequest) (err error) {
	if req.Idle != nil {
		if p.Idle, err = cluster.ParseIdlePolicy(req.GetIdle()); err != nil {
			return err
		}
	}
	if req.Resize != nil {
		if p.Resize, err = cluster.ParseResizeMode(req.GetResize()); err != nil {
			return err
		}
	}
	if err := p.Power.Set(req.PowerCap, req.GpuFreq); err != nil {
		return err
	}
	if req.Preempt != nil {
		p.Preempt, err = cluster.ParsePreemptMode(req.GetPreempt())
	}
	return err
}

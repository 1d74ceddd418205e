package site

import (
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/cells"
	"github.com/berth-scheduler/berth/scheduler/policies"
)

// Tenancy returns the guarantees of tenants, nil if there are none.
func (c *Chosen) Tenancy() *policies.Tenancy {
	if t, ok := c.Planner.(interface{ Tenancy() *policies.Tenancy }); ok {
		return t.Tenancy()
	}
	return nil
}

// lendable reports whether a job may run where others have a claim: it can be ended
// whenever they ask.
func lendable(snap *dispatch.Snapshot, j *cluster.Job) bool {
	return snap.Terms[j.ID].Preemptible && j.Rested(snap.Now)
}

// Short says, for each guarantee of a tenant that cannot be kept with the nodes in
// service, what is missing. With partitions it says nothing: guarantees are kept in
// each by itself.
func Short(snap *dispatch.Snapshot, s *Site) (lines []string) {
	ten := s.Tenancy()
	if ten == nil || len(snap.Partitions) > 0 {
		return nil
	}
	for _, lack := range ten.Bind(snap).Short() {
		lines = append(lines, lack.String())
	}
	return lines
}

// TenantReason says why a job waits as far as guarantees go; the code is empty if
// they are not the reason.
func TenantReason(chosen *Chosen, snap *dispatch.Snapshot, j *cluster.Job) cluster.Reason {
	ten := chosen.Tenancy()
	if ten == nil || j.Spec.GPUs == 0 {
		return cluster.Reason{}
	}
	s := *snap
	s.Terms = termsOf([]*cluster.Job{j}, snap.Running)
	b := ten.Bind(&s)
	for _, e := range j.Estimates {
		if j.Spec.GPUType != "" && j.Spec.GPUType != e.GPUType || e.GPUType == cluster.CPUType {
			continue
		}
		why := b.Why(cells.Request{ID: j.ID, Tenant: ten.Of(j.Owner), GPUType: e.GPUType, GPUs: j.Spec.GPUs, Nodes: j.Spec.NodeCount(), Preemptible: lendable(&s, j), Sent: policies.SentHome(&s, j)})
		if why != "" {
			return cluster.Reason{Code: cluster.ReasonTenantCells, Detail: why}
		}
	}
	return cluster.Reason{}
}

package site

import (
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/cells"
	"github.com/berth-scheduler/berth/scheduler/policies"
)

// Tenancy is who is guaranteed what, nil for nobody.
func (c *Chosen) Tenancy() *policies.Tenancy {
	if t, ok := c.Planner.(interface{ Tenancy() *policies.Tenancy }); ok {
		return t.Tenancy()
	}
	return nil
}

// Short says of each guarantee of a tenant that cannot be kept with the nodes in
// service what lacks. Where there are partitions it says nothing: guarantees are
// kept in each for itself.
func Short(snap *cluster.Snapshot, s *Site) (lines []string) {
	ten := s.Tenancy()
	if ten == nil || len(snap.Partitions) > 0 {
		return nil
	}
	for _, lack := range ten.Bind(snap).Short() {
		lines = append(lines, lack.String())
	}
	return lines
}

// TenantReason says why a job waits as far as the guarantees go; the code is
// empty when they are not why.
func TenantReason(chosen *Chosen, snap *cluster.Snapshot, j *cluster.Job) cluster.Reason {
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
		why := b.Why(cells.Request{ID: j.ID, Tenant: ten.Of(j.Owner), GPUType: e.GPUType, GPUs: j.Spec.GPUs, Preemptible: s.Terms[j.ID].Preemptible, Sent: policies.SentHome(&s, j)})
		if why != "" {
			return cluster.Reason{Code: cluster.ReasonTenantCells, Detail: why}
		}
	}
	return cluster.Reason{}
}

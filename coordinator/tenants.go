package coordinator

import (
	"context"
	"strings"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/cells"
	"github.com/berth-scheduler/berth/scheduler/policies"
)

// tenancy is who is guaranteed what, nil for nobody.
func (c *Chosen) tenancy() *policies.Tenancy {
	if t, ok := c.Planner.(interface{ Tenancy() *policies.Tenancy }); ok {
		return t.Tenancy()
	}
	return nil
}

// tellShort says in the log which guarantees cannot be kept with the nodes in
// service, when that has changed.
func (p *planner) tellShort(ctx context.Context, sched *Scheduling, snap *cluster.Snapshot) {
	ten := sched.tenancy()
	if ten == nil || len(snap.Partitions) > 0 {
		return
	}
	var lines []string
	for _, s := range ten.Bind(snap).Short() {
		lines = append(lines, s.String())
	}
	text := strings.Join(lines, "; ")
	if text == p.short {
		return
	}
	p.short = text
	if text == "" {
		p.log.InfoContext(ctx, "all guarantees of tenants are kept again")
		return
	}
	p.log.WarnContext(ctx, "guarantees of tenants cannot be kept: nodes are missing, drained or silent, or jobs lie there that cannot be preempted", "detail", text, "count", len(lines))
}

// tenantReason says why a job waits as far as the guarantees go; the code is
// empty when they are not why.
func tenantReason(chosen *Chosen, snap *cluster.Snapshot, j *cluster.Job) cluster.Reason {
	ten := chosen.tenancy()
	if ten == nil || j.Spec.GPUs == 0 {
		return cluster.Reason{}
	}
	s := *snap
	s.Terms, _ = termsOf([]*cluster.Job{j}, snap.Running)
	b := ten.Bind(&s)
	for _, e := range j.Estimates {
		if j.Spec.GPUType != "" && j.Spec.GPUType != e.GPUType || e.GPUType == cluster.CPUType {
			continue
		}
		why := b.Why(cells.Request{ID: j.ID, Tenant: ten.Of(j.Owner), GPUType: e.GPUType, GPUs: j.Spec.GPUs, Preemptible: s.Terms[j.ID].Preemptible})
		if why != "" {
			return cluster.Reason{Code: cluster.ReasonTenantCells, Detail: why}
		}
	}
	return cluster.Reason{}
}

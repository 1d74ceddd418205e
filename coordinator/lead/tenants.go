package lead

import (
	"context"
	"strings"

	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/site"
)

// tellShort says in the log which guarantees cannot be kept with the nodes in
// service, when that has changed.
func (p *planner) tellShort(ctx context.Context, sched *Scheduling, snap *dispatch.Snapshot) {
	if sched.Tenancy() == nil || len(snap.Partitions) > 0 {
		return
	}
	lines := site.Short(snap, &sched.Site)
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

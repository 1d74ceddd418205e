package lead

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/accounting"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/fsm"
	"github.com/berth-scheduler/berth/scheduler/fair"
	"github.com/berth-scheduler/berth/scheduler/site"
)

// fairEvery is how long an order of fair shares is used: use changes slowly, and
// passes come often.
const fairEvery = time.Second

// fairShares caches the order of fair shares. It is safe for concurrent use.
type fairShares struct {
	mu   sync.Mutex
	rev  uint64
	tree *fair.Tree
	at   time.Time
	last *accounting.Fair

	had   map[cluster.UID]int64
	hadAt time.Time
}

// service returns each user's usage in GPU seconds, decayed and including running
// jobs, at most fairEvery old. It counts with or without accounts, all of them
// together. The map is not modified.
func (f *fairShares) service(st *fsm.FSM, now time.Time) map[cluster.UID]int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.had != nil && now.Sub(f.hadAt) >= 0 && now.Sub(f.hadAt) < fairEvery {
		return f.had
	}
	used := map[cluster.UID]cluster.GPUTime{}
	st.EachUse(cluster.TimeOf(now), func(who accounting.Assoc, t cluster.GPUTime) { used[who.UID] += t })
	f.had, f.hadAt = make(map[cluster.UID]int64, len(used)), now
	for uid, t := range used {
		f.had[uid] = int64(t) / time.Second.Microseconds()
	}
	return f.had
}

// order returns the current order, at most fairEvery old; nil without accounts.
func (f *fairShares) order(st *fsm.FSM, now time.Time) *accounting.Fair {
	if has, _ := st.HasAccounts(); !has {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	rev := st.StandingRevision()
	if f.tree != nil && rev == f.rev && now.Sub(f.at) >= 0 && now.Sub(f.at) < fairEvery {
		return f.last
	}
	if f.tree == nil || rev != f.rev {
		d := st.Standing(cluster.TimeOf(now))
		f.tree, f.rev = fair.New(d.Accounts, d.Members), rev
	}
	f.tree.Reset()
	st.EachUse(cluster.TimeOf(now), f.tree.Add)
	f.last, f.at = f.tree.Order(), now
	return f.last
}

// Prepare adds to a snapshot what passes use besides the state.
func (l *Leader) Prepare(snap *dispatch.Snapshot) {
	sched := l.Scheduling()
	l.plan.stand(snap, sched)
	site.Prepare(snap, &sched.Site, site.Full)
}

// PlanOf returns what a full pass of l would do with a snapshot, which it modifies.
func PlanOf(l *Leader, snap *dispatch.Snapshot) dispatch.Plan {
	sched := l.Scheduling()
	snap.Interference = l.plan.company.ForScheduler(snap.Nodes, snap.Waiting, snap.Running)
	l.Prepare(snap)
	return site.Plan(l.Wary(snap), &sched.Site, site.Full)
}

// TradesOf says in words what accounts traded by the last pass of l.
func TradesOf(l *Leader) (out []string) {
	if ts := l.plan.trades.Load(); ts != nil {
		for i := range *ts {
			out = append(out, (*ts)[i].String())
		}
	}
	return out
}

// stand adds the order of fair shares to a snapshot, and users' past usage, if they
// count.
func (p *planner) stand(snap *dispatch.Snapshot, sched *Scheduling) {
	if sched.CountsUse() {
		snap.Service = p.fair.service(p.fsm, p.clock())
	}
	if !sched.Fairly() {
		return
	}
	if fair := p.fair.order(p.fsm, p.clock()); fair != nil {
		s := accounting.Standing{Fair: fair}
		if snap.Standing != nil {
			s.QOS = snap.Standing.QOS
		}
		snap.Standing = &s
	}
}

// tellShort logs which guarantees cannot be kept with the nodes in service, when
// that has changed.
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

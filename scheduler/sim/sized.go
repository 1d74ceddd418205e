package sim

import (
	"maps"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/elastic"
	"github.com/berth-scheduler/berth/scheduler/policies"
	"github.com/berth-scheduler/berth/scheduler/site"
)

// Sized plans elastic jobs as a coordinator does: with its code and its pace. It is
// for one run.
type Sized struct {
	site site.Site
	name string
	last cluster.Time
}

// NewSized returns a planner with sizes chosen by rules. The planner is one of
// package policies, or the scheduler's own.
func NewSized(p Planner, rules elastic.Rules) *Sized {
	s := &Sized{name: p.Name() + "/" + string(rules.Sizing)}
	s.site.Elastic = rules
	switch p := p.(type) {
	case Berth:
		s.site.Policy = p.Policy
	case policies.Policy:
		s.site.Planner = p
	}
	return s
}

// Site returns what it plans with.
func (s *Sized) Site() *site.Site { return &s.site }

// Name implements Planner.
func (s *Sized) Name() string { return s.name }

// Sizes implements Sizer.
func (s *Sized) Sizes() bool { return true }

// Plan implements Planner. Two passes that restart jobs are a minute apart.
func (s *Sized) Plan(snap *dispatch.Snapshot) dispatch.Plan {
	own := *snap
	own.Ledger, own.Queues = snap.Ledger.Clone(), maps.Clone(snap.Queues)
	plan := site.Plan(&own, &s.site, site.Full)
	if len(plan.Preempt) == 0 {
		return plan
	}
	if s.last > 0 && snap.Now.Sub(s.last) < s.site.Elastic.Pace() {
		plan.Preempt = nil
		return plan
	}
	s.last = snap.Now
	return plan
}

// Sited plans a fleet with partitions as a cluster's leader does, including loans.
type Sited struct{ Site site.Site }

// Name implements Planner.
func (s Sited) Name() string { return s.Site.Name() }

// Plan implements Planner.
func (s Sited) Plan(snap *dispatch.Snapshot) dispatch.Plan {
	own := *snap
	own.Ledger, own.Queues = snap.Ledger.Clone(), maps.Clone(snap.Queues)
	site.Prepare(&own, &s.Site, site.Full)
	return site.Plan(&own, &s.Site, site.Full)
}

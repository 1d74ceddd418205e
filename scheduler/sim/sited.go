package sim

import (
	"maps"

	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/site"
)

// Sited plans a fleet with partitions as a cluster's leader does, loans among them
// included.
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

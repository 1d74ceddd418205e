package policies

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/policies/order"
	"github.com/berth-scheduler/berth/scheduler/policies/place"
	"github.com/berth-scheduler/berth/scheduler/policies/scene"
)

// Policy decides which of the waiting jobs of a snapshot start, and where.
// Implementations keep nothing between calls: equal snapshots give equal plans, and
// a policy is safe for concurrent use.
type Policy interface {
	// Name returns "placement", or "placement+order" if the order is not the
	// placement's own.
	Name() string
	// Plan does not modify snap. The starts of the plan are in the order in which
	// they must be applied; they never count on its preemptions.
	Plan(snap *dispatch.Snapshot) dispatch.Plan
}

// Options configure policies. The zero value suits all.
type Options struct {
	// Order is one of Orders, or "" for the placement's own.
	Order string
	// Base says how jobs share GPUs, for every policy; the zero value stands for
	// scheduler.Default.
	Base scheduler.Policy
	// Seed is mixed into what policies draw at random.
	Seed uint64
	// Age is the wait from which on jobs go before all others, first come, first
	// served, in any order. 0 leaves an order as it was published, and then some of
	// them starve jobs; see DESIGN.md.
	Age time.Duration
	// HoldAge is the wait from which on the first job that does not fit has a node
	// emptied for it, where no job overtakes it, not even one predicted to end in
	// time: predictions that are always too short cannot starve it. 0 is plain
	// backfill.
	HoldAge time.Duration
	// MaxPreempt bounds the preemptions of one plan; 0 means 64. Only orders
	// that preempt, and jobs whose Terms allow it, make any.
	MaxPreempt int
	// MinRun is how long an attempt must have run before it may be preempted;
	// 0 means ten minutes, less than 0 not at all.
	MinRun time.Duration
	// Backfill says which jobs may overtake the first that does not fit, Evict how
	// orders that preempt do it. Their zero values are for production; the others
	// serve comparison with published figures.
	Backfill Backfill
	Evict    Eviction
	// LAS sets the queues of the order "las".
	LAS order.LAS
	// Tenants guarantees cells to groups of users, see Tenancy; nil for none.
	Tenants *Tenancy
}

// Names lists the placements, which New takes as names, alone or with an
// order, sorted.
func Names() []string {
	var out []string
	for _, p := range place.All() {
		out = append(out, p.Name)
	}
	slices.Sort(out)
	return out
}

// Orders lists the orders that combine with any placement, sorted.
func Orders() []string {
	var out []string
	for _, o := range order.All() {
		out = append(out, o.Name)
	}
	slices.Sort(out)
	return out
}

// New returns a policy by name: a placement, or "placement+order". The error is a
// *cluster.Error of CodeInvalid that lists the names.
func New(name string, opt Options) (Policy, error) {
	where, who, both := strings.Cut(name, "+")
	switch {
	case !both:
		who = opt.Order
	case opt.Order != "" && opt.Order != who:
		return nil, cluster.Errorf(cluster.CodeInvalid, "policy %q and order %q: name one order", name, opt.Order)
	}
	if err := opt.check(); err != nil {
		return nil, err
	}
	if opt.Base == (scheduler.Policy{}) {
		opt.Base = scheduler.Default()
	}
	opt.MaxPreempt = cmp.Or(opt.MaxPreempt, 64)
	opt.MinRun = cmp.Or(opt.MinRun, 10*time.Minute)
	i := slices.IndexFunc(place.All(), func(p place.Placement) bool { return p.Name == where })
	if i < 0 {
		return nil, cluster.Errorf(cluster.CodeInvalid, "policy %q is not known; the policies are %s", where, strings.Join(Names(), ", "))
	}
	k := slices.IndexFunc(order.All(), func(o order.Order) bool { return o.Name == who })
	if k < 0 && (who != "" || both) {
		return nil, cluster.Errorf(cluster.CodeInvalid, "order %q of policy %q is not known; the orders are %s", who, where, strings.Join(Orders(), ", "))
	}
	pl := place.All()[i]
	if pl.Mode != "" {
		opt.Base.Mode = pl.Mode
	} else {
		opt.Base.Mode = scheduler.ModeFFD
	}
	if k < 0 && pl.Own == "" && opt.Tenants != nil {
		pl.Own = "size" // one queue, in the order of the scheduler's own pass
	}
	if k < 0 && pl.Own == "" {
		return native{pl.Name, opt.Base}, nil
	}
	opt.Base.OvercommitMilli = 0 // as published
	full := where
	if who == "" || who == pl.Own {
		who = pl.Own
	} else {
		full += "+" + who
	}
	k = slices.IndexFunc(order.All(), func(o order.Order) bool { return o.Name == who })
	set := scene.Settings{Pol: opt.Base, Label: full, MarginMilli: pl.MarginMilli, MaxPreempt: opt.MaxPreempt, Seed: opt.Seed}
	return &engine{name: full, opt: opt, set: set, place: pl, order: order.All()[k]}, nil
}

// check returns an error for an unknown option.
func (o *Options) check() error {
	switch {
	case o.Backfill != BackfillEASY && o.Backfill != BackfillNone && o.Backfill != BackfillAny:
		return cluster.Errorf(cluster.CodeInvalid, "backfill %q is not known; want %q, %q or nothing", o.Backfill, BackfillNone, BackfillAny)
	case o.Evict != EvictRivals && o.Evict != EvictRanked:
		return cluster.Errorf(cluster.CodeInvalid, "eviction %q is not known; want %q or nothing", o.Evict, EvictRanked)
	case !slices.IsSorted(o.LAS.Limits) || len(o.LAS.Limits) > 0 && o.LAS.Limits[0] <= 0:
		return cluster.Errorf(cluster.CodeInvalid, "limits of las %v: want spans above 0, the shortest first", o.LAS.Limits)
	}
	return nil
}

// native is the scheduler's own pass, which has its own order and queues.
type native struct {
	name string
	pol  scheduler.Policy
}

func (n native) Name() string                               { return n.name }
func (n native) Plan(snap *dispatch.Snapshot) dispatch.Plan { return scheduler.Schedule(snap, n.pol) }

// engine is a placement with an order: one queue, one pass over it.
type engine struct {
	name  string
	opt   Options
	set   scene.Settings
	place place.Placement
	order order.Order
}

func (e *engine) Name() string { return e.name }

// Tenancy returns the guarantees of cells, nil if there are none.
func (e *engine) Tenancy() *Tenancy { return e.opt.Tenants }

// MakesRoomForDeadlines reports whether jobs with a promised deadline take the
// place of preemptible ones.
func (e *engine) MakesRoomForDeadlines() bool { return e.order.Name == "edf" && e.opt.Tenants == nil }

// CountsUse reports whether the order uses past usage, Snapshot.Service.
func (e *engine) CountsUse() bool { return e.order.Name == "fairshare" }

// StartsOnly reports whether plans hold nothing but starts, for jobs in no queue of
// a GPU: a caller that sees that nothing fits need not ask.
func (e *engine) StartsOnly() bool {
	return !e.place.Queues && !e.place.Last && e.order.Over == nil && e.opt.Tenants == nil
}

func (e *engine) Plan(snap *dispatch.Snapshot) dispatch.Plan {
	return e.run(newPass(snap, e))
}

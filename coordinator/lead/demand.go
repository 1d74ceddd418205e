package lead

import (
	"slices"
	"sync"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/service"
	"github.com/berth-scheduler/berth/fsm"
)

// Served is what a leader knows of a service's requests and of how soon its replicas take
// some.
type Served struct {
	Measured service.Measured
	// ColdStart is how long replicas took from their place on a node until they took
	// requests, the middle one of Starts.
	ColdStart time.Duration
	Starts    int
	// Told is why it has as many replicas as it has, by the last look of the autoscaler, and
	// LoadKnown for how long its load is known.
	Told      service.Told
	LoadKnown time.Duration
}

// demand is what proxies say of the requests of services. It is soft: who leads next hears
// it anew within a second. It is safe for concurrent use.
type demand struct {
	mu     sync.Mutex
	meters map[serviceName]*service.Meter
	served map[serviceName]Served
}

func named(r *fsm.Revision) serviceName { return serviceName{r.Owner.UID, r.Spec.Service.Name} }

// Heard takes over what a proxy of a service says; false when it has too many.
func (l *Leader) Heard(r *fsm.Revision, proxy string, c *service.Counted) bool {
	d := &l.demand
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.meters[named(r)]
	if m == nil {
		m = &service.Meter{}
		if d.meters == nil {
			d.meters = map[serviceName]*service.Meter{}
		}
		d.meters[named(r)] = m
	}
	return m.Report(r.Spec.Service.SLO, proxy, c, l.sinceEpoch())
}

// Served is what is known of a service of a user.
func (l *Leader) Served(owner cluster.UID, name string) Served {
	l.demand.mu.Lock()
	defer l.demand.mu.Unlock()
	return l.demand.served[serviceName{owner, name}]
}

// sinceEpoch is the clock as services have it.
func (l *Leader) sinceEpoch() time.Duration {
	return time.Duration(cluster.TimeOf(l.clock())) * time.Microsecond
}

// forget begins a term of office: what was heard in an earlier one is of no use.
func (d *demand) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.meters, d.served = nil, nil
}

// keep forgets all services but those that are there.
func (d *demand) keep(there map[serviceName]*served) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for n := range d.meters {
		if there[n] == nil {
			delete(d.meters, n)
		}
	}
	for n := range d.served {
		if there[n] == nil {
			delete(d.served, n)
		}
	}
}

// measure is what is known of a service now.
func (d *demand) measure(n serviceName, rs []fsm.Revision, now time.Duration) (out Served) {
	out.ColdStart, out.Starts = coldStart(rs)
	out.LoadKnown = rs[len(rs)-1].Load.Known()
	d.mu.Lock()
	defer d.mu.Unlock()
	if m := d.meters[n]; m != nil {
		out.Measured = m.Measure(now)
	}
	return out
}

// tell keeps what is known of a service for those who ask.
func (d *demand) tell(n serviceName, v Served) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.served == nil {
		d.served = map[serviceName]Served{}
	}
	d.served[n] = v
}

// coldStart is how long replicas of a service took until they took requests, the middle one
// of so many, by the attempts that are known of those that have not ended.
func coldStart(rs []fsm.Revision) (time.Duration, int) {
	var took []time.Duration
	for i := range rs {
		for _, j := range rs[i].Jobs {
			for k := range j.Attempts {
				if a := &j.Attempts[k]; a.Serving != nil && a.Serving.First > a.Placed {
					took = append(took, a.Serving.First.Sub(a.Placed))
				}
			}
		}
	}
	if len(took) == 0 {
		return 0, 0
	}
	slices.Sort(took)
	return took[len(took)/2], len(took)
}

package lead

import (
	"slices"
	"sync"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/service"
	"github.com/berth-scheduler/berth/fsm"
)

// Served is what a leader knows of a service's requests and its replicas' start
// times.
type Served struct {
	Measured service.Measured
	// ColdStart is how long replicas took from placement on a node until they took
	// requests, the median of Starts.
	ColdStart time.Duration
	Starts    int
	// Told is why it has its number of replicas, by the autoscaler's last look, and
	// LoadKnown for how long its load is known.
	Told      service.Told
	LoadKnown time.Duration
	// Unready is why attempts that have accepted no request yet do not, by their
	// last probe.
	Unready map[cluster.AttemptID]string
}

// demand is what proxies report of services' requests. It is soft state: the next
// leader receives it anew within a second. It is safe for concurrent use.
type demand struct {
	mu     sync.Mutex
	meters map[serviceName]*service.Meter
	served map[serviceName]Served
}

func named(r *fsm.Revision) serviceName { return serviceName{r.Owner.UID, r.Spec.Service.Name} }

// Heard records a proxy's report on a service; false if it has too many.
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

// Served returns what is known of a service of a user.
func (l *Leader) Served(owner cluster.UID, name string) Served {
	l.demand.mu.Lock()
	defer l.demand.mu.Unlock()
	return l.demand.served[serviceName{owner, name}]
}

// sinceEpoch returns the time as services use it.
func (l *Leader) sinceEpoch() time.Duration {
	return time.Duration(cluster.TimeOf(l.clock())) * time.Microsecond
}

// forget begins a leader's term: reports from an earlier one are of no use.
func (d *demand) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.meters, d.served = nil, nil
}

// keep forgets all services but the given ones.
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

// measure returns what is known of a service now.
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

// unready returns what Served.Unready is, of the running jobs of a service's
// revisions.
func unready(rs []service.Revision, jobs map[uint64]map[uint32]*cluster.Job) map[cluster.AttemptID]string {
	var out map[cluster.AttemptID]string
	for i := range rs {
		for k := range rs[i].Live {
			l := &rs[i].Live[k]
			if l.Serving.State != service.Starting || l.Probe == nil || l.Probe.OK || l.Probe.Fails == 0 {
				continue
			}
			if out == nil {
				out = map[cluster.AttemptID]string{}
			}
			out[attemptOf(jobs[rs[i].ID][l.Task])] = service.ClipWhy(l.Probe.Why)
		}
	}
	return out
}

// tell publishes what is known of a service.
func (d *demand) tell(n serviceName, v Served) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.served == nil {
		d.served = map[serviceName]Served{}
	}
	d.served[n] = v
}

// coldStart returns how long replicas of a service took until they took requests,
// the median, and of how many, by the known attempts of those that have not ended.
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

package service

import "time"

const (
	// window is the time over which a service's load is measured, in slots of slot.
	slot, slots = 5 * time.Second, 6
	window      = slot * slots
	// silent is how long a proxy may be silent before it counts as gone.
	silent = 15 * time.Second
	// maxProxies bounds the proxies per service.
	maxProxies = 32
	// minutes is for how many minutes the requests within the objective are
	// counted.
	minutes = 60
)

// Counted is what a proxy of a service has counted since it began, and its current
// state.
type Counted struct {
	// Requests arrived; Held of them waited because there was no replica.
	Requests, Held uint64
	// Latency counts requests that were answered and not held, from arrival to the
	// last byte of the answer.
	Latency Latencies
	// InFlight are at replicas, Waiting wait for one.
	InFlight, Waiting int
}

// Measured is what proxies report of a service's requests.
type Measured struct {
	// Known reports whether a proxy is alive, Steady whether it has been for long
	// enough that Rate and Latency cover the last half minute.
	Known, Steady bool
	Rate          float64 // requests per second
	InFlight      int
	Waiting       int
	Latency       Latencies
	// Idle is how long there has been no request, as far as known.
	Idle time.Duration
	// Asked and Within cover the last hour, including requests that were held: how
	// many requests there were, and how many of them were answered within the
	// objective.
	Asked, Within float64
}

// Meter turns the reports of a service's proxies into its load. The zero value is
// empty. Counts are totals since a proxy began, so that a lost report does no harm;
// a proxy's first report only sets the baseline.
type Meter struct {
	proxies map[string]*proxy
	since   time.Duration // time of the first report after a silence
	asked   time.Duration // time of the last request
	slots   [slots]counts
	minutes [minutes]kept
}

type proxy struct {
	at  time.Duration
	sum Counted
}

// counts are those of one slot, which began at a given time.
type counts struct {
	no       int64
	requests uint64
	latency  Latencies
}

type kept struct {
	no            int64
	asked, within float64
}

// Report adds a proxy's report; it returns false if there are too many proxies.
func (m *Meter) Report(slo SLO, name string, c *Counted, now time.Duration) bool {
	m.prune(now)
	p := m.proxies[name]
	if p == nil {
		if len(m.proxies) >= maxProxies {
			return false
		}
		if len(m.proxies) == 0 {
			m.since, m.asked = now, now
			m.slots = [slots]counts{}
		}
		if m.proxies == nil {
			m.proxies = map[string]*proxy{}
		}
		m.proxies[name] = &proxy{at: now, sum: *c}
		if c.InFlight+c.Waiting > 0 {
			m.asked = now
		}
		return true
	}
	m.add(slo, &p.sum, c, now)
	p.at, p.sum = now, *c
	return true
}

// add counts what arrived between two reports.
func (m *Meter) add(slo SLO, was, is *Counted, now time.Duration) {
	if is.Requests < was.Requests || is.Held < was.Held {
		return // another proxy has the same name
	}
	if is.Requests > was.Requests || is.InFlight+is.Waiting > 0 {
		m.asked = now
	}
	var lat Latencies
	for i := range lat {
		if is.Latency[i] > was.Latency[i] {
			lat[i] = is.Latency[i] - was.Latency[i]
		}
	}
	no := int64(now / slot)
	s := &m.slots[no%slots]
	if s.no != no {
		*s = counts{no: no}
	}
	s.requests += is.Requests - was.Requests
	s.latency.AddAll(&lat)
	if slo == (SLO{}) {
		return
	}
	no = int64(now / time.Minute)
	k := &m.minutes[no%minutes]
	if k.no != no {
		*k = kept{no: no}
	}
	k.asked += float64(lat.N() + is.Held - was.Held)
	k.within += lat.Within(slo.Within)
}

// prune forgets proxies that have been silent for too long.
func (m *Meter) prune(now time.Duration) {
	for name, p := range m.proxies {
		if now-p.at > silent {
			delete(m.proxies, name)
		}
	}
}

// Measure returns the measurements at now.
func (m *Meter) Measure(now time.Duration) (out Measured) {
	m.prune(now)
	for i := range m.minutes {
		if k := &m.minutes[i]; k.no > int64(now/time.Minute)-minutes {
			out.Asked, out.Within = out.Asked+k.asked, out.Within+k.within
		}
	}
	if len(m.proxies) == 0 {
		return out
	}
	out.Known, out.Steady, out.Idle = true, now-m.since >= window, now-m.asked
	for _, p := range m.proxies {
		out.InFlight += p.sum.InFlight
		out.Waiting += p.sum.Waiting
	}
	requests := uint64(0)
	for i := range m.slots {
		if s := &m.slots[i]; s.no > int64(now/slot)-slots {
			requests += s.requests
			out.Latency.AddAll(&s.latency)
		}
	}
	out.Rate = float64(requests) / min(max(now-m.since, slot), window-slot/2).Seconds()
	return out
}

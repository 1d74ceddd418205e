package service

import "time"

const (
	// window is over how long it is measured what a service has to do, in slots of slot.
	slot, slots = 5 * time.Second, 6
	window      = slot * slots
	// silent is how long a proxy may say nothing until it is gone.
	silent = 15 * time.Second
	// maxProxies bounds how many proxies of one service are listened to.
	maxProxies = 32
	// minutes is for how many minutes it is kept how many requests were within the objective.
	minutes = 60
)

// Counted is what a proxy of a service has counted since it began, and what it has now.
type Counted struct {
	// Requests came, and Held of them waited for a replica because there was none.
	Requests, Held uint64
	// Latency are those that were answered and not held, from when they came to the last
	// byte of the answer.
	Latency Latencies
	// InFlight are at replicas, Waiting for one.
	InFlight, Waiting int
}

// Measured is what proxies say of a service's requests.
type Measured struct {
	// Known reports whether a proxy lives, and for long enough that Rate and Latency are
	// those of the last half minute.
	Known, Steady bool
	Rate          float64 // requests a second
	InFlight      int
	Waiting       int
	Latency       Latencies
	// Idle is for how long nobody has asked, as far as that is known.
	Idle time.Duration
	// Asked and Within are of the last hour, those that were held included: how many
	// requests there were, and how many of them were answered within the objective.
	Asked, Within float64
}

// Meter makes of what the proxies of one service say what there is to do. The zero value has
// heard nothing. Counts are sums since a proxy began, so that a report which is lost costs
// nothing; of a proxy's first report the sums alone are kept.
type Meter struct {
	proxies map[string]*proxy
	since   time.Duration // of the first report after a silence
	asked   time.Duration // when somebody asked last
	slots   [slots]counts
	minutes [minutes]kept
}

type proxy struct {
	at  time.Duration
	sum Counted
}

// counts are those of one slot, which began at a time.
type counts struct {
	no       int64
	requests uint64
	latency  Latencies
}

type kept struct {
	no            int64
	asked, within float64
}

// Report takes over what a proxy says; false when there are too many of them.
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

// add counts what came between two reports.
func (m *Meter) add(slo SLO, was, is *Counted, now time.Duration) {
	if is.Requests < was.Requests || is.Held < was.Held {
		return // it is another one by the same name
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

// prune forgets proxies that have said nothing for long.
func (m *Meter) prune(now time.Duration) {
	for name, p := range m.proxies {
		if now-p.at > silent {
			delete(m.proxies, name)
		}
	}
}

// Measure is what there is to know at a time.
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

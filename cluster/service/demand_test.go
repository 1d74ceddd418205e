package service_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster/service"
)

// TestLatencies against a sorted list: a percentile is at most a bucket too high and never
// too low, and sums of two are those of all.
func TestLatencies(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfN(rapid.Int64Range(1, int64(60*time.Second)), 1, 200).Draw(t, "latencies")
		var a, b service.Latencies
		for i, v := range all {
			if i%2 == 0 {
				a.Add(time.Duration(v))
			} else {
				b.Add(time.Duration(v))
			}
		}
		a.AddAll(&b)
		slices.Sort(all)
		if a.N() != uint64(len(all)) {
			t.Fatalf("%d of %d", a.N(), len(all))
		}
		for _, p := range []int{50, 90, 95, 99} {
			want := time.Duration(all[int(math.Ceil(float64(len(all))*float64(p)/100))-1])
			if got := a.Percentile(p); got < want || float64(got) > max(1.0906*float64(want), 1.001e6) {
				t.Fatalf("p%d of %v is %v, want %v", p, all, got, want)
			}
		}
		if got := a.Within(70 * time.Second); math.Abs(got-float64(len(all))) > 1e-6 || a.Within(0) != 0 {
			t.Fatalf("%v of %d within", got, len(all))
		}
	})
	var l service.Latencies
	l.Add(math.MaxInt64)
	if l.Within(time.Hour) != 0 || l.Percentile(99) < time.Minute {
		t.Errorf("what never came was within: %v", l.Percentile(99))
	}
}

// TestParseSLO reads what String prints, and refuses the rest in words.
func TestParseSLO(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "p50=1ms", "p99=200ms", "p95=1.5s", "p90=1m0s"} {
		if o, err := service.ParseSLO(text); err != nil || o.String() != text {
			t.Errorf("%q: %v, %v", text, o, err)
		}
	}
	for _, text := range []string{"p98=1s", "99=1s", "p99", "p99=", "p99=2m", "p99=1us", "p99=-1s", "p99=1", "p99=1s,p50=1s", "p099=1s "} {
		if o, err := service.ParseSLO(text); err == nil {
			t.Errorf("%q is read as %v", text, o)
		}
	}
}

// told are reports of a proxy that counts requests of one latency.
type told struct{ service.Counted }

func (c *told) answer(n int, took time.Duration) *service.Counted {
	for range n {
		c.Requests++
		c.Latency.Add(took)
	}
	return &c.Counted
}

// TestMeter: rates and percentiles are those of half a minute, of all proxies that live.
func TestMeter(t *testing.T) {
	t.Parallel()
	slo := service.SLO{Percent: 95, Within: 100 * time.Millisecond}
	var m service.Meter
	var a, b told
	now := 100 * time.Hour
	if m.Measure(now).Known {
		t.Error("somebody is known before a report")
	}
	m.Report(slo, "a", a.answer(1000, time.Second), now) // of before; nobody knows when
	if v := m.Measure(now); !v.Known || v.Steady || v.Latency.N() != 0 || v.Asked != 0 {
		t.Errorf("after the first report: %+v", v)
	}
	for range 30 {
		now += 2 * time.Second
		m.Report(slo, "a", a.answer(20, 50*time.Millisecond), now)
		b.InFlight = 3
		m.Report(slo, "b", b.answer(10, 200*time.Millisecond), now)
	}
	v := m.Measure(now)
	if !v.Steady || v.Rate < 12 || v.Rate > 18 || v.InFlight != 3 || v.Idle != 0 || v.Latency.Percentile(95) < 200*time.Millisecond || v.Latency.Percentile(50) > 60*time.Millisecond {
		t.Errorf("%v a second, %d in flight, p95 %v, steady %v", v.Rate, v.InFlight, v.Latency.Percentile(95), v.Steady)
	}
	if part := v.Within / v.Asked; math.Abs(part-2.0/3) > 0.02 {
		t.Errorf("%.3f within, of %v", part, v.Asked)
	}
	if b.Counted = (service.Counted{}); !m.Report(slo, "b", &b.Counted, now) || m.Measure(now).Asked != v.Asked || m.Measure(now).Rate != v.Rate {
		t.Error("one that began anew counts below nothing")
	}
	now += 5 * time.Second // nobody asks
	m.Report(slo, "a", &a.Counted, now)
	if v = m.Measure(now); v.Idle != 5*time.Second || v.InFlight != 0 {
		t.Errorf("idle for %v", v.Idle)
	}
	a.Waiting = 1
	m.Report(slo, "a", &a.Counted, now)
	if v = m.Measure(now); v.Idle != 0 || v.Waiting != 1 {
		t.Errorf("one waits: %+v", v)
	}
	if v = m.Measure(now + 16*time.Second); v.Known || v.Waiting != 0 || v.Asked == 0 {
		t.Errorf("after they are gone: %+v", v)
	}
	for i := range 40 {
		if ok := m.Report(slo, string(rune('A'+i)), &service.Counted{}, now+time.Hour); ok != (i < 32) {
			t.Fatalf("proxy %d: %v", i, ok)
		}
	}
	if v = m.Measure(now + 3*time.Hour); v.Asked != 0 {
		t.Errorf("%v were asked in an hour of silence", v.Asked)
	}
}

// plant is a service whose replicas each serve so many requests a second within 40 ms, and
// no more within 400 ms, and the proxy before it.
type plant struct {
	s      service.Service
	c      service.Scaler
	m      service.Meter
	t      told
	each   float64
	have   int
	ready  int
	now    time.Duration
	most   int
	moves  int
	owed   float64
	silent bool
}

func newPlant(each float64, change func(*service.Service)) *plant {
	p := &plant{s: service.Service{Name: "web", Replicas: 1, Min: 1, Max: 8, SLO: service.SLO{Percent: 95, Within: 100 * time.Millisecond}}, each: each, have: 1, ready: 1, now: time.Hour}
	if change != nil {
		change(&p.s)
	}
	return p
}

// run lets so much time pass at a rate of requests.
func (p *plant) run(d time.Duration, rate float64) {
	for range int(d / time.Second) {
		p.now += time.Second
		took := 40 * time.Millisecond
		if rate > p.each*float64(p.ready) {
			took = 400 * time.Millisecond
		}
		n := 0
		if p.ready > 0 {
			p.owed += rate
			n = int(p.owed)
			p.owed -= float64(n)
			p.t.Waiting = 0
		} else if rate > 0 {
			p.t.Waiting = 1
		}
		if c := p.t.answer(n, took); !p.silent && int(p.now/time.Second)%2 == 0 {
			p.m.Report(p.s.SLO, "p", c, p.now)
		}
		want := p.c.Next(&p.s, p.have, &service.Seen{Ready: p.ready, Measured: p.m.Measure(p.now)}, p.now)
		if want != p.have {
			p.moves++
		}
		p.have, p.most = want, max(p.most, want)
		if int(p.now/time.Second)%5 == 0 || p.have < p.ready { // it takes a while until one is ready
			p.ready = p.have
		}
	}
}

// TestTheObjective: more replicas while it is missed, fewer when they have it easy, and no
// more of the number with which it was missed.
func TestTheObjective(t *testing.T) {
	t.Parallel()
	p := newPlant(100, nil)
	p.run(2*time.Minute, 50)
	if p.have != 1 {
		t.Errorf("%d replicas while one is enough", p.have)
	}
	p.run(3*time.Minute, 350)
	if p.have != 4 {
		t.Errorf("%d replicas at 350 a second, want 4", p.have)
	}
	p.run(30*time.Minute, 350)
	if p.have != 4 || p.moves > 4 {
		t.Errorf("after half an hour %d replicas and %d changes", p.have, p.moves)
	}
	p.run(time.Hour, 40)
	if p.have != 1 {
		t.Errorf("an hour later %d replicas", p.have)
	}
	p.moves = 0
	p.run(time.Minute, 350) // it knows by now how much one can take
	if p.have < 4 {
		t.Errorf("a minute after the second rise %d replicas", p.have)
	}
	was := p.have
	p.silent = true
	p.run(time.Hour, 350)
	if p.have != was {
		t.Errorf("without a proxy %d replicas, of %d", p.have, was)
	}
}

// TestOneFewerIsTried and not again at the rate at which it was too few.
func TestOneFewerIsTried(t *testing.T) {
	t.Parallel()
	p := newPlant(100, func(s *service.Service) { s.Min = 1 })
	p.have, p.ready = 4, 4
	p.run(4*time.Hour, 250) // three are enough
	if p.have != 3 || p.moves > 4 {
		t.Errorf("%d replicas after %d changes, want 3", p.have, p.moves)
	}
}

// TestRates: replicas by requests a second that the proxy measures.
func TestRates(t *testing.T) {
	t.Parallel()
	p := newPlant(1e6, func(s *service.Service) { s.SLO, s.Scale = service.SLO{}, service.Scale{On: service.Rate, Target: 50} })
	p.run(5*time.Minute, 220)
	if p.have != 5 {
		t.Errorf("%d replicas at 220 a second of 50 each", p.have)
	}
	p.run(20*time.Minute, 60)
	if p.have != 2 {
		t.Errorf("%d replicas at 60 a second", p.have)
	}
}

// TestNobodyAsks: none after a time without a request, one again at the first that waits; and
// nothing of the kind while no proxy says so.
func TestNobodyAsks(t *testing.T) {
	t.Parallel()
	p := newPlant(1e6, func(s *service.Service) { s.Min, s.SLO, s.IdleAfter = 0, service.SLO{}, 2*time.Minute })
	p.have, p.ready = 0, 0
	p.run(time.Minute, 0)
	if p.have != 0 {
		t.Errorf("%d replicas and nobody asks", p.have)
	}
	p.run(4*time.Second, 1)
	if p.have != 1 {
		t.Fatalf("%d replicas after a request", p.have)
	}
	p.run(10*time.Minute, 0.1)
	if p.have != 1 {
		t.Error("none while somebody asks now and then")
	}
	p.run(100*time.Second, 0)
	if p.have != 1 {
		t.Error("none before two minutes")
	}
	p.run(25*time.Second, 0)
	if p.have != 0 {
		t.Error("one after two minutes")
	}
	p.have, p.ready = 2, 2 // by hand
	p.run(time.Minute, 0)
	if p.have != 2 {
		t.Errorf("%d a minute after there were to be two", p.have)
	}
	p.silent = true
	p.run(time.Hour, 0)
	if p.have != 2 {
		t.Errorf("%d when no proxy says that nobody asks", p.have)
	}
}

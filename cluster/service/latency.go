package service

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// SLO is a service's objective: so many in a hundred requests are answered within a time.
// The zero value is none.
type SLO struct {
	Percent int // 50, 90, 95 or 99
	Within  time.Duration
}

const (
	minWithin, maxWithin = time.Millisecond, time.Minute
	// LatencyKey is the number in a replica's progress that stands for the percentile of a
	// service with an objective while no proxy measures it, in milliseconds.
	LatencyKey = "latency_ms"
)

// String is the form that ParseSLO reads, "" for none.
func (o SLO) String() string {
	if o == (SLO{}) {
		return ""
	}
	return fmt.Sprintf("p%d=%s", o.Percent, o.Within)
}

// ParseSLO reads an objective such as p99=200ms, "" for none.
func ParseSLO(text string) (SLO, error) {
	if text == "" {
		return SLO{}, nil
	}
	p, within, ok := strings.Cut(text, "=")
	percent, err := strconv.Atoi(strings.TrimPrefix(p, "p"))
	d, derr := time.ParseDuration(within)
	if o := (SLO{percent, d}); ok && err == nil && derr == nil && strings.HasPrefix(p, "p") && o.check() == nil {
		return o, nil
	}
	return SLO{}, fmt.Errorf("%q: want p50, p90, p95 or p99, and a time from %s to %s, such as p99=200ms", short(text), minWithin, maxWithin)
}

func (o SLO) check() error {
	switch o.Percent {
	case 50, 90, 95, 99:
	default:
		return fmt.Errorf("slo: p%d is none of p50, p90, p95 and p99", o.Percent)
	}
	if o.Within < minWithin || o.Within > maxWithin || o.Within%time.Microsecond != 0 {
		return errors.New("slo: the time is outside " + minWithin.String() + " to " + maxWithin.String() + ", in whole microseconds")
	}
	return nil
}

// enough is of how many requests the percentile is worth something.
func (o SLO) enough() uint64 { return max(10, uint64(50/(100-o.Percent))) }

// Latencies counts requests by how long they took: bucket i holds those up to 2^(i/8) ms, of
// which each is 9 % above the last, and the last one all that took longer than 65 s. Two are
// added bucket by bucket.
type Latencies [latencyBuckets + 1]uint64

const latencyBuckets = 129

// latencyBound is the upper bound of a bucket.
func latencyBound(i int) time.Duration {
	return time.Duration(float64(time.Millisecond) * math.Exp2(float64(i)/8))
}

// Add counts a request that took d.
func (l *Latencies) Add(d time.Duration) {
	i := 0
	if d > time.Millisecond {
		i = int(math.Ceil(8 * math.Log2(float64(d)/float64(time.Millisecond))))
	}
	l[min(i, latencyBuckets)]++
}

// AddAll adds those of another.
func (l *Latencies) AddAll(o *Latencies) {
	for i, n := range o {
		l[i] += n
	}
}

// N is how many there are.
func (l *Latencies) N() (n uint64) {
	for _, k := range l {
		n += k
	}
	return n
}

// Percentile is the time within which so many in a hundred were, the upper bound of its
// bucket; 0 when there are none.
func (l *Latencies) Percentile(percent int) time.Duration {
	need, sum := float64(l.N())*float64(percent)/100, uint64(0)
	for i, n := range l {
		if sum += n; n > 0 && float64(sum) >= need {
			return latencyBound(i)
		}
	}
	return 0
}

// Within is how many took no longer than d, by the buckets: those of its own in part.
func (l *Latencies) Within(d time.Duration) float64 {
	sum := 0.0
	for i, n := range l[:latencyBuckets] {
		low, high := time.Duration(0), latencyBound(i)
		if i > 0 {
			low = latencyBound(i - 1)
		}
		switch {
		case high <= d:
			sum += float64(n)
		case low < d:
			sum += float64(n) * float64(d-low) / float64(high-low)
		}
	}
	return sum
}

package service

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// SLO is a service's objective: a percentage of requests is answered within a time.
// The zero value is none.
type SLO struct {
	Percent int // 50, 90, 95 or 99
	Within  time.Duration
}

const (
	minWithin, maxWithin = time.Millisecond, time.Minute
	// LatencyKey is the key in a replica's progress for the percentile of a service
	// with an objective, in milliseconds, used while no proxy measures it.
	LatencyKey = "latency_ms"
)

// String returns the form that ParseSLO parses, "" for none.
func (o SLO) String() string {
	if o == (SLO{}) {
		return ""
	}
	return fmt.Sprintf("p%d=%s", o.Percent, o.Within)
}

// ParseSLO parses an objective such as p99=200ms, "" for none.
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

// enough returns how many requests make the percentile meaningful.
func (o SLO) enough() uint64 { return max(10, uint64(50/(100-o.Percent))) }

// Latencies is a histogram of request times: bucket i holds those up to 2^(i/8) ms,
// each bound being 9 % above the last, and the last bucket all above 65 s. Two are
// added bucket by bucket.
type Latencies [latencyBuckets + 1]uint64

const latencyBuckets = 129

// latencyBound returns the upper bound of a bucket.
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

// AddAll adds the counts of o.
func (l *Latencies) AddAll(o *Latencies) {
	for i, n := range o {
		l[i] += n
	}
}

// N returns the number of requests.
func (l *Latencies) N() (n uint64) {
	for _, k := range l {
		n += k
	}
	return n
}

// Percentile returns the time within which percent of the requests were answered,
// as the upper bound of its bucket; 0 if there are none.
func (l *Latencies) Percentile(percent int) time.Duration {
	need, sum := float64(l.N())*float64(percent)/100, uint64(0)
	for i, n := range l {
		if sum += n; n > 0 && float64(sum) >= need {
			return latencyBound(i)
		}
	}
	return 0
}

// Within estimates how many took no longer than d, interpolating within d's own
// bucket.
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

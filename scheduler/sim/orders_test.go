package sim_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/scheduler/policies"
	"github.com/berth-scheduler/berth/scheduler/sim"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

// TestPublishedOrdersByHand: three jobs come while one of ten seconds has the only card.
// Who has it when is worked out from the definition of each order.
func TestPublishedOrdersByHand(t *testing.T) {
	t.Parallel()
	job := func(id string, comes, lasts int, user string, due int) workload.Job {
		return workload.Job{ID: id, Submit: seconds(comes), Duration: seconds(lasts), GPUs: 1, User: user, Deadline: seconds(due)}
	}
	jobs := []workload.Job{job("a", 0, 10, "u", 0), job("b", 1, 8, "v", 40), job("c", 2, 3, "u", 50), job("d", 3, 5, "v", 20)}
	for _, c := range []struct{ order, want string }{
		{"fifo", "a 0-10, b 10-18, c 18-21, d 21-26"},
		{"size", "a 0-10, b 10-18, c 18-21, d 21-26"}, // all take one card
		{"sjf", "a 0-10, c 10-13, d 13-18, b 18-26"},
		{"qssf", "a 0-10, c 10-13, d 13-18, b 18-26"}, // GPU time
		{"las", "a 0-10, b 10-18, c 18-21, d 21-26"},  // none had any service yet
		{"edf", "a 0-10, d 10-15, b 15-23, c 23-26"},
		// (waited + left)/alone at 10 s: b 17/8, c 11/3, d 12/5; at 13 s: b 20/8, d 15/5.
		{"themis", "a 0-10, c 10-13, d 13-18, b 18-26"},
	} {
		d := &diary{}
		w := &workload.Workload{Name: c.order, Jobs: slices.Clone(jobs)}
		simulate(t, w, workload.Homogeneous(1, 1, "T4", 16000), sim.Options{Planner: policy(t, "slot+"+c.order, policies.Options{}), Observe: d})
		var got []string
		for _, a := range d.attempts {
			got = append(got, fmt.Sprintf("%s %.0f-%.0f", a.job, a.from.Seconds(), a.to.Seconds()))
		}
		if s := strings.Join(got, ", "); s != c.want {
			t.Errorf("%s: %s, want %s", c.order, s, c.want)
		}
	}
}

// TestOrdersOnlyOrder: on one card that is never shared, whatever the order, the card
// is never idle while somebody waits: all orders end the last job at the same instant,
// when a count of arrivals and work says, and none has a better mean than the shortest
// first would if all came at once.
func TestOrdersOnlyOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		jobs := drawSeconds(t, 10)
		clear := 0 // when the work so far is done
		for _, j := range jobs {
			clear = max(clear, j.comes) + j.lasts
		}
		for _, order := range []string{"fifo", "size", "sjf", "qssf", "srsf", "srtf", "las", "fairshare", "themis", "edf"} {
			d := &diary{}
			simulate(t, workloadOf(jobs), workload.Homogeneous(1, 1, "T4", 16000), sim.Options{Planner: policy(t, "slot+"+order, policies.Options{}), Observe: d})
			last, busy := time.Duration(0), time.Duration(0)
			for _, a := range d.attempts {
				last, busy = max(last, a.to), busy+a.to-a.from
			}
			sum := time.Duration(0)
			for _, j := range jobs {
				sum += seconds(j.lasts)
			}
			if last != seconds(clear) || busy != sum || len(d.attempts) != len(jobs) {
				t.Fatalf("%s: the last of %d ends after %s, and %s of %s was done; want %d s", order, len(d.attempts), last, busy, sum, clear)
			}
		}
	})
}

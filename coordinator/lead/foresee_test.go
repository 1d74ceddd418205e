package lead

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/power"
)

// past is a history of jobs that held nodes.
type past []*cluster.Job

// held adds a job that held nodes from and until so long before now.
func (p *past) held(from, to time.Duration, nodes ...cluster.NodeID) {
	now := cluster.TimeOf(time.Now())
	a := cluster.Attempt{No: 1, State: cluster.JobCompleted, Berth: cluster.Berth{Node: nodes[0]}, Placed: now.Add(-from), Ended: now.Add(-to)}
	if len(nodes) > 1 {
		a.Gang = &cluster.Gang{Parts: make([]cluster.Part, len(nodes))}
		for _, n := range nodes[1:] {
			a.Gang.Rest = append(a.Gang.Rest, cluster.Berth{Node: n})
		}
	}
	*p = append(*p, &cluster.Job{ID: cluster.JobID(1000 + len(*p)), State: cluster.JobCompleted, Spec: alone(len(nodes)), Ended: now.Add(-to), Attempts: []cluster.Attempt{a}})
}

func (p *past) ended(_ context.Context, from, before cluster.Time, most int, yield func(*cluster.Job) error) error {
	for _, j := range *p {
		if j.Ended < from || j.Ended >= before || most < 1 {
			return fmt.Errorf("asked for what ended from %d until %d, at most %d, and has %d", from, before, most, j.Ended)
		}
		if err := yield(j); err != nil {
			return err
		}
	}
	return nil
}

// foreseeing is a lab of four nodes that are powered down after five minutes but for those that
// are forecast to be needed within an hour.
func foreseeing(t *testing.T, p *past, change func(*PowerSaving)) (*lab, *plug) {
	return saving(t, 4, func(s *PowerSaving) {
		s.Idle, s.Ended = 5*time.Minute, p.ended
		s.Forecast = &power.Forecast{Every: 10 * time.Minute, Horizon: time.Hour, Learn: time.Hour}
		if change != nil {
			change(s)
		}
	})
}

// TestNodesStayUpByForecast: as many as were needed before this leader came, until the next
// forecast knows better; and it is said why. The next leader knows the same.
func TestNodesStayUpByForecast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var p past
		p.held(30*time.Hour, time.Minute, "n1", "n2")
		p.held(2*time.Hour, 90*time.Minute, "n1", "gone")
		l, plug := foreseeing(t, &p, nil)
		rest(time.Minute)
		since, why, idle := l.l.KeptUp("n3")
		if want := "of 4 nodes with 2xA100, 4 are up and 0 needed; 2 stay up: at most 2 are forecast to be needed within 1h0m0s, and 0 are to spare"; why != want || !idle || since > cluster.TimeOf(plug.began.Add(5*time.Second)) {
			t.Errorf("n3 is up since %v, %t: %q, want %q", since, idle, why, want)
		}
		rest(7 * time.Minute)
		if got := plug.told(); got != "5m0s down n1; 5m0s down n2" {
			t.Fatal(got)
		}
		if got := l.power("n1").Why; got != "not needed: of 4 nodes with 2xA100, 4 are up and 0 needed; 2 stay up: at most 2 are forecast to be needed within 1h0m0s, and 0 are to spare" {
			t.Errorf("n1 is down: %s", got)
		}
		if _, _, idle := l.l.KeptUp("n1"); idle {
			t.Error("n1 is kept up and off")
		}
		rest(5 * time.Minute)
		if got := plug.told(); got != "10m0s down n3; 10m0s down n4" {
			t.Fatal(got)
		}
	})
}

// TestNodesComeUpAhead of what was needed a day before, though nobody waits, and go again when
// nobody comes.
func TestNodesComeUpAhead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var p past
		p.held(31*time.Hour, 30*time.Hour, "n4")
		p.held(23*time.Hour, 22*time.Hour, "n3", "n4")
		l, plug := foreseeing(t, &p, nil)
		rest(15 * time.Minute)
		if got := plug.told(); got != "10m0s up n1; 10m0s up n2; 5m0s down n1; 5m0s down n2; 5m0s down n3; 5m0s down n4" {
			t.Fatal(got)
		}
		h, _ := l.f.Node("n1")
		if text := fmt.Sprint(h.History); !strings.Contains(text, "powered up ahead: of 4 nodes with 2xA100, 0 are up") {
			t.Errorf("what befell n1: %s", text)
		}
		rest(40 * time.Minute)
		if got := plug.told(); got != "" {
			t.Fatal(got)
		}
		rest(40 * time.Minute)
		if got := plug.told(); got != "1h10m0s down n1; 1h10m0s down n2" {
			t.Fatal(got)
		}
	})
}

// TestTooLittleIsKnown: without a history, or with one that cannot be read, idle nodes go as
// ever, and it is forecast once enough was seen.
func TestTooLittleIsKnown(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*PowerSaving){
		"nobody keeps one": func(s *PowerSaving) { s.Ended = nil },
		"it cannot be read": func(s *PowerSaving) {
			s.Ended = func(context.Context, cluster.Time, cluster.Time, int, func(*cluster.Job) error) error {
				return errors.New("damaged")
			}
		},
		"it is empty": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var p past
				l, plug := foreseeing(t, &p, change)
				first := l.submit(alone(1))[0]
				rest(time.Minute)
				if _, why, _ := l.l.KeptUp("n2"); why != "of 4 nodes with 2xA100, 4 are up and 1 needed; too little is known of demand for a forecast, and idle ones are powered down after 5m0s" {
					t.Error(why)
				}
				rest(9 * time.Minute)
				if got := plug.told(); got != "5m0s down n2; 5m0s down n3; 5m0s down n4" {
					t.Fatal(got)
				}
				rest(55 * time.Minute)
				second := l.submit(alone(1))[0] // and now two are needed
				rest(time.Minute)
				if got := plug.told(); got != "1h5m0s up n2" {
					t.Fatal(got)
				}
				for _, id := range []cluster.JobID{first, second} {
					l.say(id, cluster.JobRunning, nil)
					l.say(id, cluster.JobCompleted, nil)
				}
				rest(4 * time.Minute)
				if got := plug.told(); got != "" {
					t.Fatal(got) // they were needed in this slot
				}
			})
		})
	}
}

// TestKindsThatAreNew have the history read again: after nodes went into a partition their
// demand is known as before.
func TestKindsThatAreNew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var p past
		p.held(40*time.Hour, 30*time.Hour, "n4")
		p.held(30*time.Hour, time.Minute, "n1", "n2")
		l, _ := foreseeing(t, &p, nil)
		rest(90 * time.Second)
		hosts, _ := cluster.ParseHostList("n[1-4]")
		l.partition(&cluster.Partition{Name: "a", Nodes: hosts})
		rest(90 * time.Second)
		if _, why, _ := l.l.KeptUp("n3"); !strings.HasPrefix(why, "of 4 nodes with 2xA100 in a, 4 are up and 0 needed; 2 stay up") {
			t.Error(why)
		}
	})
}

// TestNothingGoesWhileItIsRead what was needed: a history that takes long to read keeps all up.
func TestNothingGoesWhileItIsRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var p past
		p.held(30*time.Hour, 2*time.Hour, "n1", "n2")
		_, plug := foreseeing(t, &p, func(s *PowerSaving) {
			read := s.Ended
			s.Ended = func(ctx context.Context, from, before cluster.Time, most int, yield func(*cluster.Job) error) error {
				time.Sleep(8 * time.Minute)
				return read(ctx, from, before, most, yield)
			}
		})
		rest(7*time.Minute + 50*time.Second)
		if got := plug.told(); got != "" {
			t.Fatal(got)
		}
		rest(20 * time.Second)
		if got := plug.told(); got != "8m0s down n1; 8m0s down n2; 8m0s down n3; 8m0s down n4" {
			t.Fatal(got)
		}
	})
}

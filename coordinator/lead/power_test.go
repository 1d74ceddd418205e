package lead

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
	"github.com/berth-scheduler/berth/scheduler/power"
)

// plug is the programs of a lab: it does to its nodes what they would do, unless told
// otherwise, and notes what was asked of it.
type plug struct {
	l     *lab
	began time.Time

	mu    sync.Mutex
	calls []string
	stays map[cluster.NodeID]bool  // they do not follow
	fails map[cluster.NodeID]error // the program does not work
}

func (p *plug) call(what string, id cluster.NodeID) (stays bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, fmt.Sprintf("%s %s %s", time.Since(p.began).Truncate(10*time.Second), what, id))
	return p.stays[id], p.fails[id]
}

// behave says how a node and the program for it behave from now on: a node that stays
// does not follow.
func (p *plug) behave(id cluster.NodeID, stays bool, fails error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stays[id], p.fails[id] = stays, fails
}

// told is what was asked since it was asked last, in order.
func (p *plug) told() string {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	slices.Sort(p.calls) // programs run at once
	out := strings.Join(p.calls, "; ")
	p.calls = nil
	return out
}

func (p *plug) suspend(_ context.Context, id cluster.NodeID) error {
	stays, err := p.call("down", id)
	if !stays && err == nil {
		p.l.silent(id)
	}
	return err
}

func (p *plug) resume(_ context.Context, id cluster.NodeID) error {
	stays, err := p.call("up", id)
	if !stays && err == nil {
		p.l.machine(id, 2, nil)
	}
	return err
}

// silent has a node not be heard any more.
func (l *lab) silent(id cluster.NodeID) {
	l.do(&logv1.Command{Kind: &logv1.Command_SetNodeState{SetNodeState: &logv1.SetNodeState{Node: string(id), State: uint32(cluster.NodeUnreachable), BootId: "b"}}})
}

func (l *lab) power(id cluster.NodeID) cluster.Power {
	l.t.Helper()
	n, ok := l.f.Node(id)
	if !ok {
		l.t.Fatalf("node %s is gone", id)
	}
	return n.Power
}

// saving is a lab with nodes of two cards that are powered down after ten minutes, a
// planner that runs, and its programs.
func saving(t *testing.T, nodes int, change func(*PowerSaving)) (*lab, *plug) {
	p := &plug{stays: map[cluster.NodeID]bool{}, fails: map[cluster.NodeID]error{}}
	s := &PowerSaving{
		Rule:           power.Rule{Idle: 10 * time.Minute, ResumeTimeout: 5 * time.Minute, AtOnce: 10},
		SuspendTimeout: 2 * time.Minute, Suspend: p.suspend, Resume: p.resume,
	}
	if change != nil {
		change(s)
	}
	p.l = newLab(t, Config{Power: s}, planBy(nil))
	for i := range nodes {
		p.l.machine(cluster.NodeID(fmt.Sprint("n", i+1)), 2, nil)
	}
	p.l.follow()
	p.l.loop(p.l.l.plan.run)
	p.began = time.Now()
	p.l.loop(p.l.l.savePower)
	return p.l, p
}

func rest(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// alone is a job that wants both cards of nodes for itself.
func alone(nodes int) *cluster.Spec {
	return job(2, func(s *cluster.Spec) { s.Exclusive, s.Nodes = true, nodes })
}

// TestIdleNodesSleep: they are powered down when they were idle for long enough, and
// those, and only those, powered up that a job needs.
func TestIdleNodesSleep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, p := saving(t, 3, func(s *PowerSaving) { s.KeepIdle = 1 })
		first := l.submit(alone(1))[0]
		rest(20 * time.Minute)
		if got := p.told(); got != "10m0s down n2" { // one stays up
			t.Fatal(got)
		}
		if s := l.power("n2").State; s != cluster.PoweredDown {
			t.Fatalf("n2 is %s", s)
		}
		second := l.submit(alone(1))[0]
		rest(10 * time.Second)
		if a := l.job(second).Live(); a == nil || a.Berth.Node != "n3" {
			t.Fatalf("job %d does not run on the node that stayed up: %+v", second, a)
		}
		if got := p.told(); got != "" {
			t.Fatal(got)
		}
		third := l.submit(alone(1))[0]
		rest(10 * time.Second)
		if got := p.told(); got != "20m10s up n2" {
			t.Fatal(got)
		}
		for _, id := range []cluster.JobID{first, second, third} {
			if l.job(id).Live() == nil {
				t.Errorf("job %d does not run", id)
			}
		}
	})
}

// TestGangWakesAllOfItsNodes, those that are up meanwhile are not powered down.
func TestGangWakesAllOfItsNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, p := saving(t, 3, nil)
		rest(11 * time.Minute)
		if got := p.told(); got != "10m0s down n1; 10m0s down n2; 10m0s down n3" {
			t.Fatal(got)
		}
		p.behave("n3", true, nil) // it takes its time
		id := l.submit(alone(3))[0]
		rest(5 * time.Second)
		if got := p.told(); got != "11m0s up n1; 11m0s up n2; 11m0s up n3" {
			t.Fatal(got)
		}
		if d := cmp.Diff([]cluster.NodeID{"n3"}, l.l.WaitsFor(id)); d != "" {
			t.Error(d)
		}
		rest(4 * time.Minute)
		l.machine("n3", 2, nil)
		rest(5 * time.Second)
		if a := l.job(id).Live(); a == nil || a.Nodes() != 3 {
			t.Fatalf("it does not run: %+v", a)
		}
		if l.l.WaitsFor(id) != nil {
			t.Error("it waits for nodes and runs")
		}
	})
}

// TestNodesThatDoNotFollow: who does not come back is left to an administrator and the
// next one is woken; who does not go off is used, and tried again after a while.
func TestNodesThatDoNotFollow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, p := saving(t, 2, nil)
		p.behave("n1", false, errors.New("no route"))
		p.behave("n2", true, nil)
		rest(15 * time.Minute)
		if got := p.told(); got != "10m0s down n1; 10m0s down n2" {
			t.Fatal(got)
		}
		for id, why := range map[cluster.NodeID]string{"n1": "could not be powered down: no route", "n2": "was still there 2m0s after it was powered down"} {
			if got := l.power(id); got.State != cluster.PowerUp || got.Why != why || got.NotBefore < cluster.TimeOf(p.began.Add(20*time.Minute)) {
				t.Errorf("%s: %+v", id, got)
			}
		}
		p.behave("n1", false, nil)
		p.behave("n2", false, nil)
		rest(10 * time.Minute)
		if got := p.told(); got != "20m0s down n1; 22m0s down n2" {
			t.Fatal(got)
		}
		p.behave("n1", true, nil)
		p.behave("n2", false, errors.New("exit status 1"))
		l.submit(alone(1))
		rest(10 * time.Minute)
		if got := p.told(); got != "25m0s up n1; 30m0s up n2" {
			t.Fatal(got)
		}
		for id, why := range map[cluster.NodeID]string{"n1": "did not come back within 5m0s after it was powered up", "n2": "could not be powered up: exit status 1"} {
			if got := l.power(id); got.State != cluster.PowerFailed || got.Why != why {
				t.Errorf("%s: %+v", id, got)
			}
		}
		p.behave("n1", false, nil)
		l.do(&logv1.Command{Kind: &logv1.Command_DrainNode{DrainNode: &logv1.DrainNode{Node: "n1"}}}) // resumed
		rest(5 * time.Second)
		if got := p.told(); got != "35m0s up n1" {
			t.Fatal(got)
		}
	})
}

// TestReservedNodesAreUpInTime, and stay so while it is open.
func TestReservedNodesAreUpInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, p := saving(t, 2, nil)
		rest(15 * time.Minute)
		p.told()
		hosts, _ := cluster.ParseHostList("n2")
		l.do(&logv1.Command{Kind: &logv1.Command_SetReservation{SetReservation: &logv1.SetReservation{Reservation: conv.ReservationToLog(&dispatch.Reservation{
			Name: "r", Start: cluster.TimeOf(time.Now().Add(30 * time.Minute)), Duration: time.Hour, Nodes: hosts, Users: []string{"ada"},
		})}}})
		rest(80 * time.Minute)
		if got := p.told(); got != "40m0s up n2" {
			t.Fatal(got)
		}
		rest(time.Hour)
		if got := p.told(); got != "1h55m0s down n2" {
			t.Fatal(got)
		}
	})
}

// TestNextLeaderGoesOn with what the one before it had begun, and what an administrator
// powered down stays down.
func TestNextLeaderGoesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, p := saving(t, 1, func(s *PowerSaving) { s.Exclude, _ = cluster.ParseHostList("n[1-9]") })
		p.behave("n1", true, nil)
		order := func(to cluster.PowerState) {
			t.Helper()
			l.do(&logv1.Command{Kind: &logv1.Command_PowerNode{PowerNode: &logv1.PowerNode{Node: "n1", To: uint32(to), Asked: true, By: 1}}})
			rest(2 * time.Second)
		}
		order(cluster.PoweringDown)
		l.loop(l.l.savePower) // of the next term
		rest(2 * time.Second)
		if got := p.told(); got != "0s down n1; 0s down n1" {
			t.Fatal(got)
		}
		l.silent("n1")
		l.submit(alone(1))
		rest(time.Hour)
		if got := p.told(); got != "" || l.power("n1").State != cluster.PoweredDown {
			t.Fatalf("%s: %+v", got, l.power("n1"))
		}
		order(cluster.PoweringUp)
		if got := p.told(); !strings.HasSuffix(got, "up n1") {
			t.Fatal(got)
		}
	})
}

// TestPacedPower: as many nodes as may go down in a minute do.
func TestPacedPower(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, p := saving(t, 5, func(s *PowerSaving) { s.AtOnce = 2 })
		rest(13 * time.Minute)
		if got := p.told(); got != "10m0s down n1; 10m0s down n2; 11m0s down n3; 11m0s down n4; 12m0s down n5" {
			t.Fatal(got)
		}
		for range 5 {
			l.submit(alone(1))
		}
		rest(3 * time.Minute)
		if got := p.told(); strings.Count(got, "up") != 5 || !strings.Contains(got, "13m0s up n1; 13m0s up n2; 14m") {
			t.Fatal(got)
		}
	})
}

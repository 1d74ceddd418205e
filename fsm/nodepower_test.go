package fsm

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// power is where a node stands.
func (m *machine) power(id cluster.NodeID) cluster.Power {
	m.t.Helper()
	n, ok := m.f.Node(id)
	if !ok {
		m.t.Fatalf("node %s is gone", id)
	}
	return n.Power
}

// TestPowerCycle: a node goes down and comes up again by what it says itself, and all of
// that is there after a restore.
func TestPowerCycle(t *testing.T) {
	t.Parallel()
	m := lab(t)
	waits := m.submit(spec(1))
	steps := []struct {
		name  string
		cmd   *logv1.Command
		want  cluster.PowerState
		state cluster.NodeState
	}{
		{"told to go off", powerCmd("n1", cluster.PoweringDown, false, nil), cluster.PoweringDown, cluster.NodeReady},
		{"another card is sick on the way", registerCmd(node("n1", "boot1", 1)), cluster.PoweringDown, cluster.NodeReady},
		{"silent", silentCmd("n1", "boot1"), cluster.PoweredDown, cluster.NodeUnreachable},
		{"told to come on", powerCmd("n1", cluster.PoweringUp, false, nil), cluster.PoweringUp, cluster.NodeUnreachable},
		{"registers", registerCmd(node("n1", "boot2", 2)), cluster.PowerUp, cluster.NodeReady},
	}
	for _, s := range steps {
		m.must(s.cmd)
		n, _ := m.f.Node("n1")
		if n.Power.State != s.want || n.State != s.state || n.Schedulable() != (s.want == cluster.PowerUp) {
			t.Fatalf("%s: power %s, state %s, schedulable %t", s.name, n.Power.State, n.State, n.Schedulable())
		}
		if s.want != cluster.PowerUp {
			p := dispatch.Plan{Starts: []dispatch.Start{m.startOf(waits, share1("n1-g0", 8000, 300))}}
			if r := m.must(planCmd(p)); len(r.Plan.Started) > 0 {
				t.Fatalf("%s: a job starts on it", s.name)
			}
		}
		m.sameRestored()
	}
	m.start(waits, share1("n1-g0", 8000, 300))
	n, _ := m.f.Node("n1")
	var told []string
	for _, e := range n.History {
		if e.GPU == "" {
			told = append(told, strings.TrimSpace(e.Kind+" "+e.Detail))
		}
	}
	want := []string{"registered", "power powering-down", "power powered-down", "power powering-up", "booted"}
	if d := cmp.Diff(want, told); d != "" {
		t.Error(d)
	}
}

// TestPowerFailures: who does not go off is used again, after a pause; who does not come
// on is left to an administrator.
func TestPowerFailures(t *testing.T) {
	t.Parallel()
	m := lab(t)
	later := m.now.Add(time.Hour)
	m.must(powerCmd("n1", cluster.PoweringDown, false, nil))
	m.must(powerCmd("n1", cluster.PowerUp, false, func(c *logv1.PowerNode) { c.Why, c.NotBeforeUs = "exit status 1", int64(later) }))
	if p := m.power("n1"); p != (cluster.Power{Why: "exit status 1", NotBefore: later}) {
		t.Fatalf("%+v", p)
	}
	m.refused(cluster.CodeConflict, powerCmd("n1", cluster.PoweringDown, false, nil))
	m.must(powerCmd("n1", cluster.PoweringDown, true, nil)) // who asks for it need not wait
	m.must(silentCmd("n1", "boot1"))
	if p := m.power("n1"); !p.Asked || p.By != 3 || p.State != cluster.PoweredDown {
		t.Fatalf("%+v", p)
	}
	m.refused(cluster.CodeConflict, powerCmd("n1", cluster.PoweringUp, false, nil))
	m.refused(cluster.CodeConflict, fenceCmd("n1"))
	m.must(powerCmd("n1", cluster.PoweringUp, true, nil))
	m.refused(cluster.CodeConflict, powerCmd("n1", cluster.PoweringDown, true, nil))
	m.must(powerCmd("n1", cluster.PowerFailed, false, func(c *logv1.PowerNode) { c.Why = "did not come back" }))
	e := m.refused(cluster.CodeConflict, powerCmd("n1", cluster.PoweringUp, false, nil))
	if !strings.Contains(e.Msg, "did not come back; resume it") {
		t.Error(e.Msg)
	}
	m.must(drainCmd("n1", false))
	if p := m.power("n1"); p.State != cluster.PoweredDown || p.Asked || p.Why != "" {
		t.Fatalf("resumed: %+v", p)
	}
	m.must(powerCmd("n1", cluster.PoweringUp, false, nil))
	m.must(powerCmd("n1", cluster.PowerFailed, false, nil))
	m.must(registerCmd(node("n1", "boot1", 2)))
	if p := m.power("n1"); p != (cluster.Power{}) {
		t.Fatalf("it came by itself: %+v", p)
	}
	m.must(powerCmd("n1", cluster.PowerFailed, false, nil)) // too late
	m.must(powerCmd("n1", cluster.PowerUp, false, func(c *logv1.PowerNode) { c.Why = "late" }))
	if p := m.power("n1"); p != (cluster.Power{}) {
		t.Fatalf("what came too late counts: %+v", p)
	}
}

// TestPowerByHand: what an administrator powers down stays down, whatever it was before.
func TestPowerByHand(t *testing.T) {
	t.Parallel()
	for name, before := range map[string][]*logv1.Command{
		"up":           nil,
		"going down":   {powerCmd("n1", cluster.PoweringDown, false, nil)},
		"down":         {powerCmd("n1", cluster.PoweringDown, false, nil), silentCmd("n1", "boot1")},
		"did not come": {powerCmd("n1", cluster.PoweringDown, false, nil), silentCmd("n1", "boot1"), powerCmd("n1", cluster.PoweringUp, false, nil), powerCmd("n1", cluster.PowerFailed, false, nil)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := lab(t)
			for _, c := range before {
				m.must(c)
			}
			m.must(powerCmd("n1", cluster.PoweringDown, true, func(c *logv1.PowerNode) { c.Why = "move it" }))
			m.must(silentCmd("n1", "boot1"))
			n, _ := m.f.Node("n1")
			if p := n.Power; p.State != cluster.PoweredDown || !p.Asked || p.Why != "move it" || n.Wakeable() {
				t.Fatalf("%+v", p)
			}
			m.must(powerCmd("n1", cluster.PoweringUp, true, nil))
			if n, _ := m.f.Node("n1"); n.Power.State != cluster.PoweringUp || n.Power.Asked || !n.Wakeable() {
				t.Fatalf("%+v", n.Power)
			}
		})
	}
}

func TestPowerRefuses(t *testing.T) {
	t.Parallel()
	m := lab(t)
	running(m, spec(1), 8000)
	queued := m.submit(spec(1))
	m.enqueue(queued, "n2-g0", 1)
	m.refused(cluster.CodeNotFound, powerCmd("n9", cluster.PoweringDown, true, nil))
	m.refused(cluster.CodeInvalid, powerCmd("n1", cluster.PoweredDown, false, nil))
	m.refused(cluster.CodeInvalid, powerCmd("n1", 0, false, func(c *logv1.PowerNode) { c.To = 256 + uint32(cluster.PoweringDown) }))
	m.refused(cluster.CodeConflict, powerCmd("n1", cluster.PoweringDown, true, nil))
	m.refused(cluster.CodeConflict, powerCmd("n1", cluster.PoweringDown, false, nil))
	m.refused(cluster.CodeConflict, powerCmd("n2", cluster.PoweringDown, false, nil))
	m.must(powerCmd("n2", cluster.PoweringDown, true, nil)) // who waits there waits elsewhere
	if j := m.job(queued); j.State != cluster.JobPending {
		t.Errorf("job in a queue of a node that goes off is %s", j.State)
	}
	m.refused(cluster.CodeConflict, powerCmd("n2", cluster.PoweringUp, true, nil))
	m.must(registerCmd(node("n3", "boot1", 1)))
	m.must(silentCmd("n3", "boot1"))
	m.refused(cluster.CodeConflict, powerCmd("n3", cluster.PoweringDown, true, nil))
	m.refused(cluster.CodeConflict, powerCmd("n3", cluster.PoweringUp, true, nil))
}

// TestPowerNeedsVersion: no coordinator is sent what it does not read.
func TestPowerNeedsVersion(t *testing.T) {
	t.Parallel()
	if v := NeedsVersion(powerCmd("n1", cluster.PoweringDown, false, nil)); v != 15 {
		t.Errorf("needs version %d", v)
	}
}

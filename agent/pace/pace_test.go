package pace

import (
	"testing"
	"time"

	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// working is a heartbeat of a node on which a job runs, after n intervals of which each
// adds to its sums.
func working(n int64, change func(*nodev1.Heartbeat)) *nodev1.Heartbeat {
	metric := 0.5
	h := &nodev1.Heartbeat{
		Gpus: []*nodev1.GPUUsage{{Uuid: "a", UsedMib: 10_000 + n, FreeMib: 70_000, UtilMilli: 900 - n, BusyMs: n, PowerW: 300 + n}, {Uuid: "b"}},
		Attempts: []*nodev1.AttemptUse{{
			Job: 1, Attempt: 2, BusyMs: 900 * n, KnownMs: n, PeakMib: 10_000 + n, Probe: &nodev1.Probe{Ok: true},
			Steps: &nodev1.Steps{Step: n, Total: 1000, Metric: &metric},
		}},
	}
	if change != nil {
		change(h)
	}
	return h
}

// TestNewsIsSentAtOnce: what a leader should know soon is in the next heartbeat, all
// else within four.
func TestNewsIsSentAtOnce(t *testing.T) {
	better := 0.6
	for what, change := range map[string]func(*nodev1.Heartbeat){
		"nothing":                nil,
		"images":                 func(h *nodev1.Heartbeat) { h.Images = &nodev1.HeldImages{} },
		"memory":                 func(h *nodev1.Heartbeat) { h.Gpus[0].UsedMib, h.Gpus[0].FreeMib = 12_000, 68_000 },
		"less memory":            func(h *nodev1.Heartbeat) { h.Gpus[0].UsedMib, h.Gpus[0].FreeMib = 8_000, 72_000 },
		"an idle GPU":            func(h *nodev1.Heartbeat) { h.Gpus[0].UtilMilli = 100 },
		"a GPU at work":          func(h *nodev1.Heartbeat) { h.Gpus[1].UtilMilli = 200 },
		"another GPU":            func(h *nodev1.Heartbeat) { h.Gpus[1].Uuid = "c" },
		"a GPU that is not read": func(h *nodev1.Heartbeat) { h.Gpus = h.Gpus[:1] },
		"no attempt":             func(h *nodev1.Heartbeat) { h.Attempts = nil },
		"another attempt":        func(h *nodev1.Heartbeat) { h.Attempts[0].Attempt = 3 },
		"an unhealthy replica":   func(h *nodev1.Heartbeat) { h.Attempts[0].Probe.Ok = false },
		"a replica that fails":   func(h *nodev1.Heartbeat) { h.Attempts[0].Probe.Fails = 2 },
		"a pull":                 func(h *nodev1.Heartbeat) { h.Attempts[0].Pull = &nodev1.Pull{Layers: 1} },
		"progress that is gone":  func(h *nodev1.Heartbeat) { h.Attempts[0].Steps = nil },
		"a metric":               func(h *nodev1.Heartbeat) { h.Attempts[0].Steps.Metric = &better },
		"more steps to come":     func(h *nodev1.Heartbeat) { h.Attempts[0].Steps.Total = 2000 },
		"the last step":          func(h *nodev1.Heartbeat) { h.Attempts[0].Steps.Step = 1000 },
	} {
		var p Pace
		p.Granted(time.Minute)
		if !p.Due(working(0, nil), Every) {
			t.Fatal("a session's first heartbeat is not due")
		}
		p.Granted(time.Minute)
		if p.Due(working(1, nil), Every) {
			t.Error("one without news is due at once")
		}
		if p.Due(working(2, change), Every) != (change != nil) {
			t.Errorf("%s: due %t", what, change == nil)
		}
	}
}

// TestHeartbeatsWithoutNewsAreFewer: as many fewer as the lease has room for, and none
// fewer while an answer is missing.
func TestHeartbeatsWithoutNewsAreFewer(t *testing.T) {
	for _, c := range []struct {
		what    string
		lease   time.Duration
		answers int
		want    string
	}{
		{"the usual lease", time.Minute, 9, "!...!...!"},
		{"the least for four", 40 * time.Second, 9, "!...!...!"},
		{"for three", 39 * time.Second, 9, "!..!..!.."},
		{"a short one", 19 * time.Second, 9, "!!!!!!!!!"},
		{"no lease is known", 0, 9, "!!!!!!!!!"},
		{"the leader falls silent", time.Minute, 1, "!...!!!!!"},
	} {
		var p Pace
		got := ""
		for n := range int64(9) {
			if !p.Due(working(n, nil), Every) {
				got += "."
				continue
			}
			got += "!"
			if c.answers--; c.answers >= 0 {
				p.Granted(c.lease)
			}
		}
		if got != c.want {
			t.Errorf("%s: %s were sent, want %s", c.what, got, c.want)
		}
	}
}

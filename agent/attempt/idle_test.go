package attempt_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/berth-scheduler/berth/agent/attempt"
	"github.com/berth-scheduler/berth/agent/hold"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/conv/plainconv"
)

// TestIdleLimit: the shortest of the node's, the session's and the partition's
// counts, and none for what is no session.
func TestIdleLimit(t *testing.T) {
	t.Parallel()
	held := func(idle time.Duration) string { return hold.Session{Kept: true, Idle: idle}.Text() }
	for _, c := range []struct {
		name            string
		script          string
		node, partition time.Duration
		want            time.Duration
	}{
		{"none", held(0), 0, 0, 0},
		{"the node's", held(0), time.Hour, 0, time.Hour},
		{"the partition's", held(0), 0, time.Minute, time.Minute},
		{"its own", held(time.Second), time.Hour, time.Minute, time.Second},
		{"the partition's is shorter", held(2 * time.Hour), 3 * time.Hour, time.Hour, time.Hour},
		{"the node's is shorter", held(2 * time.Hour), time.Hour, 3 * time.Hour, time.Hour},
		{"a batch script", "#!/bin/sh\n", time.Hour, time.Minute, 0},
	} {
		packed, err := plainconv.PackScript([]byte(c.script))
		if err != nil {
			t.Fatal(err)
		}
		as := &nodev1.Assignment{Script: packed}
		if c.partition > 0 {
			as.SessionIdle = durationpb.New(c.partition)
		}
		if got := attempt.IdleLimit(as, c.node); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		as.Ranks = &nodev1.Ranks{NodeRank: 1}
		if got := attempt.IdleLimit(as, c.node); got != 0 {
			t.Errorf("%s, on another node than the first: %s", c.name, got)
		}
	}
	if got := attempt.IdleLimit(nil, time.Hour); got != 0 {
		t.Errorf("of nobody: %s", got)
	}
}

// TestIdle: a session of 100 s is warned once at 80 s, and what is typed or computed
// begins it anew. 50 ms a second of the cores are none.
func TestIdle(t *testing.T) {
	t.Parallel()
	quiet := attempt.Activity{CPU: -1}
	type look struct {
		now  int
		did  attempt.Activity
		over bool
		wait time.Duration
		warn string
	}
	for name, looks := range map[string][]look{
		"nothing happens": {
			{0, quiet, false, 5 * second, ""}, {77, quiet, false, 3 * second, ""}, {80, quiet, false, second, "ends in 20s "},
			{81, quiet, false, second, ""}, {99, quiet, false, second, ""}, {100, quiet, true, 0, ""},
		},
		"somebody types": {
			{0, quiet, false, 5 * second, ""}, {80, quiet, false, second, "ends in 20s "}, {85, attempt.Activity{Typed: at(84), CPU: -1}, false, 5 * second, ""},
			{164, quiet, false, second, "ends in 20s "}, {184, quiet, true, 0, ""},
		},
		"a GPU works": {
			{0, quiet, false, 5 * second, ""}, {100, attempt.Activity{Computed: at(99), CPU: -1}, false, 5 * second, ""},
		},
		"what was before it": {
			{0, attempt.Activity{Typed: at(-50), CPU: -1}, false, 5 * second, ""}, {80, quiet, false, second, "ends in 20s "},
		},
		"cores work": {
			{0, attempt.Activity{}, false, 5 * second, ""}, {90, attempt.Activity{CPU: 4591 * time.Millisecond}, false, 5 * second, ""},
		},
		"cores worked before": {
			{0, attempt.Activity{CPU: time.Hour}, false, 5 * second, ""}, {90, attempt.Activity{CPU: time.Hour}, false, second, "ends in 10s "},
			{95, attempt.Activity{CPU: time.Hour}, false, second, ""}, {100, attempt.Activity{CPU: time.Hour}, true, 0, ""},
		},
		"a prompt": {
			{0, attempt.Activity{}, false, 5 * second, ""}, {90, attempt.Activity{CPU: 4500 * time.Millisecond}, false, second, "ends in 10s "},
		},
	} {
		i := attempt.Idle{Limit: 100 * second}
		for _, l := range looks {
			over, wait, warning := i.Look(at(l.now), l.did)
			if over != l.over || wait != l.wait || (warning == "") != (l.warn == "") || !strings.Contains(warning, l.warn) {
				t.Errorf("%s, after %d s: %v, %s, %q", name, l.now, over, wait, warning)
			}
		}
	}
}

// TestIdleIsNoBurst: what cores do is their mean over half a second at least.
func TestIdleIsNoBurst(t *testing.T) {
	t.Parallel()
	i := attempt.Idle{Limit: 100 * second}
	cpu := time.Duration(0)
	for tick := range 1100 { // each tenth of a second; in one of five 20 ms are used, 40 ms a second in all
		if tick%5 == 0 {
			cpu += 20 * time.Millisecond
		}
		over, _, _ := i.Look(at(0).Add(time.Duration(tick)*100*time.Millisecond), attempt.Activity{CPU: cpu})
		if over != (tick >= 1000) {
			t.Fatalf("after %d tenths of a second: over %t", tick, over)
		}
	}
}

package agent

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/berth-scheduler/berth/agent/hold"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/conv"
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
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			packed, err := conv.PackScript([]byte(c.script))
			if err != nil {
				t.Fatal(err)
			}
			as := &nodev1.Assignment{Script: packed}
			if c.partition > 0 {
				as.SessionIdle = durationpb.New(c.partition)
			}
			task := &task{agent: &Agent{cfg: Config{IdleLimit: c.node}}}
			if got := task.idleLimit(as); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

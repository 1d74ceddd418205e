package pace

import (
	"testing"
	"time"

	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

func TestHeartbeatsOfIdleNodesAreFewer(t *testing.T) {
	silent := &nodev1.Heartbeat{Gpus: []*nodev1.GPUUsage{{Uuid: "a"}}}
	working := &nodev1.Heartbeat{Attempts: []*nodev1.AttemptUse{{Job: 1}}}
	pulling := &nodev1.Heartbeat{Images: &nodev1.HeldImages{}}
	for _, c := range []struct {
		what  string
		lease time.Duration
		beats []*nodev1.Heartbeat
		want  string
	}{
		{"idle", time.Minute, []*nodev1.Heartbeat{silent, silent, silent, silent, silent, silent}, "..!..!"},
		{"the least lease with room for five", 30 * time.Second, []*nodev1.Heartbeat{silent, silent, silent}, "..!"},
		{"a shorter one", 29 * time.Second, []*nodev1.Heartbeat{silent, silent, silent}, "!!!"},
		{"no lease is known", 0, []*nodev1.Heartbeat{silent, silent, silent}, "!!!"},
		{"something runs, and ends", time.Minute, []*nodev1.Heartbeat{silent, working, working, silent, silent, silent}, ".!!..!"},
		{"images", time.Minute, []*nodev1.Heartbeat{silent, pulling, silent, silent, silent}, ".!..!"},
	} {
		var p Pace
		p.Granted(c.lease)
		got := ""
		for _, b := range c.beats {
			if p.Due(b, Every) {
				got += "!"
			} else {
				got += "."
			}
		}
		if got != c.want {
			t.Errorf("%s: %s were sent, want %s", c.what, got, c.want)
		}
	}
}

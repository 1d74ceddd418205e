package cards

import (
	"testing"
	"time"

	"github.com/berth-scheduler/berth/agent/gpu"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

func TestPowerMeter(t *testing.T) {
	t.Parallel()
	m, now := NewPowerMeter(), time.Unix(1000, 0)
	see := func(after time.Duration, a, b int64) {
		now = now.Add(after)
		m.Observe(now, []gpu.Usage{{UUID: "a", PowerW: a}, {UUID: "b", PowerW: b}})
	}
	want := func(marks map[string]Energy, w int64) {
		t.Helper()
		if got := m.Mean(marks); got != w {
			t.Errorf("%d W, want %d", got, w)
		}
	}
	both := []*nodev1.Share{{Uuid: "a"}, {Uuid: "b"}}
	early := m.Mark(both)
	want(early, 0)
	see(0, 100, gpu.Unknown)
	want(early, 0) // once is no time
	see(2*time.Second, 200, gpu.Unknown)
	want(early, 150)
	mark := m.Mark(both[:1])
	want(mark, 0)
	see(2*time.Second, 200, 50)
	want(mark, 200)
	want(early, 175)
	see(10*time.Minute, 600, 50) // the leader was away: who knows what was drawn
	want(mark, 200)
	see(4*time.Second, 600, 50)
	want(mark, 467) // 2 s at 200 W and 4 s at 600 W
	want(m.Mark([]*nodev1.Share{{Uuid: "c"}}), 0)
	want(nil, 0)
}

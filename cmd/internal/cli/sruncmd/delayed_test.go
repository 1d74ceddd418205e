package sruncmd

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestDelayed: nobody is told of a wait that is short, or of a job that starts slowly.
func TestDelayed(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(*delayed)
		want int
	}{
		"at once":              {func(d *delayed) { d.waits(true); d.stop(); time.Sleep(2 * soon) }, 0},
		"starts slowly":        {func(d *delayed) { d.waits(false); time.Sleep(2 * soon) }, 0},
		"waits":                {func(d *delayed) { d.waits(true); time.Sleep(2 * soon); d.waits(true); d.stop() }, 1},
		"no news":              {func(*delayed) { time.Sleep(2 * soon) }, 1},
		"started, waits again": {func(d *delayed) { d.waits(false); time.Sleep(2 * soon); d.waits(true) }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				told := 0
				d := newDelayed(func() { told++ })
				c.do(d)
				synctest.Wait()
				d.stop()
				if told != c.want {
					t.Errorf("told %d times, want %d", told, c.want)
				}
			})
		})
	}
}

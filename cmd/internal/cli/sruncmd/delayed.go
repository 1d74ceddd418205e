package sruncmd

import (
	"sync"
	"time"
)

// soon is how long a job may wait before its owner is told: Slurm's commands
// do not mention a wait when a job starts at once.
const soon = time.Second

// delayed calls a function once, when a job has waited for longer than soon.
type delayed struct {
	mu      sync.Mutex
	timer   *time.Timer
	due     bool
	waiting bool
	tell    func() // nil once called or cancelled
}

func newDelayed(tell func()) *delayed {
	d := &delayed{waiting: true, tell: tell}
	d.timer = time.AfterFunc(soon, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.due = true
		d.look()
	})
	return d
}

// waits records whether the job waits; one that is being started does not.
func (d *delayed) waits(now bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waiting = now
	d.look()
}

func (d *delayed) look() {
	if d.due && d.waiting && d.tell != nil {
		d.tell()
		d.tell = nil
	}
}

// stop cancels the call.
func (d *delayed) stop() {
	d.timer.Stop()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tell = nil
}

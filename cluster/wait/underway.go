package wait

import (
	"sync"
	"time"
)

// Underway knows what began and has not ended, to find what hangs. The zero value
// is ready to use. It is safe for concurrent use, and a nil one knows nothing.
type Underway struct {
	mu   sync.Mutex
	next uint64
	now  map[uint64]begun
}

type begun struct {
	what  string
	at    time.Time
	hangs bool
}

// Process begins what is recorded of a process that SIGKILL did not end.
const Process = "process "

// Begin records that something begins now; end, that it ended, however often it is
// called.
func (u *Underway) Begin(what string) (end func()) {
	return u.begin(begun{what: what, at: time.Now()})
}

// Hangs is as Begin for what has hung since then, which Longer always returns.
func (u *Underway) Hangs(what string, since time.Time) (end func()) {
	return u.begin(begun{what, since, true})
}

func (u *Underway) begin(b begun) (end func()) {
	if u == nil {
		return func() {}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.now == nil {
		u.now = map[uint64]begun{}
	}
	u.next++
	no := u.next
	u.now[no] = b
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		delete(u.now, no)
	}
}

// Longer returns what hangs or has lasted for least and longer, and how long the longest
// of each.
func (u *Underway) Longer(least time.Duration) map[string]time.Duration {
	if u == nil {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	out := map[string]time.Duration{}
	for _, b := range u.now {
		if d := time.Since(b.at); d >= least || b.hangs {
			out[b.what] = max(out[b.what], d)
		}
	}
	return out
}

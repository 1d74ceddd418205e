package tlsconf

import (
	"cmp"
	"context"
	"net"
	"slices"
	"sync"
)

// turns lets a bounded number go on at once, and of those that wait the newest first:
// when there are more than can be served in the time that clients wait, the oldest are
// those that are about to give up.
type turns struct {
	mu      sync.Mutex
	free    int
	waiting []waiter // by number
}

type waiter struct {
	no   uint64
	turn chan struct{} // closed when it has one
}

// take waits for the turn of a number that nobody else waits with. It reports false,
// and there is none to give back, if ctx ends first.
func (t *turns) take(ctx context.Context, no uint64) bool {
	t.mu.Lock()
	if t.free > 0 {
		t.free--
		t.mu.Unlock()
		return true
	}
	w := waiter{no, make(chan struct{})}
	i, _ := t.find(no)
	t.waiting = slices.Insert(t.waiting, i, w)
	t.mu.Unlock()
	select {
	case <-w.turn:
		return true
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if i, waits := t.find(no); waits {
		t.waiting = slices.Delete(t.waiting, i, i+1)
	} else {
		t.next() // it came at the same moment
	}
	return false
}

// give ends a turn.
func (t *turns) give() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next()
}

func (t *turns) next() {
	n := len(t.waiting)
	if n == 0 {
		t.free++
		return
	}
	close(t.waiting[n-1].turn)
	t.waiting = slices.Delete(t.waiting, n-1, n)
}

func (t *turns) find(no uint64) (int, bool) {
	return slices.BinarySearchFunc(t.waiting, no, func(w waiter, no uint64) int { return cmp.Compare(w.no, no) })
}

// fresh is a connection on which no hands were shaken yet. no is its number in the
// order in which they came.
type fresh struct {
	net.Conn
	no uint64
	// answered ends its turn, if it has one.
	answered func()
}

// Write implements net.Conn. The first one is a server's whole answer to the client's
// hello, which is most of what a handshake costs.
func (f *fresh) Write(p []byte) (int, error) {
	f.answered()
	return f.Conn.Write(p)
}

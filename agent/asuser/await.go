package asuser

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// Bounds of the calls that file systems have not answered: each holds a thread, and a process
// that has 10,000 of them ends.
const (
	mostOfUser = 256
	mostOfAll  = 4096
)

// ErrSilent means that a file system does not answer.
var ErrSilent = errors.New("the file system does not answer")

// Waits counts the calls of Await that have not returned. It is safe for concurrent use.
type Waits struct {
	// Patience is how long Await waits; 0 means ten seconds.
	Patience time.Duration

	mu  sync.Mutex
	of  map[uint32]int
	all int
}

const defaultPatience = 10 * time.Second

// enter counts a call, unless there are too many.
func (w *Waits) enter(uid uint32) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.of[uid] >= mostOfUser || w.all >= mostOfAll {
		return fmt.Errorf("%w: %d calls wait for it, %d of them uid %d's, and no more are made", ErrSilent, w.all, w.of[uid], uid)
	}
	if w.of == nil {
		w.of = map[uint32]int{}
	}
	w.of[uid]++
	w.all++
	return nil
}

func (w *Waits) leave(uid uint32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all--
	if w.of[uid]--; w.of[uid] == 0 {
		delete(w.of, uid)
	}
}

// Await is Do for calls that open files which a user names: their file system may never answer.
// After the patience of w it gives up, and an error says so. The call itself cannot be ended;
// drop is given what it returns in the end, and f should change nothing.
func Await[T any](w *Waits, id ID, f func() (T, error), drop func(T)) (out T, err error) {
	if err := w.enter(id.UID); err != nil {
		return out, err
	}
	type result struct {
		out T
		err error
	}
	done, late := make(chan result), make(chan struct{})
	go func() { // for as long as the file system does not answer
		defer w.leave(id.UID)
		var r result
		r.err = Do(id, func() (err error) {
			r.out, err = f()
			return err
		})
		select {
		case done <- r:
		case <-late:
			drop(r.out)
		}
	}()
	patience := w.Patience
	if patience == 0 {
		patience = defaultPatience
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case r := <-done:
		return r.out, r.err
	case <-timer.C:
		close(late)
		return out, fmt.Errorf("%w, for %s now", ErrSilent, patience)
	}
}

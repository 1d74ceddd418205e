package asuser

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestAwait: a call that is answered is handed over; one that is not is given up after the
// patience, holds its place until it is answered, and what it then returns is dropped.
func TestAwait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &Waits{}
		id := ID{UID: 65534, GID: 65534}
		var dropped atomic.Int64
		drop := func(n int) { dropped.Add(int64(n)) }
		if n, err := Await(w, id, func() (int, error) { return 7, nil }, drop); n != 7 || err != nil {
			t.Errorf("answered: got %d, %v", n, err)
		}
		answer, began := make(chan struct{}), time.Now()
		silent := func() (int, error) { <-answer; return 1, nil }
		if n, err := Await(w, id, silent, drop); n != 0 || !errors.Is(err, ErrSilent) || time.Since(began) != defaultPatience {
			t.Errorf("silent: got %d, %v after %s", n, err, time.Since(began))
		}
		w.Patience = time.Nanosecond
		for range mostOfUser - 1 {
			if _, err := Await(w, id, silent, drop); !errors.Is(err, ErrSilent) {
				t.Fatal(err)
			}
		}
		if _, err := Await(w, id, func() (int, error) { t.Error("called"); return 0, nil }, drop); err == nil || !strings.Contains(err.Error(), "no more are made") {
			t.Errorf("beyond the bound: got %v", err)
		}
		if n, err := Await(w, ID{UID: 65533, GID: 65533}, func() (int, error) { return 5, nil }, drop); n != 5 || err != nil {
			t.Errorf("another user: got %d, %v", n, err)
		}
		close(answer)
		synctest.Wait()
		w.Patience = 0
		if n, err := Await(w, id, func() (int, error) { return 3, nil }, drop); n != 3 || err != nil || dropped.Load() < mostOfUser {
			t.Errorf("once answered: got %d, %v; %d were dropped", n, err, dropped.Load())
		}
	})
}

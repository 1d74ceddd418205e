package serviceproxy

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"log/slog"

	"github.com/berth-scheduler/berth/cluster/service"
)

func (s *serving) counted() service.Counted {
	s.proxy.mu.Lock()
	defer s.proxy.mu.Unlock()
	return s.proxy.counted
}

// TestWhatIsMeasured: how long answers take, what fails counts as never, and nothing is left
// in flight.
func TestWhatIsMeasured(t *testing.T) {
	t.Parallel()
	slow := make(chan struct{})
	s := serve(t, 1, func(_ int, w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			<-slow
		}
		_, _ = io.WriteString(w, "x")
	})
	for range 5 {
		s.ask(t, http.MethodGet, "")
	}
	done := make(chan struct{})
	go func() { defer close(done); s.ask(t, http.MethodPost, "x") }()
	for s.counted().InFlight != 1 {
		time.Sleep(time.Millisecond)
	}
	began := time.Now()
	time.Sleep(50 * time.Millisecond)
	close(slow)
	<-done
	took := time.Since(began)
	for s.counted().InFlight != 0 {
		time.Sleep(time.Millisecond)
	}
	if c := s.counted(); c.Requests != 6 || c.Latency.N() != 6 || c.Held != 0 || c.Latency.Within(45*time.Millisecond) == 6 || c.Latency.Within(2*took+time.Second) != 6 {
		t.Errorf("counted %d, %d answered, %d held", c.Requests, c.Latency.N(), c.Held)
	}
	s.replicas[0].Close()
	if code, _ := s.ask(t, http.MethodGet, ""); code != http.StatusBadGateway {
		t.Errorf("answered %d", code)
	}
	for s.counted().InFlight != 0 {
		time.Sleep(time.Millisecond)
	}
	if c := s.counted(); c.Latency.N() != 7 || c.Latency.Percentile(99) < time.Minute {
		t.Errorf("a failure counts as %v", c.Latency.Percentile(99))
	}
}

// TestAService that sleeps: requests wait until a replica is there, as many as the queue has
// room for, and whoever reports is woken at once.
func TestAServiceThatSleeps(t *testing.T) {
	t.Parallel()
	s := serve(t, 1, func(_ int, w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "awake") })
	addr := s.replicas[0].Listener.Addr().String()
	s.proxy.set(nil)
	if code, _ := s.ask(t, http.MethodGet, ""); code != http.StatusServiceUnavailable {
		t.Errorf("of one that does not sleep: %d", code)
	}
	s.proxy.maySleep(true)
	s.proxy.queue = 2
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	told := make(chan service.Counted, 100)
	go s.proxy.Report(ctx, func(_ context.Context, _ string, c *service.Counted) error {
		select {
		case told <- *c:
		default:
		}
		return nil
	})
	answers := make(chan int, 3)
	for n := range 2 {
		go func() { code, _ := s.ask(t, http.MethodPost, "body"); answers <- code }()
		for s.counted().Waiting != n+1 {
			time.Sleep(time.Millisecond)
		}
	}
	if code, _ := s.ask(t, http.MethodGet, ""); code != http.StatusServiceUnavailable {
		t.Errorf("behind a full queue: %d", code)
	}
	for c := range told {
		if c.Waiting > 0 {
			break
		}
	}
	s.proxy.set([]string{addr})
	for range 2 {
		if code := <-answers; code != http.StatusOK {
			t.Errorf("one that waited is answered %d", code)
		}
	}
	s.settle(0)
	for s.counted().InFlight != 0 {
		time.Sleep(time.Millisecond)
	}
	if c := s.counted(); c.Held != 2 || c.Waiting != 0 || c.InFlight != 0 {
		t.Errorf("counted %d held, %d waiting, %d in flight", c.Held, c.Waiting, c.InFlight)
	}
	s.proxy.set(nil)
	s.proxy.hold = 11 * time.Second
	go func() { code, _ := s.ask(t, http.MethodPost, "body"); answers <- code }()
	for s.counted().Waiting != 1 {
		time.Sleep(time.Millisecond)
	}
	s.proxy.maySleep(false) // it was deleted
	select {
	case code := <-answers:
		if code != http.StatusServiceUnavailable {
			t.Errorf("after the service is gone: %d", code)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("it waits for a service that is gone")
	}
	s.proxy.maySleep(true)
	s.proxy.hold = 20 * time.Millisecond
	if code, _ := s.ask(t, http.MethodGet, ""); code != http.StatusServiceUnavailable {
		t.Errorf("one that waited in vain: %d", code)
	}
}

// TestReports come each two seconds, and seldom to those who want none.
func TestReports(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New(nil, slog.New(slog.DiscardHandler))
		var n, bad atomic.Int64
		ctx, cancel := context.WithCancel(t.Context())
		go p.Report(ctx, func(context.Context, string, *service.Counted) error {
			if n.Add(1); bad.Load() > 0 {
				return errors.New("not yours")
			}
			return nil
		})
		time.Sleep(time.Minute + time.Second)
		if got := n.Load(); got != 31 {
			t.Errorf("%d reports in a minute", got)
		}
		bad.Store(1)
		time.Sleep(2 * time.Minute)
		if got := n.Load() - 31; got > 6 {
			t.Errorf("%d reports that nobody wants", got)
		}
		cancel()
		synctest.Wait()
	})
}

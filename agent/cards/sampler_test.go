package cards

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-scheduler/berth/agent/gpu"
)

// scripted is a provider whose answers the test gives.
type scripted struct {
	gpu.Provider
	asked  atomic.Int64
	answer func(ctx context.Context, n int64) ([]gpu.Usage, error)
}

func (p *scripted) Usage(ctx context.Context) ([]gpu.Usage, error) {
	return p.answer(ctx, p.asked.Add(1))
}

func card(used int64) []gpu.Usage { return []gpu.Usage{{UUID: "a", UsedMiB: used}} }

// runSampler runs a sampler of p until the test ends, on fake time.
func runSampler(t *testing.T, p *scripted) *Sampler {
	t.Helper()
	s := NewSampler(p, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("sampler: %v", err)
		}
	})
	return s
}

func TestSamplerIsFastWhileHeld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &scripted{answer: func(_ context.Context, n int64) ([]gpu.Usage, error) { return card(n), nil }}
		s := runSampler(t, p)
		in := func(d time.Duration, what string, want int64) {
			t.Helper()
			synctest.Wait()
			before := p.asked.Load()
			time.Sleep(d)
			synctest.Wait()
			if got := p.asked.Load() - before; got != want {
				t.Errorf("%s: asked %d times in %s, want %d", what, got, d, want)
			}
		}
		in(10*time.Second, "idle", 5)
		a, b := s.Hold(), s.Hold()
		synctest.Wait()
		in(10*time.Second, "held twice", 40)
		a()
		a() // does not count for b
		in(10*time.Second, "held once", 40)
		b()
		in(250*time.Millisecond, "the one under way", 1)
		in(10*time.Second, "idle again", 5)
		if u, at := s.Last(); len(u) != 1 || u[0].UsedMiB != p.asked.Load() || time.Since(at) > sampleSlow {
			t.Errorf("last answer %v of %s", u, at)
		}
	})
}

func TestSamplerCallsObserversInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &scripted{answer: func(_ context.Context, n int64) ([]gpu.Usage, error) {
			if n == 2 {
				return nil, errors.New("driver is away")
			}
			return card(n), nil
		}}
		s := NewSampler(p, slog.New(slog.DiscardHandler))
		var seen []int64
		inside := false
		observe := func(mark int64) func(time.Time, []gpu.Usage) {
			return func(now time.Time, u []gpu.Usage) {
				if inside || !now.Equal(time.Now()) {
					t.Errorf("observer %d: inside another %v, now %s", mark, inside, now)
				}
				inside = true
				time.Sleep(time.Millisecond)
				seen = append(seen, u[0].UsedMiB*10+mark)
				inside = false
			}
		}
		s.Observe(observe(1))
		s.Observe(func(time.Time, []gpu.Usage) { s.Last() }) // may be asked from here
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := s.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("sampler: %v", err)
		}
		if len(seen) != 2 || seen[0] != 11 || seen[1] != 31 {
			t.Errorf("observed %v, want 11 and 31: the second answer failed", seen)
		}
	})
}

func TestSamplerOutlivesAProviderThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		p := &scripted{answer: func(_ context.Context, n int64) ([]gpu.Usage, error) {
			if n == 2 {
				<-hang // deaf to its context, as a call stuck in the kernel
			}
			return card(n), nil
		}}
		s := runSampler(t, p)
		time.Sleep(time.Minute)
		if u, _ := s.Last(); u != nil || p.asked.Load() != 2 {
			t.Errorf("after a minute: %v, asked %d times", u, p.asked.Load())
		}
		close(hang)
		synctest.Wait()
		if u, _ := s.Last(); len(u) != 1 || u[0].UsedMiB != 2 {
			t.Errorf("after it answered: %v", u)
		}
		time.Sleep(time.Minute)
		if u, _ := s.Last(); len(u) != 1 || u[0].UsedMiB < 20 {
			t.Errorf("a minute later: %v", u)
		}
	})
}

func TestSamplerEndsWhileItsProviderHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		s := NewSampler(&scripted{answer: func(context.Context, int64) ([]gpu.Usage, error) {
			<-hang
			return nil, nil
		}}, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		if err := s.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("sampler: %v", err)
		}
		close(hang)
	})
}

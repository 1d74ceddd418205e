package cards

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/berth-scheduler/berth/agent/gpu"
)

const (
	// sampleFast is how often the cards are looked at while somebody holds the
	// fast rate, sampleSlow how often otherwise.
	sampleFast = 250 * time.Millisecond
	sampleSlow = 2 * time.Second
	// SampleDeadline is what a provider is given to answer.
	SampleDeadline = 5 * time.Second
	// sampleStale is the age from which on an answer says nothing of now.
	sampleStale = 10 * time.Second
)

// Sampler looks at the cards of a node for everybody who wants to know: one
// goroutine asks the provider four times a second while an attempt with GPUs
// runs (or anybody else holds the fast rate), and every 2 s otherwise. There is
// never more than one question under way, so a provider that hangs stalls its
// own answers and nothing else. Its methods are safe for concurrent use, also
// from an observer.
type Sampler struct {
	gpus gpu.Provider // nil on a node without cards
	log  *slog.Logger
	wake chan struct{} // the rate rose

	mu        sync.Mutex
	observers []func(now time.Time, usage []gpu.Usage)
	holds     int
	last      []gpu.Usage
	at        time.Time // of last; zero before the first answer
	failing   bool
}

// NewSampler returns a sampler of what gpus shows; nil is a node without
// cards, of which nothing is ever observed.
func NewSampler(gpus gpu.Provider, log *slog.Logger) *Sampler {
	return &Sampler{gpus: gpus, log: log.With("component", "sampler"), wake: make(chan struct{}, 1)}
}

// Observe registers f for every answer from now on. Observers are called one
// after the other, in the order they were registered, by one goroutine, with
// answers in the order they were given: f should take no longer than a few
// milliseconds, and wait for nobody. usage has one entry for each card that
// could be read then, with its processes named by attempt where the provider
// knows; a card that is missing there was not read, which says nothing of its
// processes. It is shared by all: nobody may change it. now is when the answer
// came. Nothing is called while the provider does not answer.
func (s *Sampler) Observe(f func(now time.Time, usage []gpu.Usage)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.observers = append(s.observers, f)
}

// Hold asks for the fast rate until release is called; calling that again does
// nothing.
func (s *Sampler) Hold() (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holds++; s.holds == 1 {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.holds--
	})
}

// Last returns the newest answer and when it came. It is empty before the
// first one and when the provider has not answered for 10 s. Nobody may
// change it.
func (s *Sampler) Last() (usage []gpu.Usage, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.at) > sampleStale {
		return nil, time.Time{}
	}
	return s.last, s.at
}

// Run asks until ctx ends. A question that the provider answers neither in
// time nor when its context ends is left behind.
func (s *Sampler) Run(ctx context.Context) error {
	if s.gpus == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	for {
		asked := time.Now()
		usage, err := s.ask(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		s.tell(time.Now(), usage, err)
		if err := s.rest(ctx, asked); err != nil {
			return err
		}
	}
}

// ask waits for one answer of the provider, however long it takes: another
// question would hang as well.
func (s *Sampler) ask(ctx context.Context) ([]gpu.Usage, error) {
	type answer struct {
		usage []gpu.Usage
		err   error
	}
	cctx, cancel := context.WithTimeout(ctx, SampleDeadline)
	done := make(chan answer, 1)
	go func() {
		usage, err := s.gpus.Usage(cctx)
		cancel()
		done <- answer{usage, err}
	}()
	late := time.NewTimer(SampleDeadline + time.Second)
	defer late.Stop()
	for {
		select {
		case a := <-done:
			return a.usage, a.err
		case <-late.C:
			s.note(context.DeadlineExceeded)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// tell keeps an answer and hands it on. One that is all error is none.
func (s *Sampler) tell(now time.Time, usage []gpu.Usage, err error) {
	s.note(err)
	if err != nil && len(usage) == 0 {
		return
	}
	s.mu.Lock()
	s.last, s.at = usage, now
	observers := s.observers // only ever appended to
	s.mu.Unlock()
	for _, f := range observers {
		f(now, usage)
	}
}

// note logs when the provider begins and ceases to fail.
func (s *Sampler) note(err error) {
	s.mu.Lock()
	was := s.failing
	s.failing = err != nil
	s.mu.Unlock()
	switch {
	case err != nil && !was:
		s.log.Warn("cannot read the use of every GPU", "err", err)
	case err == nil && was:
		s.log.Info("the use of every GPU can be read again")
	}
}

// rest waits until it is time for the next question, reckoned from the last.
func (s *Sampler) rest(ctx context.Context, asked time.Time) error {
	for {
		every := sampleSlow
		s.mu.Lock()
		if s.holds > 0 {
			every = sampleFast
		}
		s.mu.Unlock()
		// A provider that needs long for an answer is not asked all the time.
		left := max(every-time.Since(asked), every/10)
		timer := time.NewTimer(left)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-s.wake:
			timer.Stop() // the rate rose: reckon anew
		case <-timer.C:
			return nil
		}
	}
}

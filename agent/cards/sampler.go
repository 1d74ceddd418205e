package cards

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/cluster/wait"
)

const (
	// sampleFast is the interval between samples while the fast rate is held, sampleSlow
	// otherwise.
	sampleFast = 250 * time.Millisecond
	sampleSlow = 2 * time.Second
	// SampleDeadline is how long a provider may take to answer.
	SampleDeadline = 5 * time.Second
	// sampleStale is the age from which a sample says nothing about the present.
	sampleStale = 10 * time.Second
)

// Sampler samples the GPUs of a node for all observers: one goroutine queries the provider four
// times a second while an attempt with GPUs runs (or anything else holds the fast rate), and
// every 2 s otherwise. There is never more than one query at a time, so a provider that hangs
// delays its own answers and nothing else. Its methods are safe for concurrent use, even from
// an observer.
type Sampler struct {
	gpus gpu.Provider // nil on a node without GPUs
	log  *slog.Logger
	wake chan struct{} // the rate has increased

	mu        sync.Mutex
	observers []func(now time.Time, usage []gpu.Usage)
	holds     int
	last      []gpu.Usage
	at        time.Time // of last; zero before the first answer
	failing   bool
}

// NewSampler returns a sampler of gpus; nil is a node without GPUs, for which nothing is ever
// observed.
func NewSampler(gpus gpu.Provider, log *slog.Logger) *Sampler {
	return &Sampler{gpus: gpus, log: log.With("component", "sampler"), wake: make(chan struct{}, 1)}
}

// Observe registers f for every sample from now on. One goroutine calls the observers one after
// another, in the order of registration, with samples in chronological order: f should take no
// longer than a few milliseconds, and never wait. usage has one entry for each GPU that could
// be read, with its processes attributed to attempts where the provider knows them; a missing
// GPU was not read, which says nothing about its processes. usage is shared and must not be
// modified. now is when the answer arrived. Nothing is called while the provider does not
// answer.
func (s *Sampler) Observe(f func(now time.Time, usage []gpu.Usage)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.observers = append(s.observers, f)
}

// Hold requests the fast rate until release is called; further calls of release do nothing.
func (s *Sampler) Hold() (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holds++; s.holds == 1 {
		wait.Poke(s.wake)
	}
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.holds--
	})
}

// Last returns the newest sample and when it arrived. It is empty before the first one and when
// the provider has not answered for 10 s. It must not be modified.
func (s *Sampler) Last() (usage []gpu.Usage, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.at) > sampleStale {
		return nil, time.Time{}
	}
	return s.last, s.at
}

// Run samples until ctx ends. It abandons a query that the provider answers neither in time nor
// when its context ends.
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

// ask waits for one answer of the provider, however long it takes: another query would hang as
// well.
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

// tell keeps an answer and passes it on, unless it is nothing but an error.
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

// note logs when the provider begins and stops failing.
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

// rest waits until it is time for the next query, counted from the last.
func (s *Sampler) rest(ctx context.Context, asked time.Time) error {
	for {
		every := sampleSlow
		s.mu.Lock()
		if s.holds > 0 {
			every = sampleFast
		}
		s.mu.Unlock()
		// A provider that takes long to answer is not queried all the time.
		left := max(every-time.Since(asked), every/10)
		timer := time.NewTimer(left)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-s.wake:
			timer.Stop() // the rate has increased: compute again
		case <-timer.C:
			return nil
		}
	}
}

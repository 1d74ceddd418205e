// Package figures counts what a coordinator did since it started, for users who
// query it rather than its metrics.
package figures

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// Figures are what a coordinator did since it started, for users who query it
// rather than its metrics. It is safe for concurrent use.
type Figures struct {
	since time.Time

	mu       sync.Mutex
	inFlight uint32
	passes   map[string]*apiv1.PassFigures
	calls    map[string]*apiv1.CallFigures
}

// New returns figures that begin at a time.
func New(since time.Time) *Figures {
	return &Figures{since: since, passes: map[string]*apiv1.PassFigures{}, calls: map[string]*apiv1.CallFigures{}}
}

// pass returns the figures of one kind of pass; mu is held.
func (f *Figures) pass(kind string) *apiv1.PassFigures {
	p := f.passes[kind]
	if p == nil {
		p = &apiv1.PassFigures{Kind: kind}
		f.passes[kind] = p
	}
	return p
}

// Planned adds a pass over so many waiting jobs.
func (f *Figures) Planned(kind string, took time.Duration, depth int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, us := f.pass(kind), uint64(took.Microseconds())
	p.Count++
	p.LastUs, p.TotalUs, p.MaxUs = us, p.TotalUs+us, max(p.MaxUs, us)
	p.LastDepth, p.TotalDepth = uint64(depth), p.TotalDepth+uint64(depth)
}

// Started adds attempts that a kind of pass placed.
func (f *Figures) Started(kind string, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pass(kind).Started += uint64(n)
}

// Begins counts a request as in progress until the function that it returns is
// called.
func (f *Figures) Begins(method string) (ends func(time.Duration)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.inFlight++
	return func(took time.Duration) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.inFlight--
		name := method[strings.LastIndexByte(method, '/')+1:]
		c := f.calls[name]
		if c == nil {
			c = &apiv1.CallFigures{Method: name}
			f.calls[name] = c
		}
		c.Count++
		c.TotalUs += uint64(took.Microseconds())
	}
}

// ToAPI returns all of them, passes by kind and requests by how many there were.
func (f *Figures) ToAPI() *apiv1.Figures {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := &apiv1.Figures{Since: timestamppb.New(f.since), InFlight: f.inFlight}
	for _, kind := range slices.Sorted(maps.Keys(f.passes)) {
		p := f.passes[kind]
		out.Passes = append(out.Passes, &apiv1.PassFigures{Kind: p.Kind, Count: p.Count, LastUs: p.LastUs, MaxUs: p.MaxUs, TotalUs: p.TotalUs, LastDepth: p.LastDepth, TotalDepth: p.TotalDepth, Started: p.Started})
	}
	for _, name := range slices.Sorted(maps.Keys(f.calls)) {
		c := f.calls[name]
		out.Calls = append(out.Calls, &apiv1.CallFigures{Method: c.Method, Count: c.Count, TotalUs: c.TotalUs})
	}
	slices.SortStableFunc(out.Calls, func(a, b *apiv1.CallFigures) int { return cmp.Compare(b.Count, a.Count) })
	return out
}

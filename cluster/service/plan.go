package service

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// State is the state of a running replica.
type State uint8

// The states. A replica that was never healthy is Starting; requests go only to
// Ready ones.
const (
	Starting State = iota
	Ready
	Unhealthy
	Draining
)

// String implements fmt.Stringer.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state %d", s)
}

var stateNames = [...]string{"starting", "ready", "unhealthy", "draining"}

// Serving is a state, since when and why.
type Serving struct {
	State State
	Since time.Duration // since 1970
	Why   string
}

// MaxWhy bounds Serving.Why, in bytes.
const MaxWhy = 160

// ClipWhy cuts a reason to MaxWhy bytes.
func ClipWhy(s string) string { return strings.ToValidUTF8(s[:min(len(s), MaxWhy)], "") }

// Probe is the latest health check by the node of a replica.
type Probe struct {
	OK bool
	// Fails is how often in a row it was not healthy.
	Fails int
	Why   string
}

// Replica is one task of a service with a live attempt.
type Replica struct {
	Task uint32
	// Started is when its process began, 0 before; Ending reports whether it was
	// told to end.
	Started time.Duration
	Ending  bool
	// Leaves reports whether its node drains, so that it is to run on another one.
	Leaves  bool
	Serving Serving
	// Probe is nil before the first result.
	Probe *Probe
}

// Revision is one array of a service.
type Revision struct {
	ID uint64
	// Want is how many replicas may run at once; Waiting reports whether some wait,
	// and Since is when the last of them began to, or when it may start again.
	Want    int
	Waiting bool
	Since   time.Duration
	Live    []Replica
}

// ready returns how many replicas accept requests.
func (r *Revision) ready() (n int) {
	for i := range r.Live {
		if s := &r.Live[i]; s.Serving.State == Ready && !s.Ending {
			n++
		}
	}
	return n
}

// staying returns how many replicas are not ending.
func (r *Revision) staying() (n int) {
	for i := range r.Live {
		if s := &r.Live[i]; s.Serving.State != Draining && !s.Ending {
			n++
		}
	}
	return n
}

// Kind is what an action does.
type Kind uint8

// The kinds.
const (
	Note       Kind = iota // change the state of a replica
	Restart                // end a replica, which may start again
	End                    // end a replica for good
	EndWaiting             // never start the waiting replicas of a revision
	SetWant                // change how many replicas a revision may have
)

// Action is one thing to do, about a revision or one replica of it.
type Action struct {
	Kind     Kind
	Revision uint64
	Task     uint32
	State    State // of Note
	Want     int   // of SetWant
	Why      string
}

// patience is how long the first replica of a new revision waits for room before an
// old one is ended for it.
const patience = 30 * time.Second

// Plan returns what to do about a service now. Revisions are in the order of
// submission; the last one is what its owner wants, with want replicas, and the
// others are phased out. It is called again once its actions are done, and may
// repeat an action.
func Plan(s *Service, want int, revisions []Revision, now time.Duration) []Action {
	p := plan{s: s, now: now}
	if len(revisions) == 0 {
		return nil
	}
	newest, old := &revisions[len(revisions)-1], revisions[:len(revisions)-1]
	for i := range revisions {
		for k := range revisions[i].Live {
			p.look(&revisions[i], &revisions[i].Live[k], i < len(old))
		}
	}
	if len(old) == 0 {
		p.move(newest, want)
		p.surplus(revisions, newest.staying()-newest.Want, Restart, tooMany)
		return p.do
	}
	p.roll(newest, old, want)
	return p.do
}

// Why replicas end.
const (
	tooMany  = "one replica more than wanted"
	replaced = "a newer revision takes its place"
)

type plan struct {
	s   *Service
	now time.Duration
	do  []Action
}

func (p *plan) add(r *Revision, l *Replica, k Kind, to State, why string) {
	p.do = append(p.do, Action{Kind: k, Revision: r.ID, Task: l.Task, State: to, Why: why})
}

// look plans what follows from the state of a replica.
func (p *plan) look(r *Revision, l *Replica, isOld bool) {
	stop := Restart
	if isOld {
		stop = End
	}
	probe := l.Probe
	switch fails := 0; {
	case l.Ending || l.Started == 0:
	case l.Serving.State == Draining:
		if p.now-l.Serving.Since >= p.s.Drain {
			p.add(r, l, stop, 0, l.Serving.Why)
		}
	case probe != nil && probe.OK:
		if l.Serving.State != Ready {
			p.add(r, l, Note, Ready, "")
		}
	default:
		why := "nothing is known of its health yet"
		if probe != nil {
			fails, why = probe.Fails, probe.Why
		}
		switch {
		case l.Serving.State == Starting && p.now-l.Started >= p.s.StartWithin:
			p.add(r, l, stop, 0, fmt.Sprintf("not healthy within %s of its start: %s", p.s.StartWithin, why))
		case l.Serving.State != Starting && fails >= 2*p.s.Fails:
			p.add(r, l, stop, 0, fmt.Sprintf("unhealthy %d times in a row: %s", fails, why))
		case l.Serving.State == Ready && fails >= p.s.Fails:
			p.add(r, l, Note, Unhealthy, why)
		}
	}
}

// move sets how many replicas a revision may have, and has those whose nodes drain start on
// other nodes, one at a time: one more than wanted becomes ready first. Where the service
// cannot have one more, the others must be ready, and the only replica of a service stays.
func (p *plan) move(r *Revision, want int) {
	var first *Replica
	going, n := false, want
	for i := range r.Live {
		switch l := &r.Live[i]; {
		case l.Ending || l.Serving.State == Draining:
			going = true
		case l.Leaves && (first == nil || first.Serving.State == Ready):
			first = l
		}
	}
	if first != nil && want > 0 {
		n = min(want+1, p.s.Max)
	}
	if r.Want != n {
		p.do = append(p.do, Action{Kind: SetWant, Revision: r.ID, Want: n})
		return
	}
	if first == nil || going {
		return
	}
	others := r.ready()
	if first.Serving.State == Ready {
		others--
	}
	if others >= max(1, n-1) {
		p.stop(r, first, Restart, "its node drains")
	}
}

// stop ends a replica, after a while without requests if it gets any.
func (p *plan) stop(r *Revision, l *Replica, how Kind, why string) {
	if l.Serving.State == Ready {
		p.add(r, l, Note, Draining, why)
	} else {
		p.add(r, l, how, 0, why)
	}
}

// surplus ends n replicas of some revisions: first those that get no requests, then
// those whose nodes drain, then those with the highest numbers.
func (p *plan) surplus(of []Revision, n int, end Kind, why string) {
	type one struct {
		r *Revision
		l *Replica
	}
	var stay []one
	for i := range of {
		for k := range of[i].Live {
			if l := &of[i].Live[k]; l.Serving.State != Draining && !l.Ending {
				stay = append(stay, one{&of[i], l})
			}
		}
	}
	serves := func(o one) int {
		if o.l.Serving.State == Ready {
			return 1
		}
		return 0
	}
	stays := func(o one) int {
		if o.l.Leaves {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(stay, func(a, b one) int {
		return cmp.Or(cmp.Compare(serves(a), serves(b)), cmp.Compare(stays(a), stays(b)), cmp.Compare(b.l.Task, a.l.Task))
	})
	for _, o := range stay[:max(0, min(n, len(stay)))] {
		p.stop(o.r, o.l, end, why)
	}
}

// lastNews returns since when a revision that waits for room has made no progress.
func lastNews(newest *Revision, old []Revision) time.Duration {
	at := newest.Since
	for _, r := range append(old[:len(old):len(old)], *newest) {
		for i := range r.Live {
			at = max(at, r.Live[i].Started, r.Live[i].Serving.Since)
		}
	}
	return at
}

// roll replaces replicas of old revisions by ones of the newest, with at most one
// more than wanted at a time.
func (p *plan) roll(newest *Revision, old []Revision, want int) {
	stay := 0
	for i := range old {
		if old[i].Waiting {
			p.do = append(p.do, Action{Kind: EndWaiting, Revision: old[i].ID, Why: replaced})
		}
		stay += old[i].staying()
	}
	if n := min(max(want-stay+1, 1), want); n != newest.Want {
		p.do = append(p.do, Action{Kind: SetWant, Revision: newest.ID, Want: n})
	}
	surplus := stay + newest.ready() - want
	if surplus <= 0 && stay+newest.ready() > 1 && newest.Waiting && len(newest.Live) < newest.Want && p.now-lastNews(newest, old) >= patience {
		surplus = 1 // there is no room for one more
	}
	why := tooMany
	if stay <= want {
		why = replaced
	}
	p.surplus(old, surplus, End, why)
}

package attempt_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/agent/attempt"
	"github.com/berth-scheduler/berth/agent/gpu/caps"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

const second = time.Second

// at is so many seconds after the attempts of these tests were started.
func at(s int) time.Time { return time.Unix(1_800_000_000, 0).Add(time.Duration(s) * second) }

func seconds(s int) *durationpb.Duration { return durationpb.New(time.Duration(s) * second) }

// job is an attempt with a time limit of 100 s.
func job(change func(as *nodev1.Assignment)) *nodev1.Assignment {
	as := &nodev1.Assignment{Job: 7, Attempt: 1, TimeLimit: seconds(100)}
	if change != nil {
		change(as)
	}
	return as
}

// life is of an attempt of which the journal knows its limit.
func life(change func(l *attempt.Life)) attempt.Life {
	l := attempt.Life{Started: at(0), Limit: 100 * second}
	if change != nil {
		change(&l)
	}
	return l
}

// seen is a look at an attempt with the graces 30 s after TERM, 5 s after the word
// that it holds too much, and 60 s after KILL.
func seen(now int, as *nodev1.Assignment) *attempt.Seen {
	return &attempt.Seen{Now: at(now), As: as, IdleWait: attempt.LookEvery, Grace: 30 * second, OverGrace: 5 * second, Unkillable: 60 * second}
}

func preempt(signal string, grace int) func(as *nodev1.Assignment) {
	return func(as *nodev1.Assignment) { as.Preempt = &nodev1.Preempt{Signal: signal, Grace: seconds(grace)} }
}

func warning(before int) func(as *nodev1.Assignment) {
	return func(as *nodev1.Assignment) { as.Warning = &nodev1.Warning{Signal: "USR2", Before: seconds(before)} }
}

// TestNext: what is done about an attempt at one look.
func TestNext(t *testing.T) {
	t.Parallel()
	stop := job(func(as *nodev1.Assignment) { as.Stop = true })
	over := func(urgent bool, since int, sent bool) attempt.Life {
		return life(func(l *attempt.Life) {
			l.Breach = &nodev1.MemBreach{Uuid: "g", HeldMib: 20, CapMib: 10, Urgent: urgent, Sent: sent}
			if since >= 0 {
				l.Breach.At, l.Cause = timestamppb.New(at(since)), attempt.OverCap
			}
		})
	}
	saving := func(since, told int) attempt.Life {
		return life(func(l *attempt.Life) {
			l.Saving = at(since)
			if told >= 0 {
				l.Signaled, l.Cause = at(told), attempt.Room
			}
		})
	}
	termed := func(killAt int, killed bool) attempt.Life {
		return life(func(l *attempt.Life) { l.KillAt, l.Killed, l.Cause = at(killAt), killed, attempt.Asked })
	}
	warned := life(nil).With(func(p *nodev1.Progress) { p.Warned = true })
	with := func(s *attempt.Seen, change func(s *attempt.Seen)) *attempt.Seen { change(s); return s }
	type do = attempt.Do
	for name, c := range map[string]struct {
		life  attempt.Life
		seen  *attempt.Seen
		want  do // without Then
		cause attempt.Cause
	}{
		"runs":                           {life(nil), seen(1, job(nil)), do{Wait: 10 * second}, attempt.NoCause},
		"near its limit":                 {life(nil), seen(97, job(nil)), do{Wait: 3 * second}, attempt.NoCause},
		"a session asks more often":      {life(nil), with(seen(1, job(nil)), func(s *attempt.Seen) { s.IdleWait = 2 * second }), do{Wait: 2 * second}, attempt.NoCause},
		"at its limit":                   {life(nil), seen(100, job(nil)), do{Act: attempt.Term, Signal: "TERM", Grace: 30 * second}, attempt.TimeLimit},
		"stopped":                        {life(nil), seen(1, stop), do{Act: attempt.Term, Signal: "TERM", Grace: 30 * second}, attempt.Asked},
		"stopped, with a grace":          {life(nil), seen(1, job(func(as *nodev1.Assignment) { as.Stop, as.Grace = true, seconds(4) })), do{Act: attempt.Term, Signal: "TERM", Grace: 4 * second}, attempt.Asked},
		"released":                       {life(nil), with(seen(1, job(nil)), func(s *attempt.Seen) { s.Released = true }), do{Act: attempt.Term, Signal: "TERM", Grace: 30 * second}, attempt.Asked},
		"known to nobody":                {life(nil), seen(1, nil), do{Act: attempt.Term, Signal: "TERM", Grace: 30 * second}, attempt.Asked},
		"a request comes before a limit": {life(nil), seen(100, stop), do{Act: attempt.Term, Signal: "TERM", Grace: 30 * second}, attempt.Asked},
		"a limit before making room":     {life(nil), seen(100, job(preempt("USR1", 9))), do{Act: attempt.Term, Signal: "TERM", Grace: 30 * second}, attempt.TimeLimit},
		"stood idle":                     {life(nil), with(seen(1, job(nil)), func(s *attempt.Seen) { s.Idle = true }), do{Act: attempt.Term, Signal: "TERM", Grace: 30 * second}, attempt.StoodIdle},
		"its card is gone":               {over(false, -1, false), with(seen(1, job(nil)), func(s *attempt.Seen) { s.Cards = attempt.CardGone }), do{Act: attempt.Term, Signal: "TERM", Grace: 30 * second}, attempt.CardGone},

		"a new limit is written first": {life(func(l *attempt.Life) { l.Limit = 50 * second }), seen(100, job(nil)), do{Act: attempt.NoteLimit, Record: true}, attempt.NoCause},
		"of one released no more":      {life(func(l *attempt.Life) { l.Limit = 50 * second }), with(seen(1, job(nil)), func(s *attempt.Seen) { s.Released = true }), do{Act: attempt.Term, Signal: "TERM", Grace: 30 * second}, attempt.Asked},

		"not yet warned":              {life(nil), seen(75, job(warning(20))), do{Wait: 5 * second}, attempt.NoCause},
		"warned":                      {life(nil), seen(80, job(warning(20))), do{Act: attempt.Warn, Record: true, Signal: "USR2"}, attempt.NoCause},
		"warned late":                 {life(nil), seen(99, job(warning(20))), do{Act: attempt.Warn, Record: true, Signal: "USR2"}, attempt.NoCause},
		"warned once":                 {warned, seen(81, job(warning(20))), do{Wait: 10 * second}, attempt.NoCause},
		"without a limit never":       {attempt.Life{Started: at(0)}, seen(81, &nodev1.Assignment{Warning: job(warning(20)).Warning}), do{Wait: 10 * second}, attempt.NoCause},
		"who was told to end is not":  {saving(70, 70), seen(85, job(warning(20))), do{Wait: 10 * second}, attempt.Room},
		"who makes room is not":       {life(nil), seen(85, job(func(as *nodev1.Assignment) { warning(20)(as); preempt("INT", 5)(as) })), do{Act: attempt.NoteRoom, Record: true}, attempt.NoCause},
		"told to save after a record": {saving(50, -1), seen(51, job(preempt("INT", 20))), do{Act: attempt.Save, Record: true, Signal: "INT", Grace: 20 * second}, attempt.Room},
		"a signal of times to come":   {saving(50, -1), seen(51, job(preempt("XYZ", 20))), do{Act: attempt.Save, Record: true, Signal: "TERM", Grace: 20 * second}, attempt.Room},
		"saves":                       {saving(50, 51), seen(62, job(preempt("INT", 20))), do{Wait: 8 * second}, attempt.Room},
		"had its time to save":        {saving(50, 51), seen(70, job(preempt("INT", 20))), do{Act: attempt.Term, Signal: "TERM", Grace: 30 * second}, attempt.Room},
		"has no hook":                 {saving(50, -1), seen(51, job(preempt("", 0))), do{Act: attempt.Save, Record: true, Signal: "TERM", Grace: 30 * second}, attempt.Room},
		"has no hook, and ends":       {saving(50, 51), seen(79, job(preempt("", 0))), do{Wait: second}, attempt.Room},
		"has no hook, and does not":   {saving(50, 51), seen(80, job(preempt("", 0))), do{Act: attempt.Kill, Signal: "KILL", Wait: second}, attempt.Room},
		"need not make room any more": {saving(50, 51), seen(60, job(nil)), do{Wait: 10 * second}, attempt.Room},

		"above its share":              {over(false, -1, false), seen(1, job(nil)), do{Act: attempt.NoteOver, Record: true}, attempt.OverCap},
		"is told":                      {over(false, 1, false), seen(2, job(nil)), do{Act: attempt.Tell, Record: true, Signal: "USR1"}, attempt.OverCap},
		"was told":                     {over(false, 1, true), seen(3, job(nil)), do{Wait: 3 * second}, attempt.OverCap},
		"was told long ago":            {over(false, 1, true), seen(6, job(nil)), do{Act: attempt.Term, Signal: "TERM", Grace: 30 * second}, attempt.OverCap},
		"urgent, written first":        {over(true, -1, false), seen(1, job(nil)), do{Act: attempt.NoteOver, Record: true}, attempt.OverCap},
		"urgent, not told":             {over(true, 1, false), seen(1, job(nil)), do{Act: attempt.Term, Signal: "TERM", Grace: 30 * second}, attempt.OverCap},
		"comes before making room":     {over(false, -1, false), seen(1, job(preempt("INT", 20))), do{Act: attempt.NoteOver, Record: true}, attempt.OverCap},
		"had TERM":                     {termed(80, false), seen(55, stop), do{Wait: 10 * second}, attempt.Asked},
		"had TERM, soon to be killed":  {termed(80, false), seen(78, stop), do{Wait: 2 * second}, attempt.Asked},
		"a new wish changes nothing":   {termed(80, false), seen(78, job(nil)), do{Wait: 2 * second}, attempt.Asked},
		"its grace is over":            {termed(80, false), seen(80, stop), do{Act: attempt.Kill, Signal: "KILL", Wait: second}, attempt.Asked},
		"its neighbours have no room":  {termed(80, false).Over(&caps.Breach{Urgent: true}), seen(60, stop), do{Act: attempt.Kill, Signal: "KILL", Wait: second}, attempt.Asked},
		"they have room":               {termed(80, false).Over(&caps.Breach{}), seen(78, stop), do{Wait: 2 * second}, attempt.Asked},
		"was killed":                   {termed(80, true), seen(81, stop), do{Act: attempt.Kill, Signal: "KILL", Wait: 10 * second}, attempt.Asked},
		"was killed, and will be said": {termed(80, true), seen(137, stop), do{Act: attempt.Kill, Signal: "KILL", Wait: 3 * second}, attempt.Asked},
		"cannot be killed":             {termed(80, true), seen(140, stop), do{Act: attempt.Stuck, Signal: "KILL", Wait: 60 * second}, attempt.Asked},
	} {
		got := c.life.Next(c.seen)
		then := got.Then
		got.Then = attempt.Life{}
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
		if then.Cause != c.cause {
			t.Errorf("%s: ends for %d, want %d", name, then.Cause, c.cause)
		}
	}
}

// TestLifeOfOneThatMakesRoom: each act once and in order, the record before the
// signal, up to a KILL that is repeated.
func TestLifeOfOneThatMakesRoom(t *testing.T) {
	t.Parallel()
	l, as := life(nil), job(preempt("USR2", 5))
	for _, c := range []struct {
		now  int
		want attempt.Act
	}{
		{10, attempt.NoteRoom}, {10, attempt.Save}, {10, attempt.LookAgain}, {15, attempt.Term},
		{15, attempt.LookAgain}, {45, attempt.Kill}, {46, attempt.Kill}, {105, attempt.Stuck}, {165, attempt.Stuck},
	} {
		do := l.Next(seen(c.now, as))
		if do.Act != c.want {
			t.Fatalf("after %d s: %d, want %d", c.now, do.Act, c.want)
		}
		if l = do.Then; do.Act == attempt.Term {
			l.KillAt = at(c.now).Add(do.Grace)
		}
	}
}

// TestNewLimitWarnsAgain: only where there is time again before the warning.
func TestNewLimitWarnsAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		limit, now int
		warned     bool
	}{
		"more time": {limit: 200, now: 90}, "none at all": {limit: 0, now: 90},
		"hardly more": {limit: 105, now: 90, warned: true}, "just not": {limit: 110, now: 90, warned: true}, "just": {limit: 111, now: 90},
	} {
		l := life(nil).With(func(p *nodev1.Progress) { p.Warned = true })
		as := job(warning(20))
		as.TimeLimit = seconds(c.limit)
		do := l.Next(seen(c.now, as))
		if do.Act != attempt.NoteLimit || do.Then.Limit != time.Duration(c.limit)*second || do.Then.Progress.GetWarned() != c.warned {
			t.Errorf("%s: %+v", name, do)
		}
		if !l.Progress.Warned {
			t.Errorf("%s: changed what was before", name)
		}
	}
}

// TestRecord: what a life has in the journal it has after a restart.
func TestRecord(t *testing.T) {
	t.Parallel()
	breach := &nodev1.MemBreach{Uuid: "g", At: timestamppb.New(at(3)), Sent: true}
	for name, c := range map[string]struct {
		as         *nodev1.Assignment
		life, want attempt.Life // want without Limit
	}{
		"nothing":     {job(nil), attempt.Life{}, attempt.Life{}},
		"what passes": {job(nil), attempt.Life{KillAt: at(1), Killed: true, Cause: attempt.Asked}, attempt.Life{}},
		"progress":    {job(nil), attempt.Life{Progress: &nodev1.Progress{Warned: true}}, attempt.Life{Progress: &nodev1.Progress{Warned: true}}},
		"its memory":  {job(nil), attempt.Life{Breach: breach}, attempt.Life{Breach: breach, Cause: attempt.OverCap}},
		"to save":     {job(preempt("INT", 9)), attempt.Life{Saving: at(5)}, attempt.Life{Saving: at(5), Cause: attempt.Room}},
		"told so":     {job(preempt("INT", 9)), attempt.Life{Saving: at(5), Signaled: at(6)}, attempt.Life{Saving: at(5), Signaled: at(5), Cause: attempt.Room}},
		"both": {
			job(preempt("INT", 9)), attempt.Life{Saving: at(5), Breach: breach},
			attempt.Life{Saving: at(5), Breach: breach, Cause: attempt.OverCap},
		},
	} {
		before := proto.CloneOf(c.as)
		got := attempt.Remember(c.life.Record(c.as))
		if !proto.Equal(c.as, before) {
			t.Errorf("%s: the assignment was changed", name)
		}
		if !got.Saving.Equal(c.want.Saving) || !got.Signaled.Equal(c.want.Signaled) || got.Cause != c.want.Cause || got.Limit != 100*second ||
			!got.KillAt.IsZero() || got.Killed || !proto.Equal(got.Breach, c.want.Breach) || !proto.Equal(got.Progress, c.want.Progress) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	as := job(nil) // what a leader sends is not what was done
	as.Progress = &nodev1.Progress{Warned: true}
	if got := (attempt.Life{}).Record(as); got.Progress != nil {
		t.Errorf("of nothing done: %v", got.Progress)
	}
}

// TestOver: the first that is found stays, and becomes urgent.
func TestOver(t *testing.T) {
	t.Parallel()
	first := life(nil).Over(nil).Over(&caps.Breach{UUID: "a", HeldMiB: 20, CapMiB: 10, Since: at(1)})
	same := first.Over(&caps.Breach{UUID: "b", HeldMiB: 90, CapMiB: 10})
	urgent := first.Over(&caps.Breach{UUID: "a", HeldMiB: 30, CapMiB: 10, Urgent: true})
	if b := first.Breach; b.Uuid != "a" || b.HeldMib != 20 || b.CapMib != 10 || !b.Since.AsTime().Equal(at(1)) || b.Urgent {
		t.Errorf("first %v", b)
	}
	if same.Breach != first.Breach {
		t.Errorf("then %v", same.Breach)
	}
	if b := urgent.Breach; b.Uuid != "a" || b.HeldMib != 30 || !b.Urgent || first.Breach.Urgent {
		t.Errorf("urgent %v", b)
	}
}

// TestAnEndForMemoryStepByStep: it is noted, told once, and then ended after the grace; a
// session that stands idle meanwhile is ended for its memory.
func TestAnEndForMemoryStepByStep(t *testing.T) {
	t.Parallel()
	l := life(nil).Over(&caps.Breach{UUID: "g", HeldMiB: 20, CapMiB: 10, Since: at(9)})
	for i, c := range []struct {
		now  int
		want attempt.Act
		wait time.Duration
	}{
		{10, attempt.NoteOver, 0}, {10, attempt.Tell, 0}, {10, attempt.LookAgain, 5 * second}, {12, attempt.LookAgain, 3 * second}, {15, attempt.Term, 0},
	} {
		s := seen(c.now, job(nil))
		s.Idle = true
		do := l.Next(s)
		if do.Act != c.want || do.Wait != c.wait {
			t.Errorf("step %d: %d, look again after %s; want %d, %s", i, do.Act, do.Wait, c.want, c.wait)
		}
		if l = do.Then; l.Cause != attempt.OverCap {
			t.Errorf("step %d: it ends for %d", i, l.Cause)
		}
	}
}

package fsm

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
)

// portion is what somebody may have of a card.
type portion struct{ mem, milli int64 }

// within reports whether it is no larger than another one.
func (s portion) within(o portion) bool { return s.mem <= o.mem && s.milli <= o.milli }

// lodger is a job that runs on a card, to a landlord who notes what it was promised,
// what it has, and what was taken from it for which reason.
type lodger struct {
	id       cluster.JobID
	promised portion
	has      portion
	fixed    bool     // it asked not to be cut
	cut      *portion // what it had before it was cut to what it used
	wasCut   bool     // once is enough
	idle     *portion // what it had before it was cut for standing idle
	stage    cluster.IdleStage
	marked   bool
	leaves   bool // it was told to
}

// landlord keeps the books of one card of 40,000 MiB for at most three.
type landlord struct {
	t       *rapid.T
	m       *machine
	lodgers []*lodger
	idle    bool // the house has an idle policy
	resize  bool // and cuts what is not used
}

func (l *landlord) draw(what string, n int) int { return rapid.IntRange(0, n-1).Draw(l.t, what) }

func (l *landlord) portion(what string, most int) portion {
	return portion{mem: int64(1+l.draw(what+" mem", most)) * 2000, milli: int64(1+l.draw(what+" milli", most)) * 50}
}

// less is a part of a portion, or now and then any.
func (l *landlord) less(what string, of portion) portion {
	if l.draw(what+" any", 5) == 0 {
		return l.portion(what, 10)
	}
	return portion{mem: int64(1+l.draw(what+" mem", int(of.mem/1000))) * 1000, milli: int64(1+l.draw(what+" milli", int(of.milli/25))) * 25}
}

// room reports whether somebody may have so much, beside all others.
func (l *landlord) room(but *lodger, s portion) bool {
	n := 1
	for _, x := range l.lodgers {
		if x != but {
			n++
			s.mem, s.milli = s.mem+x.has.mem, s.milli+x.has.milli
		}
	}
	return n <= 3 && s.mem <= 40_000 && s.milli <= 1000
}

func (l *landlord) house() {
	l.idle, l.resize = l.draw("idle", 4) > 0, l.draw("resize", 4) > 0
	p := &cluster.Partition{Name: "gpu", Nodes: hosts(l.t, "ALL"), Resize: cluster.ResizeOff}
	if l.idle {
		p.Idle = cluster.IdlePolicy{BelowMilli: 50, Window: time.Minute, End: time.Hour}
	}
	if l.resize {
		p.Resize = cluster.ResizeEager
	}
	base := uint64(0)
	if old, there := l.m.f.Partition("gpu"); there {
		base = old.Revision
	}
	l.m.must(partitionCmd(p, base))
}

func (l *landlord) comes() {
	x := &lodger{promised: l.portion("promised", 10), fixed: l.draw("fixed", 5) == 0}
	x.has = x.promised
	s := inPartition("gpu")
	s.NoResize = x.fixed
	x.id = l.m.submit(s)
	r := l.m.must(planCmd(dispatch.Plan{Starts: []dispatch.Start{l.m.startOf(x.id, share1("n1-g0", x.has.mem, x.has.milli))}}))
	if got, want := len(r.Plan.Started) == 1, l.room(nil, x.has); got != want {
		l.t.Fatalf("%+v comes to %d others: %t, by the books %t", *x, len(l.lodgers), got, want)
	} else if !want {
		l.m.must(cancelCmd(x.id, 0))
		return
	}
	l.m.report(x.id, cluster.JobRunning)
	l.lodgers = append(l.lodgers, x)
}

func (l *landlord) goes(x *lodger) {
	l.m.report(x.id, cluster.JobCompleted)
	l.lodgers = slices.DeleteFunc(l.lodgers, func(o *lodger) bool { return o == x })
}

// idles takes somebody to a stage of the idle policy, or back.
func (l *landlord) idles(x *lodger) {
	to := cluster.IdleStage(l.draw("stage", int(cluster.IdleEnded)+1))
	cut := l.less("cut", x.has)
	with := to == cluster.IdleShrunk && l.draw("with a cut", 4) > 0
	cmd := idleCmd(x.id, to)
	if with {
		cmd = idleCmd(x.id, to, share1("n1-g0", cut.mem, cut.milli))
	}
	want := done
	news := to == cluster.IdleNone && x.marked || to != cluster.IdleNone && (!x.marked || to > x.stage)
	switch {
	case x.leaves, to != cluster.IdleNone && !l.idle:
		want = cluster.CodeConflict
	case news && with && x.idle == nil && !cut.within(x.has):
		want = cluster.CodeInvalid
	}
	if l.says(cmd.String(), l.m.do(cmd)[0], want) != done || !news {
		return
	}
	x.stage, x.marked = to, true
	switch {
	case with && x.idle == nil:
		had := x.has
		x.idle, x.has = &had, cut
	case to == cluster.IdleEnded:
		x.leaves = true
	case to == cluster.IdleNone && x.idle != nil:
		// It wants back what it had, and keeps what it got meanwhile.
		all := portion{max(x.has.mem, x.idle.mem), max(x.has.milli, x.idle.milli)}
		if !l.room(x, all) {
			return
		}
		x.has, x.idle, x.marked = all, nil, false
	case to == cluster.IdleNone:
		x.marked = false
	}
}

// cuts gives somebody less, once, or more again.
func (l *landlord) cuts(x *lodger) {
	to := l.less("to", x.has)
	if x.cut != nil && l.draw("more", 4) > 0 {
		to = portion{mem: x.has.mem + (x.cut.mem-x.has.mem)/int64(1+l.draw("part", 2)), milli: x.cut.milli}
	}
	cmd := resizeCmd(x.id, share1("n1-g0", to.mem, to.milli))
	want := done
	switch {
	case x.cut != nil && (!x.has.within(to) || !to.within(*x.cut)):
		want = cluster.CodeInvalid
	case x.cut != nil && !l.room(x, to):
		want = cluster.CodeConflict
	case x.cut != nil:
	case !l.resize || x.fixed || x.wasCut || x.leaves || x.idle != nil:
		want = cluster.CodeConflict
	case !to.within(x.has):
		want = cluster.CodeInvalid
	}
	if l.says(cmd.String(), l.m.do(cmd)[0], want) != done {
		return
	}
	had := x.has
	x.has = to
	switch {
	case x.cut == nil:
		x.cut, x.wasCut = &had, true
	case x.cut.within(to):
		x.cut = nil
	}
}

// says holds an answer against what is right, and returns it.
func (l *landlord) says(what string, r Result, want cluster.Code) cluster.Code {
	got := done
	if r.Err != nil {
		got = r.Err.Code
	}
	if got != want {
		l.t.Fatalf("%s: %v, by the books code %d; %s", what, r.Err, want, l)
	}
	return got
}

func (l *landlord) String() (s string) {
	for _, x := range l.lodgers {
		s += fmt.Sprintf("%+v, cut %+v, idle %+v\n", *x, x.cut, x.idle)
	}
	return s
}

// check holds the books against the machine.
func (l *landlord) check(what string) {
	sum := portion{}
	for _, x := range l.lodgers {
		sum.mem, sum.milli = sum.mem+x.has.mem, sum.milli+x.has.milli
		a := l.m.job(x.id).Live()
		got := a.Berth.GPUs[0].Share
		granted := x.has.mem
		if x.cut != nil {
			granted = x.cut.mem
		}
		switch {
		case got.MemMiB != x.has.mem || got.Milli != x.has.milli || got.Exclusive:
			l.t.Fatalf("%s: job %d has %+v, by the books\n%s", what, x.id, got, l)
		case a.Granted(0) != granted || a.WasCut() != (x.cut != nil) || (a.Resize != nil) != x.wasCut:
			l.t.Fatalf("%s: job %d may have %d, by the books %d; %+v", what, x.id, a.Granted(0), granted, a.Resize)
		case (a.Idle != nil) != x.marked || x.marked && a.Idle.Stage != x.stage:
			l.t.Fatalf("%s: job %d is marked %+v, by the books %t, %d", what, x.id, a.Idle, x.marked, x.stage)
		case x.has.mem > x.promised.mem || x.has.milli > x.promised.milli:
			l.t.Fatalf("%s: job %d has more than it was promised: %+v", what, x.id, *x)
		case !x.marked && x.cut == nil && x.has != x.promised:
			l.t.Fatalf("%s: nobody takes anything from job %d, and it has %+v of %+v", what, x.id, x.has, x.promised)
		}
	}
	if u, _ := l.m.f.st.fleet.Ledger().GPU("n1-g0"); u.UsedMiB != sum.mem || u.UsedMilli != sum.milli || int(u.Shares) != len(l.lodgers) {
		l.t.Fatalf("%s: the card holds %+v, by the books %+v of %d", what, u, sum, len(l.lodgers))
	}
}

// TestSharesByTheBooks: whatever is cut of shares since it is not used, or since its job
// stands idle, and whatever grows again, in any order and as houses change their rules:
// each job has what a landlord's books say, nobody loses anything for good, and the card
// holds the sum.
func TestSharesByTheBooks(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := &landlord{t: t, m: newMachine(t)}
		l.m.must(initCmd("c1", 1000))
		l.m.must(registerCmd(node("n1", "boot1", 1)))
		l.house()
		for range rapid.IntRange(5, 40).Draw(t, "steps") {
			step := l.draw("step", 10)
			if len(l.lodgers) == 0 || step == 0 {
				l.comes()
				l.check("one comes")
				continue
			}
			x := l.lodgers[l.draw("who", len(l.lodgers))]
			switch {
			case step == 1:
				l.goes(x)
			case step == 2:
				l.house()
			case step < 7:
				l.idles(x)
			default:
				l.cuts(x)
			}
			l.check(fmt.Sprint("step ", step))
		}
		l.m.f = restored(t, snapshotOf(t, l.m.f))
		l.check("a restore")
		for _, x := range slices.Clone(l.lodgers) {
			l.goes(x)
		}
		l.check("all are gone")
	})
}

package lead

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/coordinator/nodes"
	"github.com/berth-scheduler/berth/fsm"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

func hooked(s *cluster.Spec) { s.Checkpoint = cluster.Checkpoint{Signal: "USR1", Grace: time.Minute} }

// TestPreemptionsArePaced: those of one pass go, at most so many, and none of another
// pass for a while but for deadlines that were promised, which delay no others; who
// ended, runs anew or has no hook is not asked.
func TestPreemptionsArePaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := planBy(nil)
		s.PreemptEvery = 90 * time.Second
		l := newLab(t, Config{}, s)
		l.machine("n1", 0, func(n *cluster.Node) { n.CPUMilli = 1 << 20 })
		l.machine("n2", 3, nil)
		var run []cluster.JobID
		for range 80 {
			run = append(run, l.running(job(0, hooked), berth("n1")))
		}
		bare := l.running(job(0, nil), berth("n1"))
		order := l.submit(job(1, nil))[0]
		due := l.submit(job(1, func(s *cluster.Spec) { s.Deadline = cluster.TimeOf(time.Now().Add(20 * time.Hour)) }))[0]
		gone := l.running(job(0, hooked), berth("n1"))
		l.say(gone, cluster.JobCompleted, nil)
		pre := func(id, for_ cluster.JobID) dispatch.Preemption {
			return dispatch.Preemption{Job: id, Attempt: 1, For: for_, Why: "room"}
		}
		ask := func(ps ...dispatch.Preemption) (asked []cluster.JobID) {
			t.Helper()
			mark := l.mark()
			if err := l.l.plan.preempt(t.Context(), ps); err != nil {
				t.Fatal(err)
			}
			for _, c := range l.since(mark, func(c *logv1.Command) bool { return c.GetPreemptAttempt() != nil }) {
				asked = append(asked, cluster.JobID(c.cmd.GetPreemptAttempt().Job))
			}
			return asked
		}
		want := func(what string, got []cluster.JobID, want ...cluster.JobID) {
			t.Helper()
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%s: %s", what, d)
			}
		}
		old := pre(run[0], order)
		old.Attempt = 2
		want("those who cannot be", ask(old, pre(bare, order), pre(gone, order), pre(9999, order)))
		want("a deadline first", ask(pre(run[1], due)), run[1])
		time.Sleep(89 * time.Second)
		want("in the pause that a deadline began", ask(pre(run[2], order), pre(run[3], 0), pre(run[4], due)), run[4])
		time.Sleep(time.Second)
		want("after it", ask(pre(run[5], order), pre(run[6], 0)), run[5], run[6])
		time.Sleep(60 * time.Second)
		want("a deadline does not wait", ask(pre(run[7], order), pre(run[8], due)), run[8])
		time.Sleep(30 * time.Second)
		want("and delays nobody", ask(pre(run[9], order)), run[9])
		time.Sleep(90 * time.Second)
		var all []dispatch.Preemption
		for _, id := range run[10:] {
			all = append(all, pre(id, order))
		}
		if got := ask(all...); len(got) != maxPreempts || got[0] != run[10] {
			t.Errorf("%d of %d in one pass, want %d", len(got), len(all), maxPreempts)
		}
		if a, b := l.counted("berth_preemptions_total", forAnother), l.counted("berth_preemptions_total", forSpeed); a != 5+maxPreempts || b != 1 {
			t.Errorf("counted: %g for others, %g for speed", a, b)
		}
		if p := l.job(run[5]).Live().Preempt; p == nil || p.For != order {
			t.Errorf("in the state: %+v", p)
		}
	})
}

// TestPreemptionsWaitForAll: while a coordinator cannot read them nobody is asked, and
// no pause begins.
func TestPreemptionsWaitForAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, Config{}, planBy(nil))
		l.machine("n1", 0, nil)
		id := l.running(job(0, hooked), berth("n1"))
		ps := []dispatch.Preemption{{Job: id, Attempt: 1, Why: "room"}}
		l.prop.SetVersion(1, nil)
		if err := l.l.plan.preempt(t.Context(), ps); err != nil || l.job(id).Live().Preempt != nil {
			t.Fatalf("%v; %v", err, l.job(id).Live().Preempt)
		}
		l.prop.SetVersion(fsm.EntryVersion, nil)
		if err := l.l.plan.preempt(t.Context(), ps); err != nil || l.job(id).Live().Preempt == nil {
			t.Errorf("%v; %v", err, l.job(id).Live().Preempt)
		}
		if s := (&Scheduling{}); s.preemptEvery() != time.Minute || s.interval() != time.Second {
			t.Errorf("by default %s and %s", s.preemptEvery(), s.interval())
		}
		if s := (&Scheduling{Interval: 7, PreemptEvery: 9}); s.preemptEvery() != 9 || s.interval() != 7 {
			t.Errorf("as set %s and %s", s.preemptEvery(), s.interval())
		}
	})
}

// shares are what was committed of shares that follow what jobs use; what is asked for
// again, since there was no room, counts once.
func (l *lab) shares(began time.Time) (out []string) {
	asked := map[string]bool{}
	for _, c := range l.since(0, func(c *logv1.Command) bool { return c.GetResizeAttempt() != nil || c.GetPreemptAttempt() != nil }) {
		if m := c.cmd.GetResizeAttempt(); m != nil {
			if key := m.String(); asked[key] {
				continue
			} else {
				asked[key] = true
			}
			out = append(out, fmt.Sprintf("%s job %d has %d MiB", c.at.Sub(began).Truncate(5*time.Second), m.Job, m.Gpus[0].MemMib))
			continue
		}
		m := c.cmd.GetPreemptAttempt()
		out = append(out, fmt.Sprintf("%s job %d makes room for job %d", c.at.Sub(began).Truncate(5*time.Second), m.Job, m.For))
	}
	return out
}

// TestSharesFollowUse: a share is cut once its peak is steady, and grows before it is
// needed; where somebody came meanwhile that one makes room, asked once, and so it does
// when the job has met what was left to it.
func TestSharesFollowUse(t *testing.T) {
	t.Parallel()
	for _, meets := range []bool{false, true} {
		t.Run(fmt.Sprintf("met %t", meets), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t, Config{}, planBy(nil))
				l.machine("n1", 1, nil)
				l.partition(&cluster.Partition{Name: "eager", Resize: cluster.ResizeEager})
				big := berth("n1", 0)
				big.GPUs[0].Share.MemMiB = 30_000
				eager := func(s *cluster.Spec) { s.Partition = "eager"; hooked(s) }
				id := l.submit(job(1, eager))[0]
				l.start(id, big)
				l.say(id, cluster.JobNodeFail, func(r *logv1.ReportAttempt) { r.Reason = &logv1.Reason{Code: string(cluster.ReasonNodeFault)} })
				l.start(id, big) // its second attempt
				l.say(id, cluster.JobRunning, nil)
				began, u := time.Now(), nodes.Use{PeakMiB: 4000}
				l.loop(l.l.resizeAll)
				tell := func(d time.Duration) {
					for range int(d / time.Second) {
						time.Sleep(time.Second / 2) // a leader looks at whole seconds
						u.KnownMs, u.BusyMs = u.KnownMs+1000, u.BusyMs+500_000
						l.use(id, 2, u)
						time.Sleep(time.Second / 2)
					}
				}
				tell(time.Minute)
				u.PeakMiB = 4500 // it is not steady: the wait begins anew
				tell(2 * time.Minute)
				want := []string{"2m10s job 1 has 5206 MiB"}
				if d := cmp.Diff(want, l.shares(began)); d != "" {
					t.Fatal(d)
				}
				u.PeakMiB = 5100
				tell(10 * time.Second)
				want = append(want, "3m0s job 1 has 5866 MiB")
				if d := cmp.Diff(want, l.shares(began)); d != "" {
					t.Fatal(d)
				}
				// Others come into what was taken.
				for _, mib := range []int64{12_000, 22_100} {
					b := berth("n1", 0)
					b.GPUs[0].Share.MemMiB = mib
					l.running(job(1, eager), b)
					tell(5 * time.Second)
				}
				if meets {
					l.say(id, cluster.JobOutOfMemory, func(r *logv1.ReportAttempt) { r.Usage = &logv1.Usage{GpuMemPeakMib: 5866, GpuOom: true} })
					if s := l.job(id).State; s != cluster.JobPending {
						t.Fatalf("it is %s", s)
					}
					time.Sleep(10 * time.Second)
				} else {
					u.PeakMiB = 5800
					tell(10 * time.Second)
				}
				want = append(want, "3m20s job 3 makes room for job 1") // nothing is proposed for which there is no room
				if d := cmp.Diff(want, l.shares(began)); d != "" {
					t.Error(d)
				}
			})
		})
	}
}

// TestNoSharesFollowWhereTheyMayNot: not of a partition that is off, one whose use one
// of its nodes has not told, nor before every coordinator reads it.
func TestNoSharesFollowWhereTheyMayNot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, Config{}, planBy(nil))
		l.machine("n1", 3, nil)
		l.partition(&cluster.Partition{Name: "eager", Resize: cluster.ResizeEager})
		l.partition(&cluster.Partition{Name: "off", Resize: cluster.ResizeOff})
		on := func(card int, part string) cluster.JobID {
			b := berth("n1", card)
			b.GPUs[0].Share.MemMiB = 30_000
			return l.running(job(1, func(s *cluster.Spec) { s.Partition = part; hooked(s) }), b)
		}
		off, silent, late := on(0, "off"), on(1, "eager"), on(2, "eager")
		l.mu.Lock()
		l.part[cluster.AttemptID{Job: silent, No: 1}] = true
		l.mu.Unlock()
		began := time.Now()
		l.prop.SetVersion(1, nil)
		l.loop(l.l.resizeAll)
		tell := func(d time.Duration) {
			for i := range int(d / time.Second) {
				time.Sleep(time.Second / 2)
				for _, id := range []cluster.JobID{off, silent, late} {
					l.use(id, 1, nodes.Use{PeakMiB: 4000, KnownMs: int64(time.Since(began).Milliseconds()), BusyMs: int64(i)})
				}
				time.Sleep(time.Second / 2)
			}
		}
		tell(3 * time.Minute)
		if got := l.shares(began); got != nil {
			t.Errorf("not every coordinator reads it: %v", got)
		}
		l.prop.SetVersion(fsm.EntryVersion, nil)
		tell(3 * time.Minute)
		if d := cmp.Diff([]string{fmt.Sprintf("3m0s job %d has 4656 MiB", late)}, l.shares(began)); d != "" {
			t.Error(d)
		}
	})
}

// TestRunEnds with its term, all of its loops.
func TestRunEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, Config{}, planBy(nil))
		l.machine("n1", 1, nil)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- l.l.Run(ctx) }()
		time.Sleep(time.Minute)
		id := l.submit(job(1, nil))[0]
		l.l.Note([]fsm.Change{{Job: id, New: true}})
		time.Sleep(time.Second)
		if l.job(id).State != cluster.JobStarting {
			t.Errorf("the job is %s", l.job(id).State)
		}
		cancel()
		if err := <-done; err == nil {
			t.Error("it ended without a reason")
		}
	})
}

package lead

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/nodes"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// stages are what was said of idle jobs: when since a time, which stage, and from when
// on by what was said.
func (l *lab) stages(began time.Time) (out []string) {
	for _, c := range l.since(0, func(c *logv1.Command) bool { return c.GetIdleAttempt() != nil }) {
		m := c.cmd.GetIdleAttempt()
		since := "-"
		if m.SinceUs != 0 {
			since = cluster.Time(m.SinceUs).Std().Sub(began).String()
		}
		words := cluster.IdleStage(m.Stage).String()
		if words == "" {
			words = "busy"
		}
		out = append(out, fmt.Sprintf("%s job %d %s since %s", c.at.Sub(began), m.Job, words, since))
	}
	return out
}

// tells has an attempt tell each second what it has used, for so long: milli thousandths
// of each of so many cards.
func (l *lab) tells(id cluster.JobID, cards int, u *nodes.Use, milli int64, d time.Duration) {
	for range int(d / time.Second) {
		time.Sleep(time.Second / 2) // a leader looks at whole seconds
		u.KnownMs += 1000 * int64(cards)
		u.BusyMs += milli * 1000 * int64(cards)
		l.use(id, l.job(id).Live().No, *u)
		time.Sleep(time.Second / 2)
		synctest.Wait()
	}
}

// TestIdleStages: from its start, after the grace and a whole window, a job goes through
// every stage of the policy one by one, each as soon as its time has come; what it does
// meanwhile takes it back, and so does a policy that is taken away.
func TestIdleStages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, Config{IdleEvery: time.Second}, planBy(nil))
		l.machine("n1", 3, nil)
		pol := cluster.IdlePolicy{BelowMilli: 50, Window: time.Minute, Grace: 30 * time.Second, Warn: time.Minute, Shrink: 3 * time.Minute, End: 5 * time.Minute}
		l.partition(&cluster.Partition{Name: "p", Idle: pol})
		id := l.submit(job(2, func(s *cluster.Spec) { s.Partition = "p" }))[0]
		l.start(id, berth("n1", 0, 1))
		time.Sleep(time.Minute)
		l.say(id, cluster.JobRunning, nil)
		began := time.Now()
		l.loop(l.l.watchIdle)
		u := &nodes.Use{PeakMiB: 1000}
		l.tells(id, 2, u, 10, 6*time.Minute)
		want := []string{
			"1m30s job 1 reported since 30s", "1m30s job 1 warned since 30s", "3m30s job 1 shrunk since 30s", "5m30s job 1 ended since 30s",
		}
		if d := cmp.Diff(want, rounded(trimmed(l.stages(began)))); d != "" {
			t.Error(d)
		}
		cut := l.since(0, func(c *logv1.Command) bool { return c.GetIdleAttempt().GetBerth() != nil })
		if len(cut) != 1 || len(cut[0].cmd.GetIdleAttempt().Berth.Gpus) != 2 {
			t.Fatalf("cuts: %v", cut)
		}
		for _, g := range cut[0].cmd.GetIdleAttempt().Berth.Gpus {
			if s := g; s.MemMib != 1000+200+256 || s.Milli != 10 {
				t.Errorf("cut to %v", s)
			}
		}
		for i, words := range []string{"reported; its share is cut at 3m", "this is a warning; its share is cut at 3m", "its share is cut to what it has used; it is ended at 5m", "it is ended"} {
			why := l.since(0, func(c *logv1.Command) bool { return c.GetIdleAttempt() != nil })[i].cmd.GetIdleAttempt().Why
			if !strings.Contains(why, words) || !strings.Contains(why, "below 5 %") {
				t.Errorf("stage %d: %q, want %q", i, why, words)
			}
		}
	})
}

// rounded leaves parts of seconds out: a leader looks once a second.
func rounded(in []string) (out []string) {
	for _, s := range in {
		at, rest, _ := strings.Cut(s, " ")
		d, err := time.ParseDuration(at)
		if err != nil {
			panic(err)
		}
		out = append(out, d.Truncate(5*time.Second).String()+" "+rest)
	}
	return out
}

// TestIdleIsTakenBack by what the job does, by its policy's end, and by a later leader
// that goes on from the mark; who asked for more time has it.
func TestIdleIsTakenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, Config{IdleEvery: time.Second}, planBy(nil))
		l.machine("n1", 3, nil)
		part := &cluster.Partition{Name: "p", Idle: cluster.IdlePolicy{BelowMilli: 50, Window: time.Minute, Warn: 4 * time.Minute, MaxOK: 3 * time.Minute}}
		l.partition(part)
		in := func(ok time.Duration) *cluster.Spec {
			return job(1, func(s *cluster.Spec) { s.Partition, s.IdleOK = "p", ok })
		}
		id, patient := l.running(in(0), berth("n1", 0)), l.running(in(time.Hour), berth("n1", 1))
		l.running(job(1, nil), berth("n1", 2)) // in no partition
		began := time.Now()
		l.loop(l.l.watchIdle)
		u, v := &nodes.Use{}, &nodes.Use{}
		both := func(milli int64, d time.Duration) {
			for range int(d / time.Second) {
				l.tells(id, 1, u, milli, time.Second)
				v.KnownMs += 1000
				l.use(patient, 1, *v)
			}
		}
		both(0, 2*time.Minute)
		both(900, time.Minute)
		both(0, 3*time.Minute)
		part.Idle = cluster.IdlePolicy{}
		l.partition(part)
		both(0, 20*time.Second)
		want := []string{
			"1m0s job 1 reported since 0s", "2m0s job 1 busy since -", "3m55s job 1 reported since 2m55s", "4m0s job 2 reported since 0s",
			"6m0s job 1 busy since -", "6m0s job 2 busy since -",
		}
		if d := cmp.Diff(want, rounded(trimmed(l.stages(began)))); d != "" {
			t.Error(d)
		}
	})
}

// trimmed leaves parts of seconds out of since when, as well.
func trimmed(in []string) (out []string) {
	for _, s := range in {
		head, since, _ := strings.Cut(s, " since ")
		if d, err := time.ParseDuration(since); err == nil {
			since = d.Truncate(5 * time.Second).String()
		}
		out = append(out, head+" since "+since)
	}
	return out
}

// TestIdleGoesOnUnderANewLeader from the mark: since when it stood idle is not forgotten.
func TestIdleGoesOnUnderANewLeader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, Config{IdleEvery: time.Second}, planBy(nil))
		l.machine("n1", 3, nil)
		l.partition(&cluster.Partition{Name: "p", Idle: cluster.IdlePolicy{BelowMilli: 50, Window: time.Minute, Warn: 3 * time.Minute, End: time.Hour}})
		id := l.running(job(1, func(s *cluster.Spec) { s.Partition = "p" }), berth("n1", 0))
		began, u := time.Now(), &nodes.Use{}
		since := cluster.TimeOf(began)
		u.KnownMs = 60_000
		time.Sleep(time.Minute)
		l.use(id, 1, *u)
		l.do(&logv1.Command{Kind: &logv1.Command_IdleAttempt{IdleAttempt: &logv1.IdleAttempt{
			Job: uint64(id), Attempt: 1, Stage: uint32(cluster.IdleReported), SinceUs: int64(since), KnownMs: 60_000, Why: "x"}}})
		l.loop(l.l.watchIdle) // of the new leader
		l.tells(id, 1, u, 0, 2*time.Minute+10*time.Second)
		got := rounded(l.stages(began))
		if d := cmp.Diff([]string{"1m0s job 1 reported since 0s", "3m0s job 1 warned since 0s"}, got); d != "" {
			t.Error(d)
		}
		// Who is on its way out is let be.
		l.do(&logv1.Command{Kind: &logv1.Command_CancelJob{CancelJob: &logv1.CancelJob{Job: uint64(id), Admin: true}}})
		l.tells(id, 1, u, 900, 3*time.Minute)
		if n := len(l.stages(began)); n != 2 {
			t.Errorf("a job that is cancelled: %v", l.stages(began))
		}
	})
}

// TestCutDown: what an attempt keeps of its shares when they are cut.
func TestCutDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, Config{}, planBy(nil))
		l.machine("n1", 2, func(n *cluster.Node) {
			n.GPUs = append(n.GPUs,
				cluster.GPU{ID: "n1-g2", Index: 2, Type: "A100", MemMiB: 40_960, SellableMiB: 40_000, MaxShares: 3, CapMode: "mps"},
				cluster.GPU{ID: "n1-g3", Index: 3, Type: "A100", MemMiB: 40_960, SellableMiB: 40_000, MaxShares: 1, CapMode: "watch"})
		})
		whole := cluster.GPUShare{GPU: "n1-g0", Share: cluster.Share{MemMiB: 40_000, Milli: 1000, Exclusive: true}}
		of := func(gpu cluster.GPUID, mib int64) cluster.GPUShare {
			return cluster.GPUShare{GPU: gpu, Share: cluster.Share{MemMiB: mib, Milli: 300}}
		}
		for name, c := range map[string]struct {
			on   []cluster.GPUShare
			gang bool
			node cluster.NodeID
			peak int64
			want []int64
		}{
			"a share":                     {[]cluster.GPUShare{of("n1-g0", 9000)}, false, "n1", 5000, []int64{6256}},
			"a share that is nearly used": {[]cluster.GPUShare{of("n1-g0", 6000)}, false, "n1", 5000, []int64{6000}},
			"two of them":                 {[]cluster.GPUShare{of("n1-g0", 9000), of("n1-g1", 3000)}, false, "n1", 5000, []int64{6256, 3000}},
			"a whole card":                {[]cluster.GPUShare{whole}, false, "n1", 10_000, []int64{12_256}},
			"a whole card, all of it":     {[]cluster.GPUShare{whole}, false, "n1", 39_000, []int64{40_000}},
			"nothing used":                {[]cluster.GPUShare{of("n1-g0", 9000)}, false, "n1", 0, []int64{256}},
			"a cap that cannot move":      {[]cluster.GPUShare{of("n1-g2", 9000)}, false, "n1", 5000, nil},
			"one of them cannot":          {[]cluster.GPUShare{of("n1-g0", 9000), of("n1-g2", 9000)}, false, "n1", 5000, nil},
			"a card that nobody shares":   {[]cluster.GPUShare{of("n1-g3", 9000)}, false, "n1", 5000, nil},
			"a card that is gone":         {[]cluster.GPUShare{of("gone", 9000)}, false, "n1", 5000, nil},
			"several nodes":               {[]cluster.GPUShare{of("n1-g0", 9000)}, true, "n1", 5000, nil},
			"a node that is not there":    {[]cluster.GPUShare{of("n1-g0", 9000)}, false, "n7", 5000, nil},
		} {
			a := &cluster.Attempt{Berth: cluster.Berth{Node: c.node, GPUs: c.on}}
			if c.gang {
				a.Gang = &cluster.Gang{Rest: []cluster.Berth{{Node: "n2"}}}
			}
			b := l.l.cutDown(a, c.peak)
			var got []int64
			if b != nil {
				for i, g := range b.GPUs {
					got = append(got, g.Share.MemMiB)
					if g.GPU != c.on[i].GPU || g.Share.Milli != cutMilli || g.Share.Exclusive {
						t.Errorf("%s: %+v of %+v", name, g, c.on[i])
					}
				}
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("%s: %s", name, d)
			}
		}
	})
}

// TestNextStage: no stage of a policy is left out, and none that it has not is taken.
func TestNextStage(t *testing.T) {
	t.Parallel()
	for bits := range 8 {
		p := cluster.IdlePolicy{Window: 1}
		want := []cluster.IdleStage{cluster.IdleReported}
		if bits&1 != 0 {
			p.Warn = 1
			want = append(want, cluster.IdleWarned)
		}
		if bits&2 != 0 {
			p.Shrink = 1
			want = append(want, cluster.IdleShrunk)
		}
		want = append(want, cluster.IdleEnded)
		var got []cluster.IdleStage
		for s := cluster.IdleNone; s != cluster.IdleEnded; {
			s = nextStage(p, s)
			got = append(got, s)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("policy %d: %s", bits, d)
		}
	}
}

// TestHalfOfAGangIsNotIdle: where the use of one of its cards is not known a job is not
// idle, however idle the others are.
func TestHalfOfAGangIsNotIdle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, Config{IdleEvery: time.Second}, planBy(nil))
		l.machine("n1", 1, nil)
		l.machine("n2", 1, nil)
		l.partition(&cluster.Partition{Name: "p", Idle: cluster.IdlePolicy{BelowMilli: 50, Window: time.Minute}})
		span := job(1, func(s *cluster.Spec) { s.Partition, s.Nodes = "p", 2 })
		id := l.running(span, berth("n1", 0), berth("n2", 0))
		began, u := time.Now(), &nodes.Use{}
		l.loop(l.l.watchIdle)
		l.tells(id, 1, u, 0, 3*time.Minute)
		if got := l.stages(began); got != nil {
			t.Errorf("of one of two cards it is known that it stands idle: %v", got)
		}
		l.tells(id, 2, u, 0, 70*time.Second)
		if got := l.stages(began); len(got) != 1 {
			t.Errorf("of both: %v", got)
		}
	})
}

package fsm

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/accounting"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// tryOf is one attempt that ran out of GPU memory.
type tryOf struct {
	had   int64 // MiB of its share
	whole bool
	peak  int64
	alone bool // nobody lay beside it
}

// rung is what a job is to ask for after its tries so far, by the words of the
// design: a larger share, then a whole card, then a larger card, each time more than
// before; nothing more where it hit the number that its user gave. ok reports whether it
// is tried again.
func rung(declared int64, tries []tryOf, largest int64) (least int64, whole, ok bool) {
	last := tries[len(tries)-1]
	if last.whole {
		for _, t := range tries[:len(tries)-1] {
			if t.whole && t.had >= last.had {
				return 0, false, false // a card of that size has been tried
			}
		}
		if declared > 0 || largest <= last.had {
			return 0, false, false
		}
		return max(last.had+1, min(largest, last.peak+last.peak/10)), true, true
	}
	ownDoing := last.alone || last.peak > last.had
	if declared > 0 && last.had <= declared && ownDoing || len(tries) > 2 {
		return 0, false, false
	}
	return min(largest, max(last.had*3/2, last.peak*11/10)), len(tries) == 2, true
}

// TestOutOfMemoryRungByRung: a job that runs out of GPU memory again and again, alone
// and beside others, asks for what the design says, on cards of two sizes, until
// there is nothing more for it; what it asks for it is not started with less of.
func TestOutOfMemoryRungByRung(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		draw := func(what string, n int) int { return rapid.IntRange(0, n-1).Draw(t, what) }
		m := newMachine(t)
		m.must(initCmd("c1", 1000))
		m.must(registerCmd(node("n1", "boot1", 2)))
		largest := int64(40_000)
		if draw("larger cards", 2) == 0 {
			m.must(registerCmd(sized("h1", 2, "H100", 80_000)))
			largest = 80_000
		}
		s := spec(1)
		if draw("declared", 3) == 0 {
			s.GPUMemMiB = int64(1+draw("declares", 4)) * 4000
		}
		id := m.submit(s)
		var tries []tryOf
		least, wants := int64(0), false
		for try := 0; ; try++ {
			// The smallest share that may be, on the smallest card that has it.
			card, had := cluster.GPUID("n1-g0"), max(least, s.GPUMemMiB, 4000)
			if had > 40_000 {
				card = "h1-g0"
			}
			x := tryOf{had: had, alone: draw("alone", 2) == 0}
			sh := share1(card, had, 100)
			if x.whole = wants || draw("whole all the same", 6) == 0; x.whole {
				x.alone, x.had = true, map[bool]int64{true: 80_000, false: 40_000}[card == "h1-g0"]
				sh = all(card, x.had)
			}
			if least > 1 && !x.whole {
				less := m.startOf(id, share1(card, least-1, 100))
				if r := m.must(planCmd(dispatch.Plan{Starts: []dispatch.Start{less}})); len(r.Plan.Rejected) != 1 || r.Plan.Rejected[0].Reason.Detail != fmt.Sprintf("%d MiB were planned, it needs %d", least-1, least) {
					t.Fatalf("a start with less than it needs: %+v", r.Plan)
				}
			}
			if wants {
				shared := m.startOf(id, share1(card, least, 100))
				if r := m.must(planCmd(dispatch.Plan{Starts: []dispatch.Start{shared}})); len(r.Plan.Rejected) != 1 {
					t.Fatalf("a start with a share of what it needs whole: %+v", r.Plan)
				}
			}
			beside := cluster.JobID(0)
			if room := map[bool]int64{true: 80_000, false: 40_000}[card == "h1-g0"] - x.had; !x.alone && room > 0 {
				beside = m.submit(spec(1))
				m.start(beside, share1(card, 1, 100))
			} else {
				x.alone = true
			}
			m.start(id, sh)
			m.report(id, cluster.JobRunning)
			x.peak = rapid.SampledFrom([]int64{0, x.had / 2, x.had, x.had + x.had/50, min(x.had*2, 40_000)}).Draw(t, "peak")
			if x.whole {
				x.peak = min(x.peak, x.had)
			}
			m.oom(id, x.peak)
			if beside != 0 {
				m.report(beside, cluster.JobCompleted)
			}
			tries = append(tries, x)
			var ok bool
			least, wants, ok = rung(s.GPUMemMiB, tries, largest)
			j := m.job(id)
			if got := j.State == cluster.JobPending; got != ok {
				t.Fatalf("after %+v, declared %d, the largest card %d: the job is %s (%s), want it tried again: %t", tries, s.GPUMemMiB, largest, j.State, j.Reason, ok)
			}
			if !ok {
				if j.State != cluster.JobOutOfMemory || j.Reason.Code != cluster.ReasonGPUOOM {
					t.Fatalf("it ended as %s for %s", j.State, j.Reason)
				}
				return
			}
			if j.MinGPUMemMiB != least || j.NeedWhole != wants {
				t.Fatalf("after %+v, declared %d, the largest card %d: it asks for %d MiB, whole %t; want %d, %t", tries, s.GPUMemMiB, largest, j.MinGPUMemMiB, j.NeedWhole, least, wants)
			}
			if try > 8 {
				t.Fatalf("it is tried for ever: %+v", tries)
			}
		}
	})
}

// TestRequestsByTheClock: within ten minutes of the log's time a request has the
// answer that it had, whatever was submitted since, and another one under its id is
// refused; then it is a new one. Users do not see each other's. What is refused is not
// remembered.
func TestRequestsByTheClock(t *testing.T) {
	t.Parallel()
	type answerOf struct {
		jobs []cluster.JobID
		n    int // how many jobs, which tells bodies apart
		at   cluster.Time
	}
	type who struct {
		uid cluster.UID
		id  string
	}
	rapid.Check(t, func(t *rapid.T) {
		draw := func(what string, n int) int { return rapid.IntRange(0, n-1).Draw(t, what) }
		m := newMachine(t)
		m.must(initCmd("c1", 1000))
		m.must(setCmd(quota(accounting.Subject{User: true, UID: 11}, accounting.Limits{Jobs: 4}), 0))
		had := map[who]answerOf{}
		of := map[cluster.UID]int{}
		next := cluster.JobID(1)
		for range rapid.IntRange(5, 40).Draw(t, "requests") {
			if m.now = m.now.Add(time.Duration(draw("minutes", 5)) * time.Minute); draw("clock", 8) == 0 {
				m.now -= 300_000_000 // another leader, whose clock is behind: the log's time stays
			}
			now := max(m.f.Now(), m.now.Add(time.Second))
			// 1 and 11 with ids that read alike when they are put after one another.
			w := who{cluster.UID(rapid.SampledFrom([]int{1, 11}).Draw(t, "uid")), rapid.SampledFrom([]string{"1-request", "-request", "1"}).Draw(t, "id")}
			n := 1 + draw("jobs", 3)
			specs := make([]*cluster.Spec, n)
			for i := range specs {
				specs[i] = spec(0)
			}
			first := m.f.NextJobID()
			if draw("late id", 4) == 0 {
				first = max(1, first-1)
			}
			r := m.do(submitCmd(first, w.id, w.uid, specs...))[0]
			old, known := had[w]
			known = known && now.Sub(old.at) <= 10*time.Minute
			switch {
			case known && old.n != n:
				if r.Err == nil || r.Err.Code != cluster.CodeAlreadyExists {
					t.Fatalf("%+v again with %d jobs, and had %d: %+v", w, n, old.n, r)
				}
			case known:
				if r.Err != nil || !r.Existing || fmt.Sprint(r.Jobs) != fmt.Sprint(old.jobs) {
					t.Fatalf("%+v again: %+v, at first %+v", w, r, old)
				}
			case first < next:
				if r.Err == nil || r.Err.Code != cluster.CodeConflict {
					t.Fatalf("%+v with id %d, the next is %d: %+v", w, first, next, r)
				}
			case w.uid == 11 && of[11]+n > 4:
				if r.Err == nil || r.Err.Code != cluster.CodeExhausted {
					t.Fatalf("%+v beyond the quota: %+v", w, r)
				}
			default:
				if r.Err != nil || r.Existing || len(r.Jobs) != n || r.Jobs[0] != next {
					t.Fatalf("%+v: %+v, want %d jobs from %d on", w, r, n, next)
				}
				next += cluster.JobID(n)
				of[w.uid] += n
				had[w] = answerOf{r.Jobs, n, now}
			}
			if got := m.f.NextJobID(); got != next {
				t.Fatalf("the next id is %d, want %d", got, next)
			}
			if draw("restart", 6) == 0 {
				m.f = restored(t, snapshotOf(t, m.f))
			}
		}
	})
}

// ruled applies a command in an entry of a version.
func (m *machine) ruled(version uint32, cmd *logv1.Command) Result {
	m.t.Helper()
	m.index++
	m.now = m.now.Add(time.Second)
	data, err := EncodeEntry(version, testTerm, m.now, []*logv1.Command{cmd})
	if err != nil {
		m.t.Fatalf("encode: %v", err)
	}
	return applyTo(m.t, m.f, m.index, testTerm, data)[0]
}

// TestRulesOfBefore: an entry means what entries of its version meant when it was
// written, whatever has been learnt since; each row is a rule that came with a version,
// and what was the case before.
func TestRulesOfBefore(t *testing.T) {
	t.Parallel()
	plain := func(t *testing.T, version uint32) *machine {
		m := newMachine(t)
		for _, c := range []*logv1.Command{initCmd("c1", 100), registerCmd(node("n1", "boot1", 2)), registerCmd(node("n2", "boot1", 2))} {
			if r := m.ruled(version, c); r.Err != nil {
				t.Fatal(r.Err)
			}
		}
		return m
	}
	run := func(m *machine, version uint32, s *cluster.Spec) cluster.JobID {
		id := m.ruled(version, submitCmd(m.f.NextJobID(), fmt.Sprint("r", m.index), 1000, s)).Jobs[0]
		m.ruled(version, planCmd(dispatch.Plan{Starts: []dispatch.Start{m.startOf(id, share1("n1-g0", 8000, 300))}}))
		m.ruled(version, reportCmd(m.reportOf(id, cluster.JobRunning)))
		return id
	}
	ends := func(m *machine, version uint32, id cluster.JobID, st cluster.JobState, change func(*logv1.ReportAttempt)) Result {
		r := m.reportOf(id, st)
		change(r)
		return m.ruled(version, reportCmd(r))
	}
	for _, c := range []struct {
		rule  string
		since uint32
		// holds tells, on a machine of a version, whether the rule holds.
		holds func(t *testing.T, m *machine, version uint32) bool
	}{
		{"figures that cannot be teach nothing", 2, func(t *testing.T, m *machine, version uint32) bool {
			id := run(m, version, spec(1))
			r := ends(m, version, id, cluster.JobCompleted, func(r *logv1.ReportAttempt) { r.Usage = &logv1.Usage{GpuMemPeakMib: 60_000, Milli: 10} })
			if r.Absurd != (len(m.f.Samples()) == 0) {
				t.Errorf("absurd %t, %d samples", r.Absurd, len(m.f.Samples()))
			}
			return r.Absurd
		}},
		{"power is kept", 2, func(_ *testing.T, m *machine, version uint32) bool {
			id := run(m, version, spec(1))
			ends(m, version, id, cluster.JobCompleted, func(r *logv1.ReportAttempt) {
				r.Usage = &logv1.Usage{GpuMemPeakMib: 6000, Milli: 10, PowerW: 200, Steps: 7}
			})
			u := m.job(id).Last().Usage
			return u.PowerW == 200 && u.Steps == 7
		}},
		{"what was done to the power of cards is kept", 15, func(_ *testing.T, m *machine, version uint32) bool {
			id := run(m, version, spec(1))
			ends(m, version, id, cluster.JobCompleted, func(r *logv1.ReportAttempt) {
				r.Power = []*logv1.CardPower{{Gpu: "n1-g0", CapW: 250}}
			})
			return len(m.job(id).Last().Power) == 1
		}},
		{"samples say when they were made", 2, func(_ *testing.T, m *machine, version uint32) bool {
			id := run(m, version, spec(1))
			ends(m, version, id, cluster.JobCompleted, func(r *logv1.ReportAttempt) { r.Usage = &logv1.Usage{GpuMemPeakMib: 6000, Milli: 10} })
			return m.f.Samples()[0].At != 0
		}},
		{"who ran out of a whole card gets a larger one", 6, func(_ *testing.T, m *machine, version uint32) bool {
			m.ruled(version, registerCmd(sized("h1", 1, "H100", 80_000)))
			id := m.ruled(version, submitCmd(m.f.NextJobID(), "r", 1000, spec(1))).Jobs[0]
			m.ruled(version, planCmd(dispatch.Plan{Starts: []dispatch.Start{m.startOf(id, whole("n1-g0"))}}))
			ends(m, version, id, cluster.JobOutOfMemory, func(r *logv1.ReportAttempt) { r.Usage = &logv1.Usage{GpuMemPeakMib: 40_000, GpuOom: true} })
			return m.job(id).State == cluster.JobPending
		}},
		{"a node's history is kept", 8, func(_ *testing.T, m *machine, _ uint32) bool {
			n, _ := m.f.Node("n1")
			return len(n.History) > 0
		}},
		{"whom a neighbour ended runs again", 8, func(_ *testing.T, m *machine, version uint32) bool {
			id := run(m, version, spec(1))
			ends(m, version, id, cluster.JobNodeFail, func(r *logv1.ReportAttempt) { r.Reason = &logv1.Reason{Code: string(cluster.ReasonGPUNeighbour)} })
			return m.job(id).State == cluster.JobPending
		}},
		{"a fault of the node is not the job's", 8, func(_ *testing.T, m *machine, version uint32) bool {
			id := run(m, version, spec(1))
			ends(m, version, id, cluster.JobNodeFail, func(r *logv1.ReportAttempt) { r.Reason = &logv1.Reason{Code: string(cluster.ReasonNodeFault)} })
			return m.job(id).State == cluster.JobPending
		}},
		{"what it is completing for is told at once", 8, func(_ *testing.T, m *machine, version uint32) bool {
			id := run(m, version, spec(1))
			ends(m, version, id, cluster.JobCompleting, func(r *logv1.ReportAttempt) { r.Exit = &logv1.Exit{Code: 3} })
			return m.job(id).Last().Exit != nil
		}},
		{"what was taken of GPUs is kept", 9, func(_ *testing.T, m *machine, version uint32) bool {
			return m.job(run(m, version, spec(1))).Last().GPUMilli == 300
		}},
		{"runs are charged", 9, func(_ *testing.T, m *machine, version uint32) bool {
			ends(m, version, run(m, version, spec(1)), cluster.JobCompleted, func(*logv1.ReportAttempt) {})
			return len(m.f.Standing(0).Spent) == 1
		}},
		{"owners are told", 9, func(_ *testing.T, m *machine, version uint32) bool {
			ends(m, version, run(m, version, mailed(cluster.MailEnd)), cluster.JobCompleted, func(*logv1.ReportAttempt) {})
			return len(m.f.Notices(0, 10)) == 1
		}},
		{"who is charged anew needs room there", 10, func(t *testing.T, m *machine, version uint32) bool {
			m.must(setCmd(&accounting.Account{Name: "a", Shares: 1}, 0))
			m.must(setCmd(quota(accounting.Subject{Account: "a"}, accounting.Limits{Jobs: 1}), 0))
			m.must(submitCmd(m.f.NextJobID(), "r1", 1000, in("a", "")))
			id := m.submit(spec(1))
			r := m.ruled(version, updateCmd(m.job(id), func(s *cluster.Spec) { s.Account = "a" }))
			if (r.Err != nil) != (m.job(id).Spec.Account == "") {
				t.Errorf("%v, it is charged to %q", r.Err, m.job(id).Spec.Account)
			}
			return r.Err != nil
		}},
		{"who is told to wait for nobody waits for nobody", 11, func(_ *testing.T, m *machine, version uint32) bool {
			on := m.ruled(version, submitCmd(m.f.NextJobID(), "r1", 1000, spec(1))).Jobs[0]
			id := m.ruled(version, submitCmd(m.f.NextJobID(), "r2", 1000, after(cluster.AfterOK, on))).Jobs[0]
			m.ruled(version, updateCmd(m.job(id), func(s *cluster.Spec) { s.Depends = nil }))
			return len(m.job(id).Depends) == 0
		}},
		{"what a job that runs waits for stays", 11, func(_ *testing.T, m *machine, version uint32) bool {
			id := run(m, version, spec(1))
			r := m.ruled(version, updateCmd(m.job(id), func(s *cluster.Spec) { s.Depends = []cluster.Dependency{{Kind: cluster.Singleton}} }))
			return r.Err != nil
		}},
		{"what is over has no environment", 11, func(_ *testing.T, m *machine, version uint32) bool {
			id := run(m, version, spec(1))
			ends(m, version, id, cluster.JobCompleted, func(*logv1.ReportAttempt) {})
			return len(m.job(id).Spec.Env) == 0
		}},
		{"a refused token forgets none", 11, func(_ *testing.T, m *machine, version uint32) bool {
			m.ruled(version, tokenCmd("old", agentRole, "n8", m.now.Add(time.Second)))
			m.now = m.now.Add(time.Hour)
			m.ruled(version, denyCmd(agentRole, "n9"))
			m.ruled(version, tokenCmd("new", agentRole, "n9", m.now.Add(time.Hour)))
			return m.f.st.keyring.Tokens() == 1
		}},
		{"a refused submit forgets no answer", 11, func(_ *testing.T, m *machine, version uint32) bool {
			m.ruled(version, submitCmd(m.f.NextJobID(), "old", 1000, spec(1)))
			m.now = m.now.Add(time.Hour)
			m.ruled(version, submitCmd(1, "late", 1000, spec(1)))
			return m.f.st.desk.Requests.Len() == 1
		}},
	} {
		t.Run(c.rule, func(t *testing.T) {
			t.Parallel()
			for version := uint32(1); version <= EntryVersion; version++ {
				m := plain(t, version)
				if got := c.holds(t, m, version); got != (version >= c.since) {
					t.Errorf("by an entry of version %d it holds: %t, want it since version %d", version, got, c.since)
				}
			}
		})
	}
}

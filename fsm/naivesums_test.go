package fsm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/accounting"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// TestReservoirOneByOne: of thousands of runs those samples stay that somebody keeps
// who strikes the oldest from his list: of a job when there are more than 64 of it; when
// there are more than 4,096, of the user who has more than a quarter, or of all.
func TestReservoirOneByOne(t *testing.T) {
	t.Parallel()
	type line struct {
		seq uint64
		sig string
		uid uint32
	}
	var list []line
	strike := func(is func(line) bool) {
		i := slices.IndexFunc(list, is)
		list = slices.Delete(list, i, i+1)
	}
	count := func(is func(line) bool) (n int) {
		for _, l := range list {
			if is(l) {
				n++
			}
		}
		return n
	}
	m := newMachine(t)
	m.must(initCmd("c1", 100))
	rnd := rand.New(rand.NewPCG(1, 2))
	seq := uint64(0)
	for round := range 9 {
		var runs []*logv1.Sample
		for range 1000 {
			seq++
			l := line{seq, fmt.Sprint("sig-", rnd.IntN(400)), 1000}
			if of := rnd.IntN(10); of > 3 || round > 4 { // one user teaches most of it, at first
				l.uid += uint32(1 + of)
			}
			if rnd.IntN(8) == 0 {
				l.sig = "the same again"
			}
			runs = append(runs, &logv1.Sample{Signature: l.sig, GpuType: "T4", Uid: l.uid, GpuMemPeakMib: 1})
			list = append(list, l)
			switch {
			case count(func(o line) bool { return o.sig == l.sig }) > 64:
				strike(func(o line) bool { return o.sig == l.sig })
			case len(list) > 4096 && count(func(o line) bool { return o.uid == l.uid }) > 1024:
				strike(func(o line) bool { return o.uid == l.uid })
			case len(list) > 4096:
				strike(func(line) bool { return true })
			}
		}
		m.must(importCmd(runs...))
		var got []line
		for _, x := range m.f.Samples() {
			got = append(got, line{x.Seq, x.Signature, uint32(x.UID)})
		}
		if !slices.Equal(got, list) {
			t.Fatalf("round %d: %d samples are kept, by the list %d; the first that differ: %v", round, len(got), len(list), differs(got, list))
		}
	}
}

// differs are the first two that are not the same.
func differs[T comparable](a, b []T) string {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("at %d %v and %v", i, a[i], b[i])
		}
	}
	return "one has more"
}

// tenant is what a user used, in the arithmetic of real numbers.
type tenant struct {
	left   float64 // microseconds of a GPU that have not decayed
	asOf   cluster.Time
	days   map[int64]float64 // by the day on which a run ended
	allGPU float64
}

// stint is a run that goes on.
type stint struct {
	id    cluster.JobID
	uid   cluster.UID
	milli int64
	from  cluster.Time
}

// decayed is what is left of v after a while; half 0 keeps it.
func decayed(v float64, d, half time.Duration) float64 {
	if half == 0 {
		return v
	}
	return v * math.Exp2(-float64(d)/float64(half))
}

// accrued is what is left of a use of one unit a microsecond that lasted until now.
func accrued(d, half time.Duration) float64 {
	us := float64(d.Microseconds())
	if half == 0 || us == 0 {
		return us
	}
	h := float64(half.Microseconds()) / math.Ln2
	return h * (1 - math.Exp(-us/h))
}

func near(got cluster.GPUTime, want float64) bool {
	return math.Abs(float64(got)-want) <= 4+want*2e-5 // of runs so short that their decay is not reckoned
}

// TestUseInRealNumbers: what users are charged, what of it has decayed, whatever the
// half-life was meanwhile, and what counts against the budget of a day, is what real
// numbers make of their runs, but for less than a millisecond in an hour; and nobody
// starts whose budget that says is spent.
func TestUseInRealNumbers(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		draw := func(what string, n int) int { return rapid.IntRange(0, n-1).Draw(t, what) }
		m := newMachine(t)
		m.must(initCmd("c1", 1000))
		m.must(registerCmd(node("n1", "boot1", 10)))
		half := accounting.DefaultAccountPolicy().HalfLife
		users := map[cluster.UID]*tenant{}
		for uid := cluster.UID(1000); uid < 1002; uid++ {
			users[uid] = &tenant{days: map[int64]float64{}}
		}
		const budget = 2 * 3_600_000_000
		m.must(setCmd(quota(accounting.Subject{User: true, UID: 1000}, accounting.Limits{GPUTime: budget}), 0))
		m.must(setCmd(quota(accounting.Subject{User: true, UID: 1001}, accounting.Limits{GPUTime: budget, Period: accounting.Daily}), 0))
		var running []stint
		revision := uint64(0)
		day := func(at cluster.Time) int64 { return int64(at) / 86_400_000_000 }
		// counts is what counts against a user's budget at a time.
		counts := func(uid cluster.UID, now cluster.Time) float64 {
			u := users[uid]
			sum := decayed(u.left, now.Sub(u.asOf), half)
			if uid == 1001 {
				sum = u.days[day(now)]
			}
			for _, r := range running {
				if r.uid != uid {
					continue
				}
				if uid == 1001 {
					sum += float64(now.Sub(r.from).Microseconds()) * float64(r.milli) / 1000
				} else {
					sum += accrued(now.Sub(r.from), half) * float64(r.milli) / 1000
				}
			}
			return sum
		}
		for range rapid.IntRange(5, 40).Draw(t, "steps") {
			m.now = m.now.Add(time.Duration(draw("minutes", 240)) * time.Minute)
			now := m.now.Add(time.Second) // of the next entry
			switch what := draw("step", 6); {
			case what == 0 && draw("policy", 3) == 0:
				for _, u := range users {
					u.left, u.asOf = decayed(u.left, now.Sub(u.asOf), half), now
				}
				half = time.Duration(draw("half-life", 4)) * 6 * time.Hour
				m.must(setCmd(&accounting.AccountPolicy{HalfLife: half}, revision))
				revision = m.index
			case what < 3:
				uid := cluster.UID(1000 + draw("uid", 2))
				id := m.must(submitCmd(m.f.NextJobID(), fmt.Sprint("use-", m.index), uid, spec(1))).Jobs[0]
				milli := int64(1+draw("milli", 20)) * 50
				want := counts(uid, m.now.Add(time.Second))
				r := m.must(planCmd(dispatch.Plan{Starts: []dispatch.Start{m.startOf(id, share1(cluster.GPUID(fmt.Sprintf("n1-g%d", id%10)), 1, milli))}}))
				started := len(r.Plan.Started) == 1
				if math.Abs(want-budget) > budget/10_000 && started != (want < budget) && (started || accounting.LimitReason(r.Plan.Rejected[0].Reason.Code)) {
					t.Fatalf("user %d has used %.0f of %d and a job starts: %t (%+v)", uid, want, int64(budget), started, r.Plan.Rejected)
				}
				if !started {
					m.must(cancelCmd(id, 0))
					break
				}
				m.report(id, cluster.JobRunning)
				running = append(running, stint{id, uid, milli, m.now})
			case len(running) > 0:
				at := draw("which", len(running))
				r := running[at]
				running = slices.Delete(running, at, at+1)
				m.report(r.id, rapid.SampledFrom([]cluster.JobState{cluster.JobCompleted, cluster.JobFailed, cluster.JobTimeout}).Draw(t, "ends as"))
				u := users[r.uid]
				cost := float64(m.now.Sub(r.from).Microseconds()) * float64(r.milli) / 1000
				u.left = decayed(u.left, m.now.Sub(u.asOf), half) + accrued(m.now.Sub(r.from), half)*float64(r.milli)/1000
				u.asOf = m.now
				u.days[day(m.now)] += cost
				u.allGPU += cost
			}
			d := m.f.Standing(0)
			for uid, u := range users {
				x := d.Spent[accounting.Holder{UID: uid}]
				if x == nil {
					if u.allGPU > 4 {
						t.Fatalf("user %d used %.0f and was charged nothing", uid, u.allGPU)
					}
					continue
				}
				later := d.Now.Add(90 * time.Minute)
				if left := decayed(u.left, later.Sub(u.asOf), half); !near(x.GPU, u.allGPU) || !near(x.Left(later, &d.Policy), left) || !near(x.Used(accounting.Daily, d.Now, &d.Policy), u.days[day(d.Now)]) {
					t.Fatalf("user %d: charged %d, want %.0f; of it %d is left, want %.0f; today %d, want %.0f (half-life %s)",
						uid, x.GPU, u.allGPU, x.Left(later, &d.Policy), left, x.Used(accounting.Daily, d.Now, &d.Policy), u.days[day(d.Now)], half)
				}
			}
		}
	})
}

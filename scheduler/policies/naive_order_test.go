package policies_test

import (
	"cmp"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/policies"
	. "github.com/berth-scheduler/berth/scheduler/schedtest"
)

// nwaits is a waiting job as orders see it.
type nwaits struct {
	id       cluster.JobID
	uid      cluster.UID
	gpus     int
	lasts    time.Duration
	waited   time.Duration
	ran      time.Duration // in an attempt that was ended
	steps    int64         // of a thousand, by then; 0 is unknown
	deadline time.Duration // from now, 0 for none
	weight   int64
}

func drawWaits(t *rapid.T) (out []nwaits) {
	for i := range rapid.IntRange(1, 8).Draw(t, "waiting") {
		j := nwaits{
			id: cluster.JobID(i + 1), uid: cluster.UID(rapid.IntRange(1, 3).Draw(t, "user")), gpus: rapid.IntRange(1, 4).Draw(t, "gpus"),
			lasts: time.Duration(rapid.IntRange(1, 300).Draw(t, "lasts")) * time.Minute, waited: time.Duration(rapid.IntRange(0, 500).Draw(t, "waited")) * time.Minute,
			weight: rapid.SampledFrom([]int64{500, 1000, 2000}).Draw(t, "weight"),
		}
		if rapid.Bool().Draw(t, "ran before") {
			j.ran = min(j.lasts, j.waited) * time.Duration(rapid.IntRange(0, 9).Draw(t, "tenths")) / 10
		}
		if j.ran > 0 && rapid.Bool().Draw(t, "tells") {
			j.steps = rapid.Int64Range(1, 1000).Draw(t, "steps")
		}
		if rapid.Bool().Draw(t, "due") {
			j.deadline = time.Duration(rapid.IntRange(1, 600).Draw(t, "deadline")) * time.Minute
		}
		out = append(out, j)
	}
	return out
}

func (j *nwaits) left() time.Duration { return max(time.Microsecond, j.lasts-j.ran) }

// job is the same for a snapshot: its attempt, if it had one, began when it came,
// and it waits again since it ended.
func (j *nwaits) job() *cluster.Job {
	out := Job(j.id, Exclusive, GPUs(j.gpus), Lasts(j.lasts), Waited(j.waited), Of(j.uid, 1))
	if j.ran > 0 {
		began := out.Submitted
		out.Attempts = []cluster.Attempt{{No: 1, State: cluster.JobPreempted, Placed: began, Started: began, Ended: began.Add(j.ran)}}
		if j.steps > 0 {
			out.Attempts[0].Progress = &cluster.Progress{At: began, Step: j.steps, Total: 1000, StepTime: time.Second}
		}
		out.Eligible = began.Add(j.ran)
	}
	return out
}

// since is for how long it waits by now.
func (j *nwaits) since() time.Duration { return j.waited - j.ran }

// TestOrdersAsNaive: of those who wait for a node of four empty cards the one starts
// first, and passes nobody, that the rule says.
func TestOrdersAsNaive(t *testing.T) {
	t.Parallel()
	const none = 1 << 50
	minutes := func(d time.Duration) float64 { return d.Minutes() }
	// Two numbers each, the less the sooner; then the id.
	keys := map[string]func(j *nwaits, all []nwaits) (a, b float64){
		"fifo": func(j *nwaits, _ []nwaits) (float64, float64) { return -minutes(j.since()), 0 },
		"sjf":  func(j *nwaits, _ []nwaits) (float64, float64) { return minutes(j.lasts), -minutes(j.since()) },
		"qssf": func(j *nwaits, _ []nwaits) (float64, float64) {
			return minutes(j.lasts) * float64(j.gpus), -minutes(j.since())
		},
		"srtf": func(j *nwaits, _ []nwaits) (float64, float64) { return minutes(j.left()), -minutes(j.since()) },
		"srsf": func(j *nwaits, _ []nwaits) (float64, float64) {
			return minutes(j.left()) * float64(j.gpus), -minutes(j.since())
		},
		"las": func(j *nwaits, _ []nwaits) (float64, float64) { // 2D: cards times time, in queues of first come, first served
			queue, had := 0.0, j.ran.Seconds()*float64(j.gpus)
			for _, limit := range []float64{3250, 7200, 18000} {
				if had >= limit {
					queue++
				}
			}
			return queue, -minutes(j.waited)
		},
		"elas": func(j *nwaits, _ []nwaits) (float64, float64) { // the same, times the part of the steps that is left
			queue, had := 0.0, j.ran.Seconds()*float64(j.gpus)*float64(1000-j.steps)/1000
			for _, limit := range []float64{3250, 7200, 18000} {
				if had >= limit {
					queue++
				}
			}
			return queue, -minutes(j.waited)
		},
		"size": func(j *nwaits, _ []nwaits) (float64, float64) { return -float64(j.gpus), 0 },
		"themis": func(j *nwaits, _ []nwaits) (float64, float64) {
			return -math.Floor(1e6 * (minutes(j.waited) + minutes(j.left())) / minutes(j.lasts)), -minutes(j.waited)
		},
		"edf": func(j *nwaits, all []nwaits) (float64, float64) {
			if slices.Contains(admitted(all, 4), j.id) {
				return 0, minutes(j.deadline)
			}
			return 1, -minutes(j.since())
		},
		"fairshare": func(j *nwaits, all []nwaits) (float64, float64) { // users take turns, by GPU time over weight
			used, order := map[cluster.UID]float64{}, slices.Clone(all)
			slices.SortFunc(order, func(a, b nwaits) int { return cmp.Or(-cmp.Compare(a.since(), b.since()), cmp.Compare(a.id, b.id)) })
			for _, o := range order {
				if o.id == j.id {
					return used[j.uid], -minutes(j.since())
				}
				used[o.uid] += minutes(o.left()) * float64(o.gpus) * 1000 / float64(o.weight)
			}
			return none, 0
		},
	}
	for name, key := range keys {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := must(t, "slot", policies.Options{Order: name, Backfill: policies.BackfillNone})
			rapid.Check(t, func(t *rapid.T) {
				all := drawWaits(t)
				s := newScene(Node("n1", 4, a100)).w
				terms := map[cluster.JobID]dispatch.Terms{}
				for i := range all {
					s.Submit(all[i].job())
					x := dispatch.Terms{Preemptible: true, WeightMilli: all[i].weight}
					if all[i].deadline > 0 {
						x.Deadline = Now.Add(all[i].deadline)
					}
					terms[all[i].id] = x
				}
				snap := s.Snapshot()
				snap.Terms = terms
				plan := p.Plan(snap)
				order := slices.Clone(all)
				slices.SortFunc(order, func(x, y nwaits) int {
					a, b := key(&x, all)
					c, d := key(&y, all)
					return cmp.Or(cmp.Compare(a, c), cmp.Compare(b, d), cmp.Compare(x.id, y.id))
				})
				free := 4
				for i := range plan.Starts { // one after the other, while they fit
					if plan.Starts[i].Job != order[i].id {
						t.Fatalf("job %d starts as number %d, want job %d; of %+v", plan.Starts[i].Job, i, order[i].id, order)
					}
					free -= order[i].gpus
				}
				if n := len(plan.Starts); n < len(order) && order[n].gpus <= free {
					t.Fatalf("job %d waits beside %d free cards", order[n].id, free)
				}
			})
		})
	}
}

// admitted goes through the deadlines in the order in which they came and admits
// each that can end in time, if all that is due by any deadline fits into the time
// of the cards until then (Baruah, Mok and Rosier, RTSS 1990).
func admitted(all []nwaits, cards int) (out []cluster.JobID) {
	asks := slices.DeleteFunc(slices.Clone(all), func(j nwaits) bool { return j.deadline == 0 || j.left() > j.deadline })
	slices.SortFunc(asks, func(a, b nwaits) int { return cmp.Or(-cmp.Compare(a.waited, b.waited), cmp.Compare(a.id, b.id)) })
	var in []nwaits
	for _, j := range asks {
		try := append(slices.Clone(in), j)
		fits := true
		for _, by := range asks {
			work := time.Duration(0)
			for _, o := range try {
				if o.deadline <= by.deadline {
					work += o.left() * time.Duration(o.gpus)
				}
			}
			fits = fits && work <= by.deadline*time.Duration(cards)
		}
		if fits {
			in, out = try, append(out, j.id)
		}
	}
	return out
}

// TestAgeGoesFirst: with Age set, who waited so long goes before all others, first
// come, first served, in whatever order.
func TestAgeGoesFirst(t *testing.T) {
	t.Parallel()
	for _, name := range policies.Orders() {
		p := must(t, "slot", policies.Options{Order: name, Backfill: policies.BackfillNone, Age: time.Hour})
		s := newScene(Node("n1", 1, a100)).waits(
			Job(1, Exclusive, Lasts(time.Minute)), Job(2, Exclusive, Lasts(9*time.Hour), Waited(time.Hour)), Job(3, Exclusive, Lasts(8*time.Hour), Waited(61*time.Minute)),
			Job(4, Exclusive, Lasts(time.Minute), Waited(59*time.Minute)))
		plan := p.Plan(s.w.Snapshot())
		if got := startsOf(&plan); len(got) != 1 || got[3] == "" {
			t.Errorf("%s: starts %v, want job 3", name, got)
		}
	}
}

// TestSizeTakesGangsFirst: whole cards and several before shares, however small the
// shares of a gang are.
func TestSizeTakesGangsFirst(t *testing.T) {
	t.Parallel()
	p := must(t, "firstfit", policies.Options{Order: "size", Backfill: policies.BackfillNone})
	s := newScene(Node("n1", 2, a100)).waits(part(1, 90), part(2, 10, GPUs(2)), part(3, 95), Job(4, GPUs(0)))
	plan := p.Plan(s.snap(t))
	var order []cluster.JobID
	for _, st := range plan.Starts {
		order = append(order, st.Job)
	}
	if want := []cluster.JobID{2}; !slices.Equal(order, want) { // then 3 finds no card that has 95 %, and nobody passes it
		t.Errorf("starts %v, want %v", order, want)
	}
}

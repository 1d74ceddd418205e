// Package growth holds shares that follow use against programs whose memory grows
// late, before a whole leader and the agent's watch over memory, in virtual time.
package growth

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/agent/gpu/caps"
	"github.com/berth-scheduler/berth/agent/soaktest"
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/figures"
	"github.com/berth-scheduler/berth/coordinator/lead"
	"github.com/berth-scheduler/berth/coordinator/learner"
	"github.com/berth-scheduler/berth/coordinator/nodes"
	"github.com/berth-scheduler/berth/coordinator/proposer"
	"github.com/berth-scheduler/berth/fsm"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/conv"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/site"
)

const (
	growthCards  = 4
	growthSells  = 80_000  // MiB of each card
	growthUsable = 81_000  // MiB that processes can have of it
	growthRate   = 2048    // MiB that a program takes in a second, at most
	growthLong   = 10 * 60 // seconds that a program works, at most
)

// program is what a job does: it works for so many seconds, and wants as much memory
// as the last of its steps says that it has come to.
type program struct {
	seconds int
	steps   []step
	granted int64 // by its estimate
	lies    bool  // it takes more than it was granted
	saves   bool  // it is preemptible, and loses nothing then

	done, held int64
	ooms       int
}

type step struct {
	at  int
	mib int64
}

// peak is the most that it ever wants.
func (p *program) peak() (mib int64) {
	for _, s := range p.steps {
		mib = max(mib, s.mib)
	}
	return mib
}

// wants is how much it wants to hold now.
func (p *program) wants() (mib int64) {
	for _, s := range p.steps {
		if int64(s.at) <= p.done {
			mib = s.mib
		}
	}
	return min(mib, p.held+growthRate)
}

// drawProgram makes a program whose memory grows at any time of its life, as often as four
// times, or falls; one in ten takes more than it was granted.
func drawProgram(r *rand.Rand) (*program, cluster.Estimate) {
	p := &program{seconds: 60 + r.IntN(growthLong-60), saves: r.IntN(3) > 0, lies: r.IntN(10) == 0}
	for range 1 + r.IntN(4) {
		p.steps = append(p.steps, step{r.IntN(p.seconds), 500 + r.Int64N(50_000)})
	}
	slices.SortFunc(p.steps, func(a, b step) int { return a.at - b.at })
	p.steps[0].at = 0
	e := cluster.Estimate{GPUType: "A100", Milli: 200, Duration: time.Duration(p.seconds) * time.Second, HostMemMiB: 1024, CPUMilli: 1000, ConfidenceMilli: 500, Source: "graph"}
	switch r.IntN(4) {
	case 0: // nobody knows it
		e.GPUMemMiB, e.GPUMemP95MiB, e.Milli, e.ConfidenceMilli, e.Source = growthSells, growthSells, 1000, 0, "none"
	case 1: // as it is
		e.GPUMemP95MiB = p.peak() + p.peak()/10
	default:
		e.GPUMemP95MiB = min(growthSells, p.peak()*(2+r.Int64N(3)))
	}
	if p.lies {
		e.GPUMemP95MiB, e.Milli, e.Source, e.ConfidenceMilli = max(256, p.peak()/2), 200, "graph", 500
	}
	e.GPUMemMiB = max(1, e.GPUMemP95MiB*9/10)
	p.granted = e.GPUMemP95MiB
	return p, e
}

// yard is a node with cards and what runs there, before a leader that is whole: its
// state machine, planner and rules, and the agent's watch over memory.
type yard struct {
	t        *testing.T
	f        *fsm.FSM
	prop     *proposer.Proposer
	watch    *caps.Watcher
	index    uint64
	programs map[cluster.JobID]*program

	mu   sync.Mutex
	uses map[cluster.AttemptID]nodes.Use

	cuts, grown, yielded, restarts, ooms int
}

// Propose implements proposer.Raft.
func (y *yard) Propose(_ context.Context, data []byte) (uint64, any, error) {
	y.index++
	return y.index, y.f.Apply(&raft.Log{Index: y.index, Term: 1, Data: data}), nil
}

func (y *yard) must(c *logv1.Command) fsm.Result {
	y.t.Helper()
	r, err := y.prop.One(y.t.Context(), c)
	if err != nil {
		y.t.Fatal(err)
	}
	return r
}

// openYard begins a term of office over an empty node, until the returned function is
// called.
func openYard(t *testing.T, mode cluster.ResizeMode) (y *yard, closed func()) {
	y = &yard{t: t, f: fsm.New(fsm.Options{}), watch: caps.NewWatcher(caps.DefaultWatch()), programs: map[cluster.JobID]*program{}, uses: map[cluster.AttemptID]nodes.Use{}}
	y.prop = proposer.New(y, y.f, time.Now, func() error { return nil })
	y.prop.SetVersion(fsm.EntryVersion, nil)
	ctx, cancel := context.WithCancel(t.Context())
	silent := slog.New(slog.DiscardHandler)
	learn := learner.New(learner.Config{}, learner.Needs{FSM: y.f, Proposer: y.prop, Clock: time.Now, Log: silent, Registry: prometheus.NewRegistry()})
	l := lead.New(lead.Config{ClusterName: "yard", ClusterID: "y"}, lead.Needs{
		FSM: y.f, Proposer: y.prop, Company: learn.Company, Figures: figures.New(time.Now()), Clock: time.Now,
		Log: silent, NoticeLog: silent, Registry: prometheus.NewRegistry(),
		UseOf: y.useOf, Telling: func() []cluster.AttemptID { return nil }, Held: func() map[cluster.GPUID]int64 { return nil },
	}, lead.Scheduling{Site: site.Site{Chosen: site.Chosen{Policy: scheduler.Default()}}})
	ended := make(chan struct{}, 3)
	loop := func(run func()) { go func() { run(); ended <- struct{}{} }() }
	loop(func() { _ = y.prop.Run(ctx, 1) })
	synctest.Wait()
	y.must(&logv1.Command{Kind: &logv1.Command_InitCluster{InitCluster: &logv1.InitCluster{Config: &logv1.Config{ClusterId: "y", Name: "yard", KeepFinished: 100}}}})
	n := &cluster.Node{ID: "n1", BootID: "b1", State: cluster.NodeReady, CPUMilli: 256_000, MemMiB: 1 << 20, Address: "n1:1", Runtimes: []string{"host"}}
	usable := map[string]int64{}
	for i := range growthCards {
		id := fmt.Sprint("GPU-", i)
		n.GPUs = append(n.GPUs, cluster.GPU{ID: cluster.GPUID(id), Index: i, Type: "A100", MemMiB: growthUsable, SellableMiB: growthSells, MaxShares: 4, CapMode: "watch"})
		usable[id] = growthUsable
	}
	y.watch.SetUsable(usable)
	y.must(&logv1.Command{Kind: &logv1.Command_RegisterNode{RegisterNode: &logv1.RegisterNode{Node: conv.NodeToLog(n)}}})
	all, err := cluster.ParseHostList("ALL")
	if err != nil {
		t.Fatal(err)
	}
	y.must(&logv1.Command{Kind: &logv1.Command_SetPartition{SetPartition: &logv1.SetPartition{Partition: conv.PartitionToLog(&cluster.Partition{Name: "p", Nodes: all, Default: true, Resize: mode})}}})
	loop(func() { _ = l.Run(ctx) })
	loop(func() {
		for after := y.f.Index(); y.f.WaitChange(ctx, after) == nil; {
			cs, upTo, _ := y.f.Changes(after)
			after = upTo
			l.Note(cs)
		}
	})
	return y, func() {
		cancel()
		for range cap(ended) {
			<-ended
		}
	}
}

// submit has a program run, and returns its job.
func (y *yard) submit(p *program, e cluster.Estimate) {
	s := &cluster.Spec{Name: "grows", Command: []string{"/bin/true"}, Dir: "/", GPUs: 1, Stdout: "/dev/null", Signature: fmt.Sprint("sig-", len(y.programs)), Partition: "p"}
	if p.saves {
		s.Checkpoint = cluster.Checkpoint{Signal: "USR1", Grace: time.Minute}
	}
	r := y.must(&logv1.Command{Kind: &logv1.Command_SubmitJob{SubmitJob: &logv1.SubmitJob{
		RequestId: fmt.Sprint("request-", len(y.programs)), BodyHash: make([]byte, 32), Owner: &logv1.Owner{Uid: 1000, Name: "ada"},
		Jobs: []*logv1.NewJob{{Spec: conv.SpecToLog(s), Estimates: conv.EstimatesToLog([]cluster.Estimate{e})}},
	}}})
	y.programs[r.Jobs[0]] = p
}

// says reports what has become of an attempt.
func (y *yard) says(j *cluster.Job, state nodev1.AttemptState, u *nodev1.Usage) {
	a := j.Live()
	r := &nodev1.Report{Job: uint64(j.ID), Attempt: a.No, Token: uint64(a.Token), State: state, Usage: u}
	if state >= nodev1.AttemptState_ATTEMPT_STATE_COMPLETED {
		r.Exit = &nodev1.Exit{}
		y.watch.Drop(attemptOf(j))
	}
	y.must(&logv1.Command{Kind: &logv1.Command_ReportAttempt{ReportAttempt: conv.ReportToLog("n1", r)}})
}

func attemptOf(j *cluster.Job) string { return fmt.Sprint(j.ID, "-", j.Live().No) }

// second lets a second pass on the node.
func (y *yard) second() {
	var running []*cluster.Job
	free := map[cluster.GPUID]int64{}
	for _, j := range y.f.NodeJobs("n1") {
		p, a := y.programs[j.ID], j.Live()
		switch {
		case a.Preempt != nil:
			y.yielded++
			y.says(j, nodev1.AttemptState_ATTEMPT_STATE_PREEMPTED, &nodev1.Usage{GpuMemPeakMib: p.held})
			p.held = 0
			continue
		case a.State == cluster.JobStarting:
			p.held = 0
			if !p.saves {
				p.done = 0
			}
			y.says(j, nodev1.AttemptState_ATTEMPT_STATE_RUNNING, nil)
		}
		g := a.Berth.GPUs[0]
		c := caps.Cap{MiB: g.Share.MemMiB}
		if a.WasCut() {
			c.MostMiB = a.Granted(0)
		}
		if g.Share.Exclusive {
			c = caps.Cap{}
		}
		y.watch.Hold(attemptOf(j), map[string]caps.Cap{string(g.GPU): c})
		running = append(running, j)
		free[g.GPU] -= p.held
	}
	usage := map[cluster.GPUID]*gpu.Usage{}
	over := map[string]bool{}
	for _, j := range running {
		p, id := y.programs[j.ID], j.Live().Berth.GPUs[0].GPU
		if want := p.wants(); want-p.held > growthUsable+free[id] {
			over[attemptOf(j)] = true // the driver has no more
		} else {
			free[id] -= want - p.held
			p.held = want
		}
		if usage[id] == nil {
			usage[id] = &gpu.Usage{UUID: string(id)}
		}
		usage[id].UsedMiB += p.held
		usage[id].Processes = append(usage[id].Processes, gpu.Process{Attempt: attemptOf(j), MemMiB: p.held})
	}
	var shown []gpu.Usage
	for _, id := range slices.Sorted(maps.Keys(usage)) {
		shown = append(shown, *usage[id])
	}
	for _, b := range y.watch.Observe(time.Now(), shown) {
		over[b.Attempt] = true
	}
	for _, j := range running {
		p := y.programs[j.ID]
		u := &nodev1.Usage{GpuMemPeakMib: p.held, GpuMilli: 200, GpuOom: over[attemptOf(j)]}
		if p.done++; u.GpuOom {
			y.judge(j, p)
			p.held = 0
			y.says(j, nodev1.AttemptState_ATTEMPT_STATE_OUT_OF_MEMORY, u)
			if now, ok := y.f.Job(j.ID); !p.lies && (!ok || now.State.Terminal()) {
				y.t.Errorf("job %d ended for good", j.ID)
			}
		} else if p.done >= int64(p.seconds) {
			p.held = 0
			y.says(j, nodev1.AttemptState_ATTEMPT_STATE_COMPLETED, u)
		}
	}
}

// judge is asked of each that is ended for its memory: nobody is that keeps to what it
// was granted, but a job that was cut to less, once.
func (y *yard) judge(j *cluster.Job, p *program) {
	y.ooms++
	switch a := j.Live(); {
	case p.lies:
	case !a.WasCut():
		y.t.Errorf("job %d, granted %d MiB and never cut, is ended as it holds %d of them: attempt %d, %+v", j.ID, p.granted, p.held, a.No, a.Berth.GPUs)
	case p.ooms > 0:
		y.t.Errorf("job %d lost a second attempt to its share", j.ID)
	default:
		y.restarts++
		p.ooms++
	}
}

// heartbeat tells the leader what is used.
func (y *yard) heartbeat() {
	y.mu.Lock()
	defer y.mu.Unlock()
	was := y.uses
	y.uses = map[cluster.AttemptID]nodes.Use{}
	for _, j := range y.f.NodeJobs("n1") {
		a := j.Live()
		id := cluster.AttemptID{Job: j.ID, No: a.No}
		u := was[id]
		y.uses[id] = nodes.Use{At: cluster.TimeOf(time.Now()), KnownMs: u.KnownMs + 5000, BusyMs: u.BusyMs + 1_000_000, PeakMiB: max(u.PeakMiB, y.programs[j.ID].held)}
	}
}

func (y *yard) useOf(id cluster.AttemptID, _ *cluster.Attempt) (nodes.Use, bool) {
	y.mu.Lock()
	defer y.mu.Unlock()
	u, ok := y.uses[id]
	return u, ok
}

// TestSoakGrowthHarmsNobody has programs whose memory grows late, often or never on
// cards where shares follow use. Nobody that keeps to what it was granted is ended for
// its memory, but for a job that was cut and leaps: that one once, and then it has what
// it was granted. What takes more than that harms nobody else.
func TestSoakGrowthHarmsNobody(t *testing.T) {
	jobs := soaktest.Times(t, 100, 5000)
	for _, mode := range []cluster.ResizeMode{cluster.ResizeEager, cluster.ResizeConservative} {
		t.Run(string(mode), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				y, closed := openYard(t, mode)
				defer closed()
				r := rand.New(rand.NewPCG(1, 2))
				left, cut := jobs, map[cluster.AttemptID]int64{}
				for sec := 0; left > 0 || len(y.f.NodeJobs("n1")) > 0 || y.waits() > 0; sec++ {
					for left > 0 && y.waits() < 8 {
						left--
						y.submit(drawProgram(r))
					}
					y.second()
					if sec%5 == 0 {
						y.heartbeat()
						y.follow(cut)
					}
					if sec > jobs*growthLong {
						t.Fatalf("%d jobs wait and %d run after %d s", y.waits(), len(y.f.NodeJobs("n1")), sec)
					}
					time.Sleep(time.Second)
				}
				t.Logf("soak: %d jobs: %d were cut, %d times one grew again, %d made room, %d met what was left to them, %d took more than they were granted", jobs, y.cuts, y.grown, y.yielded, y.restarts, y.ooms-y.restarts)
				if y.cuts < jobs/10 || y.grown < jobs/20 {
					t.Errorf("of %d jobs %d were cut and %d grew: too few to show anything", jobs, y.cuts, y.grown)
				}
			})
		})
	}
}

// TestByDefaultThoseWithAHook: where the partition leaves it open, a job with a checkpoint
// hook is cut and one without is not; where it says off, neither is.
func TestByDefaultThoseWithAHook(t *testing.T) {
	for _, mode := range []cluster.ResizeMode{cluster.ResizeDefault, cluster.ResizeOff} {
		t.Run(mode.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				y, closed := openYard(t, mode)
				defer closed()
				e := cluster.Estimate{GPUType: "A100", GPUMemMiB: growthSells, GPUMemP95MiB: growthSells, Milli: 1000, Duration: growthLong * time.Second, HostMemMiB: 1024, CPUMilli: 1000, Source: "none"}
				for _, saves := range []bool{false, true} {
					y.submit(&program{seconds: growthLong, steps: []step{{0, 5000}}, granted: growthSells, saves: saves}, e)
				}
				for sec := range growthLong - 60 {
					y.second()
					if sec%5 == 0 {
						y.heartbeat()
					}
					for _, j := range y.f.NodeJobs("n1") {
						if cut := j.Live().WasCut(); cut && sec < 300 {
							t.Fatalf("job %d is cut after %d s", j.ID, sec)
						}
					}
					time.Sleep(time.Second)
				}
				jobs := y.f.NodeJobs("n1")
				if len(jobs) != 2 {
					t.Fatalf("%d jobs run, want 2", len(jobs))
				}
				for _, j := range jobs {
					if want := mode == cluster.ResizeDefault && y.programs[j.ID].saves; j.Live().WasCut() != want {
						t.Errorf("job %d, hook %+v: cut %t, want %t: %+v", j.ID, j.Spec.Checkpoint, !want, want, j.Live().Berth.GPUs)
					}
				}
			})
		})
	}
}

// waits is how many jobs wait.
func (y *yard) waits() int {
	jobs, _ := y.f.Jobs(fsm.Query{States: []cluster.JobState{cluster.JobPending, cluster.JobQueued}})
	return len(jobs)
}

// follow counts cuts and growth, and sees that no card is promised twice.
func (y *yard) follow(was map[cluster.AttemptID]int64) {
	sold := map[cluster.GPUID]int64{}
	for _, j := range y.f.NodeJobs("n1") {
		a := j.Live()
		g := a.Berth.GPUs[0]
		sold[g.GPU] += g.Share.MemMiB
		id := cluster.AttemptID{Job: j.ID, No: a.No}
		switch before, known := was[id]; {
		case known && g.Share.MemMiB < before:
			y.cuts++
		case known && g.Share.MemMiB > before:
			y.grown++
		}
		was[id] = g.Share.MemMiB
	}
	for id, mib := range sold {
		if mib > growthSells {
			y.t.Fatalf("%s is promised %d MiB, of %d", id, mib, growthSells)
		}
	}
}

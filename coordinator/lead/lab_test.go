package lead

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/coordinator/figures"
	"github.com/berth-scheduler/berth/coordinator/learner"
	"github.com/berth-scheduler/berth/coordinator/nodes"
	"github.com/berth-scheduler/berth/coordinator/proposer"
	"github.com/berth-scheduler/berth/fsm"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/site"
)

// committed is a command and when it came.
type committed struct {
	at  time.Time
	cmd *logv1.Command
}

// lab is a leader over a state of its own, in virtual time: what it asks for is in all.
type lab struct {
	t    *testing.T
	l    *Leader
	f    *fsm.FSM
	prop *proposer.Proposer

	mu   sync.Mutex
	all  []committed
	uses map[cluster.AttemptID]nodes.Use
	part map[cluster.AttemptID]bool // one of its nodes has not told
	held map[cluster.GPUID]int64
	// refuse fails proposals that it holds, before they are applied.
	refuse  func(*logv1.Command) bool
	index   uint64
	refused int // proposals
	reg     *prometheus.Registry
}

// counted is what a metric with one label has counted.
func (l *lab) counted(metric, label string) float64 {
	l.t.Helper()
	all, err := l.reg.Gather()
	if err != nil {
		l.t.Fatal(err)
	}
	for _, f := range all {
		for _, m := range f.GetMetric() {
			if f.GetName() == metric && m.GetLabel()[0].GetValue() == label {
				return m.GetCounter().GetValue()
			}
		}
	}
	l.t.Fatalf("there is no %s of %s", metric, label)
	return 0
}

// Propose implements proposer.Raft.
func (l *lab) Propose(_ context.Context, data []byte) (uint64, any, error) {
	e, err := fsm.DecodeEntry(data)
	if err != nil {
		return 0, nil, err
	}
	l.mu.Lock()
	for _, c := range e.Commands {
		if l.refuse != nil && l.refuse(c) {
			l.refused++
			l.mu.Unlock()
			return 0, nil, &cluster.Error{Code: cluster.CodeUnavailable, Msg: "a test refuses it"}
		}
	}
	for _, c := range e.Commands {
		l.all = append(l.all, committed{time.Now(), c})
	}
	l.index++
	i := l.index
	l.mu.Unlock()
	return i, l.f.Apply(&raft.Log{Index: i, Term: 1, Data: data}), nil
}

func newLab(t *testing.T, cfg Config, s Scheduling) *lab {
	l := &lab{t: t, f: fsm.New(fsm.Options{}), uses: map[cluster.AttemptID]nodes.Use{}, part: map[cluster.AttemptID]bool{}, held: map[cluster.GPUID]int64{}, reg: prometheus.NewRegistry()}
	log := slog.New(slog.DiscardHandler)
	l.prop = proposer.New(l, l.f, time.Now, func() error { return nil })
	l.prop.SetVersion(fsm.EntryVersion, nil)
	l.l = New(cfg, Needs{
		FSM: l.f, Proposer: l.prop, Figures: figures.New(time.Now()), Clock: time.Now, Log: log, NoticeLog: log, Registry: l.reg,
		Company: learner.New(learner.Config{}, learner.Needs{FSM: l.f, Proposer: l.prop, Clock: time.Now, Log: log, Registry: prometheus.NewRegistry()}).Company,
		UseOf: func(id cluster.AttemptID, _ *cluster.Attempt) (nodes.Use, bool) {
			l.mu.Lock()
			defer l.mu.Unlock()
			u, ok := l.uses[id]
			return u, ok && !l.part[id]
		},
		Telling: func() (out []cluster.AttemptID) {
			l.mu.Lock()
			defer l.mu.Unlock()
			for id, u := range l.uses {
				if u.Progress != nil || u.Pull != nil {
					out = append(out, id)
				}
			}
			return out
		},
		Held: func() map[cluster.GPUID]int64 {
			l.mu.Lock()
			defer l.mu.Unlock()
			out := map[cluster.GPUID]int64{}
			for g, mib := range l.held {
				out[g] = mib
			}
			return out
		},
	}, s)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = l.prop.Run(ctx, 1) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	synctest.Wait()
	return l
}

// planBy is a site that plans by the usual policy, with changes.
func planBy(change func(*scheduler.Policy)) Scheduling {
	pol := scheduler.Default()
	if change != nil {
		change(&pol)
	}
	return Scheduling{Site: site.Site{Chosen: site.Chosen{Policy: pol}}}
}

// loop runs one of the leader's loops until end is called, or the test ends.
func (l *lab) loop(fn func(context.Context) error) (end func()) {
	ctx, cancel := context.WithCancel(l.t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = fn(ctx) })
	end = func() { cancel(); wg.Wait() }
	l.t.Cleanup(end)
	synctest.Wait()
	return end
}

// follow tells the planner of every change, as a coordinator does.
func (l *lab) follow() {
	l.loop(func(ctx context.Context) error {
		after := l.f.Index()
		for {
			if err := l.f.WaitChange(ctx, after); err != nil {
				return err
			}
			cs, upTo, ok := l.f.Changes(after)
			if after = upTo; ok {
				l.l.Note(cs)
			} else {
				l.l.Again()
			}
		}
	})
}

func (l *lab) do(cmd *logv1.Command) fsm.Result {
	l.t.Helper()
	r, err := l.prop.One(l.t.Context(), cmd)
	if err != nil {
		l.t.Fatalf("%v: %v", cmd, err)
	}
	return r
}

// since are the commands of a kind that came after what was there at a mark.
func (l *lab) since(mark int, of func(*logv1.Command) bool) (out []committed) {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.all[mark:] {
		if of(c.cmd) {
			out = append(out, c)
		}
	}
	return out
}

// refusals is how many proposals were refused.
func (l *lab) refusals() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.refused
}

func (l *lab) mark() int {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.all)
}

func (l *lab) use(id cluster.JobID, no uint32, u nodes.Use) {
	l.mu.Lock()
	defer l.mu.Unlock()
	u.At = cluster.TimeOf(time.Now())
	l.uses[cluster.AttemptID{Job: id, No: no}] = u
}

// machine registers a node with cards named as it is and a number.
func (l *lab) machine(id cluster.NodeID, gpus int, change func(*cluster.Node)) {
	l.t.Helper()
	n := &cluster.Node{ID: id, BootID: "b", State: cluster.NodeReady, CPUMilli: 64_000, MemMiB: 256 << 10, Address: "10.0.0." + string(id[1:]) + ":7", Runtimes: []string{"host"}}
	for i := range gpus {
		n.GPUs = append(n.GPUs, cluster.GPU{ID: cluster.GPUID(fmt.Sprintf("%s-g%d", id, i)), Index: i, Type: "A100", MemMiB: 40_960, SellableMiB: 40_000, MaxShares: 3, CapMode: "watch"})
	}
	if change != nil {
		change(n)
	}
	l.do(&logv1.Command{Kind: &logv1.Command_RegisterNode{RegisterNode: &logv1.RegisterNode{Node: conv.NodeToLog(n)}}})
}

func (l *lab) partition(p *cluster.Partition) {
	l.t.Helper()
	if p.Nodes.Len() == 0 {
		p.Nodes, _ = cluster.ParseHostList("n[1-9]")
	}
	c := &logv1.SetPartition{Partition: conv.PartitionToLog(p)}
	if old, ok := l.f.Partition(p.Name); ok {
		c.Base = old.Revision
	}
	l.do(&logv1.Command{Kind: &logv1.Command_SetPartition{SetPartition: c}})
}

func (l *lab) standing(s *logv1.Standing) {
	l.t.Helper()
	l.do(&logv1.Command{Kind: &logv1.Command_SetStanding{SetStanding: &logv1.SetStanding{Standing: s}}})
}

func (l *lab) account(name string) {
	l.t.Helper()
	l.standing(&logv1.Standing{Kind: &logv1.Standing_Account{Account: &logv1.Account{Name: name, Shares: 1}}})
}

func (l *lab) member(account string, uid cluster.UID) {
	l.t.Helper()
	l.standing(&logv1.Standing{Kind: &logv1.Standing_Member{Member: &logv1.Member{Account: account, Uid: uint32(uid), Name: fmt.Sprint("u", uid), Shares: 1}}})
}

func job(gpus int, change func(*cluster.Spec)) *cluster.Spec {
	s := &cluster.Spec{Name: "j", Command: []string{"x"}, Dir: "/", GPUs: gpus, CPUMilli: 1000, MemMiB: 1024, Signature: "s"}
	if change != nil {
		change(s)
	}
	return s
}

func (l *lab) submit(specs ...*cluster.Spec) (ids []cluster.JobID) {
	l.t.Helper()
	return l.submitBy(1000, specs...)
}

func (l *lab) submitBy(uid cluster.UID, specs ...*cluster.Spec) (ids []cluster.JobID) {
	l.t.Helper()
	for _, s := range specs {
		first := l.f.NextJobID()
		sum := sha256.Sum256(fmt.Append(nil, first))
		ids = append(ids, l.do(&logv1.Command{Kind: &logv1.Command_SubmitJob{SubmitJob: &logv1.SubmitJob{
			FirstJob: uint64(first), RequestId: fmt.Sprintf("request-number-%06d", first), BodyHash: sum[:],
			Owner: conv.OwnerToLog(cluster.Owner{UID: uid, GID: 100, Name: "ada"}),
			Jobs: []*logv1.NewJob{{Spec: conv.SpecToLog(s), Estimates: conv.EstimatesToLog([]cluster.Estimate{
				{GPUType: "A100", GPUMemMiB: 8000, GPUMemP95MiB: 9000, Milli: 300, Duration: time.Hour, ConfidenceMilli: 900, Source: "declared"}})}},
		}}}).Jobs...)
	}
	return ids
}

// berth is a share of each card, or cores alone.
func berth(node cluster.NodeID, cards ...int) cluster.Berth {
	b := cluster.Berth{Node: node, CPUMilli: 1000, MemMiB: 1024}
	for _, c := range cards {
		b.GPUs = append(b.GPUs, cluster.GPUShare{GPU: cluster.GPUID(fmt.Sprintf("%s-g%d", node, c)), Share: cluster.Share{MemMiB: 9000, Milli: 300}})
	}
	return b
}

func (l *lab) start(id cluster.JobID, first cluster.Berth, rest ...cluster.Berth) {
	l.t.Helper()
	st := dispatch.Start{Job: id, Attempt: uint32(len(l.job(id).Attempts)) + 1, Berth: first, Rest: rest,
		Estimate: cluster.Estimate{GPUType: "A100", GPUMemMiB: 8000, Milli: 300, Duration: time.Hour, Source: "declared"}}
	r := l.do(&logv1.Command{Kind: &logv1.Command_ApplyPlan{ApplyPlan: conv.PlanToLog(&dispatch.Plan{Starts: []dispatch.Start{st}})}})
	if len(r.Plan.Started) != 1 {
		l.t.Fatalf("job %d does not start: %v", id, r.Plan.Rejected)
	}
}

// say reports a state of the last attempt of a job from each of its nodes.
func (l *lab) say(id cluster.JobID, s cluster.JobState, change func(*logv1.ReportAttempt)) {
	l.t.Helper()
	a := l.job(id).Last()
	for _, node := range a.NodeIDs() {
		r := &logv1.ReportAttempt{Node: string(node), Job: uint64(id), Attempt: a.No, Token: uint64(a.Token), State: uint32(s)}
		if change != nil {
			change(r)
		}
		l.do(&logv1.Command{Kind: &logv1.Command_ReportAttempt{ReportAttempt: r}})
	}
}

func (l *lab) job(id cluster.JobID) *cluster.Job {
	l.t.Helper()
	j, ok := l.f.Job(id)
	if !ok {
		l.t.Fatalf("job %d is gone", id)
	}
	return j
}

// running submits a job and has it run.
func (l *lab) running(spec *cluster.Spec, first cluster.Berth, rest ...cluster.Berth) cluster.JobID {
	l.t.Helper()
	id := l.submit(spec)[0]
	l.start(id, first, rest...)
	l.say(id, cluster.JobStarting, func(r *logv1.ReportAttempt) { r.Ready = len(rest) > 0 })
	l.say(id, cluster.JobRunning, nil)
	if j := l.job(id); j.State != cluster.JobRunning {
		l.t.Fatalf("job %d is %s (%s)", id, j.State, j.Reason)
	}
	return id
}

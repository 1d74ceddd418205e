package sim

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"

	"github.com/hashicorp/raft"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/fsm"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// replica is a store that is the replicated state machine, driven with the entries
// that a leader would have proposed, in virtual time.
type replica struct {
	f      *fsm.FSM
	ledger *dispatch.Ledger
	index  uint64
	asked  int
}

const term = 1

// resizing is the partition of all jobs if shares follow use.
const resizing = "resizing"

func newReplica(nodes []*cluster.Node, opt *Options) (*replica, error) {
	r := &replica{f: fsm.New(fsm.Options{ChangeRing: 1})}
	cmds := []*logv1.Command{{Kind: &logv1.Command_InitCluster{InitCluster: &logv1.InitCluster{Config: &logv1.Config{
		ClusterId: "sim", Name: "sim", KeepFinished: 10_000_000,
	}}}}}
	for _, n := range nodes {
		n.Address = "sim:1"
		cmds = append(cmds, &logv1.Command{Kind: &logv1.Command_RegisterNode{RegisterNode: &logv1.RegisterNode{Node: conv.NodeToLog(n)}}})
	}
	if opt.resizes() {
		all, err := cluster.ParseHostList("ALL")
		if err != nil {
			return nil, err
		}
		p := &cluster.Partition{Name: resizing, Nodes: all, Resize: opt.Resize}
		cmds = append(cmds, &logv1.Command{Kind: &logv1.Command_SetPartition{SetPartition: &logv1.SetPartition{Partition: conv.PartitionToLog(p)}}})
	}
	for _, p := range opt.Partitions {
		cmds = append(cmds, &logv1.Command{Kind: &logv1.Command_SetPartition{SetPartition: &logv1.SetPartition{Partition: conv.PartitionToLog(p)}}})
	}
	_, err := r.propose(epoch, cmds...)
	r.f.Read(func(s *fsm.State) { r.ledger = s.Ledger() })
	return r, err
}

// propose applies commands as one entry. A refusal is an error: the simulator
// requests nothing that a leader would not.
func (r *replica) propose(now cluster.Time, cmds ...*logv1.Command) ([]fsm.Result, error) {
	results, err := r.offer(now, cmds...)
	for i := range results {
		if e := results[i].Err; e != nil {
			return nil, fmt.Errorf("entry %d, command %d: %w", r.index, i, e)
		}
	}
	return results, err
}

// offer applies commands as one entry, each of which may be refused.
func (r *replica) offer(now cluster.Time, cmds ...*logv1.Command) ([]fsm.Result, error) {
	data, err := fsm.EncodeEntry(fsm.EntryVersion, term, now, cmds)
	if err != nil {
		return nil, err
	}
	r.index++
	results, ok := r.f.Apply(&raft.Log{Index: r.index, Term: term, Data: data}).([]fsm.Result)
	if !ok || len(results) != len(cmds) {
		return nil, fmt.Errorf("entry %d: %d commands got another number of answers", r.index, len(cmds))
	}
	return results, nil
}

// Now, Index, Ledger, Job, Node and Queue are scheduler.View.
func (r *replica) Now() cluster.Time                            { return r.f.Now() }
func (r *replica) Index() uint64                                { return r.index }
func (r *replica) Ledger() *dispatch.Ledger                     { return r.ledger }
func (r *replica) Job(id cluster.JobID) (*cluster.Job, bool)    { return r.f.Job(id) }
func (r *replica) Node(id cluster.NodeID) (*cluster.Node, bool) { return r.f.Node(id) }
func (r *replica) Queue(g cluster.GPUID) []dispatch.Waiter      { return r.f.Queue(g) }

// OnGPU and Interference make it a scheduler.CompanyView, as a leader's view is:
// without them the fast path misses which jobs on a GPU are slower than the limit.
func (r *replica) OnGPU(g cluster.GPUID) []cluster.JobID {
	var on []cluster.JobID
	r.f.Read(func(s *fsm.State) { on = slices.Clone(s.OnGPU(g)) })
	return on
}

// Interference implements scheduler.CompanyView.
func (r *replica) Interference() *dispatch.Interference { return nil }

// submit sends one request per job, as users do.
func (r *replica) submit(now cluster.Time, jobs []*cluster.Job) error {
	cmds := make([]*logv1.Command, len(jobs))
	for i, j := range jobs {
		r.asked++
		id := "simulated-request-" + strconv.Itoa(r.asked)
		sum := sha256.Sum256([]byte(id))
		cmds[i] = &logv1.Command{Kind: &logv1.Command_SubmitJob{SubmitJob: &logv1.SubmitJob{
			FirstJob: uint64(j.ID), RequestId: id, BodyHash: sum[:], Owner: conv.OwnerToLog(j.Owner),
			Jobs: []*logv1.NewJob{{Spec: conv.SpecToLog(j.Spec), Estimates: conv.EstimatesToLog(j.Estimates)}},
		}}}
	}
	_, err := r.propose(now, cmds...)
	return err
}

func (r *replica) snapshot(now cluster.Time, pendingOnly bool) *dispatch.Snapshot {
	s := r.f.SchedulerSnapshot()
	s.Now = max(s.Now, now)
	if pendingOnly {
		var in []*cluster.Job
		for _, j := range s.Waiting {
			if j.State == cluster.JobPending {
				in = append(in, j)
			}
		}
		s.Waiting = in
	}
	return s
}

func (r *replica) waiting() int {
	c := r.f.Counts()
	return c[cluster.JobPending] + c[cluster.JobQueued]
}

func (r *replica) check() error { return r.ledger.Check() }

// apply commits a plan; the agents of started jobs report at once.
func (r *replica) apply(now cluster.Time, plan *dispatch.Plan) ([]cluster.AttemptID, error) {
	res, err := r.propose(now, &logv1.Command{Kind: &logv1.Command_ApplyPlan{ApplyPlan: conv.PlanToLog(plan)}})
	if err != nil {
		return nil, err
	}
	started := res[0].Plan.Started
	if len(started) == 0 {
		return nil, nil
	}
	cmds := make([]*logv1.Command, len(started))
	for i, a := range started {
		cmds[i] = r.says(now, a.Job, outcome{state: cluster.JobRunning})
	}
	_, err = r.propose(now, cmds...)
	return started, err
}

// says returns what the agent of a job's live attempt reports.
func (r *replica) says(now cluster.Time, id cluster.JobID, end outcome) *logv1.Command {
	j, _ := r.f.Job(id)
	a := j.Last()
	m := &logv1.ReportAttempt{
		Node: string(a.Berth.Node), Job: uint64(id), Attempt: a.No, Token: uint64(a.Token), State: uint32(end.state), StartedUs: int64(a.Placed),
	}
	if end.state.Terminal() {
		m.EndedUs, m.Usage = int64(now), conv.UsageToLog(end.usage)
		m.Exit = &logv1.Exit{}
		if end.state != cluster.JobCompleted {
			m.Exit.Code = 1
		}
	}
	return &logv1.Command{Kind: &logv1.Command_ReportAttempt{ReportAttempt: m}}
}

func (r *replica) finish(now cluster.Time, id cluster.JobID, end outcome) (bool, error) {
	if j, ok := r.f.Job(id); !ok || j.Live() == nil {
		return false, fmt.Errorf("job %d has no live attempt to end", id)
	}
	if _, err := r.propose(now, r.says(now, id, end)); err != nil {
		return false, err
	}
	j, _ := r.f.Job(id)
	return j.State.Waiting(), nil
}

// preempt is subject to the rules of the state machine, which policies for
// comparison with published figures may violate.
func (r *replica) preempt(now cluster.Time, x *dispatch.Preemption) (bool, error) {
	results, err := r.offer(now, &logv1.Command{Kind: &logv1.Command_PreemptAttempt{PreemptAttempt: conv.PreemptToLog(x)}})
	return err == nil && results[0].Err == nil, err
}

// resize is subject to the rules of the state machine, which refuses it if others
// have the room.
func (r *replica) resize(now cluster.Time, id cluster.AttemptID, to []cluster.GPUShare) (bool, error) {
	results, err := r.offer(now, conv.Resize(id, to))
	return err == nil && results[0].Err == nil, err
}

// setNode makes a node silent; it comes back by registering.
func (r *replica) setNode(now cluster.Time, id cluster.NodeID, st cluster.NodeState) error {
	if st == cluster.NodeReady {
		n, ok := r.f.Node(id)
		if !ok {
			return fmt.Errorf("node %s is not known", id)
		}
		_, err := r.propose(now, &logv1.Command{Kind: &logv1.Command_RegisterNode{RegisterNode: &logv1.RegisterNode{Node: conv.NodeToLog(n)}}})
		return err
	}
	_, err := r.propose(now, &logv1.Command{Kind: &logv1.Command_SetNodeState{SetNodeState: &logv1.SetNodeState{
		Node: string(id), State: uint32(st), BootId: "b",
	}}})
	return err
}

package apiconv

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/hostnames"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// SpecFromAPI converts what a client sent and checks it with Spec.Check. The error
// is a *cluster.Error of CodeInvalid that names the field. Signature stays empty:
// the coordinator derives it.
func SpecFromAPI(m *apiv1.JobSpec) (*cluster.Spec, error) {
	if m == nil {
		return nil, cluster.Errorf(cluster.CodeInvalid, "job: is missing")
	}
	s := &cluster.Spec{
		Name: m.GetName(), Command: Texts[string](m.GetCommand()), Env: Texts[string](m.GetEnv()),
		Dir: string(m.GetDir()), Image: m.GetImage(),
		Exclusive: m.GetExclusive(), GPUType: m.GetGpuType(), Node: cluster.NodeID(m.GetNode()), Nodes: int(min(m.GetNodes(), MaxStored)), Tasks: int(min(m.GetTasksPerNode(), MaxStored)),
		GPUMemMiB: m.GetGpuMemMib(), GPUMilli: m.GetGpuUtilMilli(),
		MemMiB: m.GetMemMib(), AllMem: m.GetAllMem(), CPUMilli: m.GetCpuMilli(),
		Stdin: string(m.GetStdin()), Stdout: string(m.GetStdout()), Stderr: string(m.GetStderr()),
		RequeueOnLoss: m.GetRequeueOnLoss(), Features: orNil(m.GetFeatures()), Comment: m.GetComment(), Script: orNil(m.GetScript()),
		Objective: cluster.Objective(m.GetObjective()), MaxPowerW: m.GetMaxPowerW(), MaxCostMilli: m.GetMaxCostMilli(),
		Partition: m.GetPartition(), Account: m.GetAccount(), QOS: m.GetQos(), Nice: m.GetNice(), OrCPU: m.GetOrCpu(),
		Hold: m.GetHold(), DependAny: m.GetDependAny(), KillInvalidDepend: m.GetKillInvalidDepend(),
		Truncate: m.GetTruncate(), Container: ContainerFrom(m.GetContainer()),
		Depends: DependsFromAPI(m.GetDepends()),
	}
	if m.GetGpus() > cluster.MaxGPUsPerJob { // before narrowing
		return nil, cluster.Errorf(cluster.CodeInvalid, "gpus: %d is outside 0 to %d on each node; --nodes asks for several", m.GetGpus(), cluster.MaxGPUsPerJob)
	}
	// One more than the maximum stands for all that is too large; Spec.Check refuses it.
	s.GPURange = cluster.GPURange{Min: int(min(m.GetLeastGpus(), cluster.MaxGPUsPerJob+1)), Max: int(min(m.GetMostGpus(), cluster.MaxGPUsPerJob+1))}
	s.NodeRange = cluster.NodeRange{Min: int(min(m.GetLeastNodes(), cluster.MaxNodes+1)), Max: int(min(m.GetMostNodes(), cluster.MaxNodes+1))}
	s.BatchScaling, s.Power, s.InPlace, s.Data = cluster.BatchScaling(m.GetBatchScaling()), PowerFrom(m), m.GetInPlace(), m.GetData()
	s.Study, s.Service = StudyFromAPI(m.GetStudy()), ServiceFromAPI(m.GetService())
	s.GPUs, s.Retry = int(m.GetGpus()), cluster.Retry{Times: int(min(m.GetRetries(), cluster.MaxRetries+1)), On: m.GetRetryOn()}
	var err error
	if s.Duration, err = duration("expect", m.GetExpected()); err != nil {
		return nil, err
	}
	if s.TimeLimit, err = duration("time", m.GetTimeLimit()); err != nil {
		return nil, err
	}
	if s.DeadlineIn, err = duration("deadline", m.GetDeadlineIn()); err != nil {
		return nil, err
	}
	if s.Deadline, err = moment("deadline", m.GetDeadline()); err != nil {
		return nil, err
	}
	if s.Begin, err = moment("begin", m.GetBegin()); err != nil {
		return nil, err
	}
	if s.Checkpoint, err = checkpointFromAPI(m); err != nil {
		return nil, err
	}
	if s.Warning, err = warningFromAPI(m.GetWarning()); err != nil {
		return nil, err
	}
	if s.Array, err = arrayFromAPI(m.GetArray()); err != nil {
		return nil, err
	}
	if err := tellingFromAPI(s, m); err != nil {
		return nil, err
	}
	if s.Where, err = whereFromAPI(m.GetWhere()); err != nil {
		return nil, err
	}
	return s, s.Check()
}

func orNil(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b
}

// checkpointFromAPI converts the hook; a signal without a grace gets the default.
func checkpointFromAPI(m *apiv1.JobSpec) (cluster.Checkpoint, error) {
	c := cluster.Checkpoint{Signal: m.GetCheckpointSignal()}
	var err error
	if c.Grace, err = duration("checkpoint", m.GetCheckpointGrace()); err != nil {
		return c, err
	}
	if c.Signal == "" && c.Grace != 0 {
		return c, cluster.Errorf(cluster.CodeInvalid, "checkpoint: has a grace and no signal; say which signal makes the job save its state")
	}
	if c.Signal != "" && m.GetCheckpointGrace() == nil {
		c.Grace = cluster.DefaultCheckpointGrace
	}
	return c, nil
}

// moment converts a time, 0 for none.
func moment(field string, t *timestamppb.Timestamp) (cluster.Time, error) {
	if t == nil {
		return 0, nil
	}
	if err := t.CheckValid(); err != nil {
		return 0, cluster.Errorf(cluster.CodeInvalid, "%s: is not a valid time", field)
	}
	if at := cluster.TimeOf(t.AsTime()); at > 0 {
		return at, nil
	}
	return -1, nil // 0 would mean none; Spec.Check refuses -1
}

func duration(field string, d *durationpb.Duration) (time.Duration, error) {
	if d == nil {
		return 0, nil
	}
	if err := d.CheckValid(); err != nil {
		return 0, cluster.Errorf(cluster.CodeInvalid, "%s: is not a valid duration", field)
	}
	return d.AsDuration(), nil
}

// SpecToAPI is the reverse of SpecFromAPI; it leaves out Signature, and an
// environment and script stored outside of the spec.
func SpecToAPI(s *cluster.Spec) *apiv1.JobSpec {
	return &apiv1.JobSpec{
		Name: s.Name, Command: Texts[[]byte](s.Command), Env: Texts[[]byte](s.Env),
		Dir: []byte(s.Dir), Image: s.Image, Gpus: uint32(max(0, s.GPUs)),
		Exclusive: s.Exclusive, GpuType: s.GPUType, Node: string(s.Node), Nodes: uint32(max(0, s.Nodes)), TasksPerNode: uint32(max(0, s.Tasks)),
		GpuMemMib: s.GPUMemMiB, GpuUtilMilli: s.GPUMilli, Expected: ToDuration(s.Duration),
		MemMib: s.MemMiB, AllMem: s.AllMem, CpuMilli: s.CPUMilli, TimeLimit: ToDuration(s.TimeLimit),
		Stdin: []byte(s.Stdin), Stdout: []byte(s.Stdout), Stderr: []byte(s.Stderr),
		RequeueOnLoss: s.RequeueOnLoss, Features: s.Features, Comment: s.Comment, Script: s.Script,
		Deadline: ToTime(s.Deadline), DeadlineIn: ToDuration(s.DeadlineIn), Objective: string(s.Objective), MaxPowerW: s.MaxPowerW, MaxCostMilli: s.MaxCostMilli,
		CheckpointSignal: s.Checkpoint.Signal, CheckpointGrace: ToDuration(s.Checkpoint.Grace),
		Partition: s.Partition, OrCpu: s.OrCPU,
		Hold: s.Hold, Begin: ToTime(s.Begin), Defer: ToDuration(s.Defer), InPlace: s.InPlace, Data: s.Data, Depends: DependsToAPI(s.Depends), DependAny: s.DependAny, KillInvalidDepend: s.KillInvalidDepend,
		Warning: warningToAPI(s.Warning), Truncate: s.Truncate, Container: containerToAPI(&s.Container),
		Where:    whereToAPI(s.Where),
		MailType: s.Mail.Events.String(), MailUser: s.Mail.To, IdleOk: ToDuration(s.IdleOK), NoResize: s.NoResize,
		LeastGpus: uint32(max(0, s.GPURange.Min)), MostGpus: uint32(max(0, s.GPURange.Max)),
		LeastNodes: uint32(max(0, s.NodeRange.Min)), MostNodes: uint32(max(0, s.NodeRange.Max)),
		Retries: uint32(max(0, s.Retry.Times)), RetryOn: s.Retry.On, BatchScaling: string(s.BatchScaling),
		Study:    StudyToAPI(s.Study),
		Service:  ServiceToAPI(s.Service),
		PowerCap: string(s.Power.Cap), GpuFreq: string(s.Power.Freq),
		Account: s.Account, Qos: s.QOS, Nice: s.Nice,
		Array: arrayToAPI(s.Array),
	}
}

// GPULookup returns a GPU's type and its current index on its node, or "" and 0 for
// a GPU that is gone. The node may be empty if only the GPU is known.
type GPULookup func(cluster.NodeID, cluster.GPUID) (typ string, index int)

// JobDetail is what JobToAPI cannot read from the job itself, and how much of the
// job to include.
type JobDetail struct {
	// GPU may be nil; then shares carry no type.
	GPU GPULookup
	// QueuePosition is the job's place in its GPU's queue from 1, 0 for none.
	QueuePosition int
	// Host returns where the processes of a node are reached; nil for nowhere.
	Host func(cluster.NodeID) string
	// Reason replaces the stored reason if its code is set: the planner keeps the
	// detailed reasons for waiting outside the state.
	Reason cluster.Reason
	// Throttle is how many tasks of the job's array may run at once now.
	Throttle int
	// Brief leaves out spec, attempts and predictions. Whole includes an
	// environment stored outside of the spec, which lists and watches leave out.
	Brief, Whole bool
	// Served returns the measurements of a user's service; nil means none.
	Served func(owner cluster.UID, name string) Served
	// Redact leaves out what only the owner and administrators may see: the
	// command, environment, image, mounts, paths, comment and features, and the
	// details of reasons.
	Redact bool
	// Now is the time up to which running jobs have used their GPUs.
	Now cluster.Time
	// Apart leaves out what CommonToAPI has.
	Apart bool
}

// JobToAPI converts j for users. The prediction is that of the last attempt, or for
// a waiting job the one for the GPU type it waits for, the type it asks for, or the
// first.
func JobToAPI(j *cluster.Job, d JobDetail) *apiv1.Job {
	if d.GPU == nil {
		d.GPU = func(cluster.NodeID, cluster.GPUID) (string, int) { return "", 0 }
	}
	reason := j.Reason
	if d.Reason.Code != "" {
		reason = d.Reason
	}
	m := &apiv1.Job{
		Id: uint64(j.ID), State: j.State.String(), Reason: string(reason.Code), ReasonDetail: detailOf(reason, j.Owner),
		Submitted: ToTime(j.Submitted), Started: ToTime(j.Started), Ended: ToTime(j.Ended),
		EstimatedStart: ToTime(j.EstStart), Queue: string(j.Queue), Promised: Texts[string](j.Promised),
		QueuePosition: uint32(max(0, d.QueuePosition)), Revision: j.Revision,
		CancelRequested: j.Cancel != nil,
	}
	if j.Spec != nil {
		m.Dependency = j.Dependency()
	}
	if !d.Apart {
		headToAPI(m, j)
	}
	taskToAPI(m, j, d.Throttle)
	if a := j.Last(); a != nil && !j.State.Waiting() {
		m.Node, m.Gpus = string(a.Berth.Node), attemptShares(a, d.GPU)
		m.NodeList = hostnames.Fold(a.NodeIDs())
		m.ExitCode, m.Signal = exitToAPI(a.Exit)
	}
	if m.Replica, m.Trial = replicaToAPI(j, d), trialToAPI(j, d.Now, d.Brief); d.Redact {
		m.ReasonDetail, m.Trial = "", nil
	}
	if d.Brief {
		return m
	}
	if a := j.Last(); a != nil && !j.State.Waiting() {
		m.Measured, m.Neighbours = MeasuredToAPI(a.Usage), IDs[uint64](a.Neighbours)
	}
	if predictedBy(j, d.GPU) == byAttempt {
		m.Predicted = EstimateToAPI(j.Last().Estimate)
	}
	for i := range j.Attempts {
		m.Attempts = append(m.Attempts, attemptToAPI(&j.Attempts[i], j.Owner, d.GPU))
	}
	if !d.Apart {
		specToAPI(m, j, d)
	}
	if d.Redact {
		redact(m)
	}
	return m
}

// redact reduces each reason to its code: a detail may quote what the job printed,
// or name its image and its files.
func redact(m *apiv1.Job) {
	for _, a := range m.Attempts {
		a.ReasonDetail = ""
		for _, p := range a.Parts {
			p.ReasonDetail = ""
		}
	}
	s := m.Spec
	if s == nil {
		return
	}
	s.Command, s.Image, s.Container, s.Study, s.Service = nil, "", nil, nil, nil
	s.Env, s.Features, s.Comment = nil, nil, ""
	s.Dir, s.Stdin, s.Stdout, s.Stderr = nil, nil, nil, nil
	s.MailType, s.MailUser = "", ""
}

// detailOf returns the detail of a reason. The log names who had a job requeued by
// number; users see the owner's name.
func detailOf(r cluster.Reason, owner cluster.Owner) string {
	if r.Code != cluster.ReasonRequeued || owner.Name == "" {
		return r.Detail
	}
	if before, own := strings.CutSuffix(r.Detail, fmt.Sprintf("by uid %d", owner.UID)); own {
		return before + "by " + owner.Name
	}
	return r.Detail
}

func attemptToAPI(a *cluster.Attempt, owner cluster.Owner, gpu GPULookup) *apiv1.Attempt {
	m := &apiv1.Attempt{
		No: a.No, State: a.State.String(), Reason: string(a.Reason.Code), ReasonDetail: detailOf(a.Reason, owner),
		Node: string(a.Berth.Node), Gpus: attemptShares(a, gpu),
		Placed: ToTime(a.Placed), Started: ToTime(a.Started), Ended: ToTime(a.Ended),
		Why: a.Why, Overtook: a.Overtook, Neighbours: IDs[uint64](a.Neighbours),
		Predicted: EstimateToAPI(a.Estimate), Measured: MeasuredToAPI(a.Usage), Token: uint64(a.Token),
		Parts: partsToAPI(a, owner, gpu), Port: uint32(a.Port), Progress: progressToAPI(a.Progress),
		CpuMilli: a.Berth.CPUMilli, MemMib: a.Berth.MemMiB, Power: cardPowerToAPI(a, gpu), Search: capSearchToAPI(a.Search), Loan: a.Loan, Changes: changesToAPI(a.Changes),
	}
	m.ExitCode, m.Signal = exitToAPI(a.Exit)
	return m
}

// PowerFrom converts a message's settings for the power and clock of GPUs.
func PowerFrom(m interface {
	GetPowerCap() string
	GetGpuFreq() string
}) cluster.GPUPower {
	return cluster.GPUPower{Cap: cluster.PowerCap(m.GetPowerCap()), Freq: cluster.GPUFreq(m.GetGpuFreq())}
}

func capSearchToAPI(s *cluster.CapSearch) *apiv1.CapSearch {
	if s == nil {
		return nil
	}
	return &apiv1.CapSearch{
		DefaultW: s.DefaultW, CapW: s.CapW, Why: s.Why,
		StepsBefore: s.Before.PerSecond, JoulesBefore: s.Before.Joules, StepsAfter: s.After.PerSecond, JoulesAfter: s.After.Joules,
	}
}

// cardPowerToAPI converts the power and clock changes to an attempt's GPUs, ordered
// by the rank of their nodes.
func cardPowerToAPI(a *cluster.Attempt, gpu GPULookup) (out []*apiv1.CardPower) {
	for _, b := range a.Berths() {
		for _, g := range b.GPUs {
			for _, p := range a.Power {
				if p.GPU == g.GPU {
					_, index := gpu(b.Node, g.GPU)
					out = append(out, &apiv1.CardPower{Node: string(b.Node), Index: uint32(max(0, index)), Uuid: string(p.GPU), CapW: p.CapW, ClockMhz: p.ClockMHz, Why: p.Why})
				}
			}
		}
	}
	return out
}

// attemptShares converts the shares of an attempt on its first node.
func attemptShares(a *cluster.Attempt, gpu GPULookup) []*apiv1.GPUShare {
	out := sharesToAPI(&a.Berth, gpu)
	for i, s := range out {
		s.Share.GrantedMib = Granted(a, i)
	}
	return out
}

func sharesToAPI(b *cluster.Berth, gpu GPULookup) []*apiv1.GPUShare {
	var out []*apiv1.GPUShare
	for _, g := range b.GPUs {
		typ, index := gpu(b.Node, g.GPU)
		out = append(out, &apiv1.GPUShare{
			Uuid: string(g.GPU), Type: typ, Index: uint32(max(0, index)),
			Share: &apiv1.Share{MemMib: g.Share.MemMiB, Milli: g.Share.Milli, Exclusive: g.Share.Exclusive},
		})
	}
	return out
}

func exitToAPI(e *cluster.Exit) (code *int32, signal int32) {
	if e == nil {
		return nil, 0
	}
	return new(e.Code), e.Signal
}

// EstimateToAPI converts a prediction; the caller adds the parts of the memory
// estimate.
func EstimateToAPI(e cluster.Estimate) *apiv1.Prediction {
	return &apiv1.Prediction{
		GpuType: e.GPUType, GpuMemMib: e.GPUMemMiB, GpuMemP95Mib: e.GPUMemP95MiB, GpuUtilMilli: e.Milli,
		Seconds: e.Duration.Seconds(), HostMemMib: e.HostMemMiB, CpuMilli: e.CPUMilli, PowerW: e.PowerW,
		Confidence: float64(e.ConfidenceMilli) / 1000, Source: e.Source, TimeConfidence: float64(e.TimeConfidenceMilli) / 1000,
	}
}

// MeasuredToAPI converts measurements, nil if there are none.
func MeasuredToAPI(u cluster.Usage) *apiv1.Measured {
	if u == (cluster.Usage{}) {
		return nil
	}
	return &apiv1.Measured{
		GpuMemMib: u.GPUMemPeakMiB, GpuUtilMilli: u.Milli, Seconds: u.Duration.Seconds(),
		HostMemMib: u.HostMemPeakMiB, CpuMilli: u.CPUMilli, GpuOom: u.GPUOOM, PowerW: u.PowerW,
		Profile: profileToAPI(u.Profile),
	}
}

// ToTime converts a time; the zero one becomes nil.
func ToTime(t cluster.Time) *timestamppb.Timestamp {
	if t == 0 {
		return nil
	}
	return timestamppb.New(t.Std())
}

// ToDuration converts a duration; none becomes nil.
func ToDuration(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

// IDs converts job numbers and the like; nil for none.
func IDs[To, From ~uint64](in []From) (out []To) {
	for _, id := range in {
		out = append(out, To(id))
	}
	return out
}

type text interface{ ~string | ~[]byte }

// Texts converts names and texts; those in bytes need not be UTF-8. It returns nil
// for none.
func Texts[To, From text](in []From) []To {
	if len(in) == 0 {
		return nil
	}
	out := make([]To, len(in))
	for i, s := range in {
		out[i] = To(s)
	}
	return out
}

// MaxStored bounds small counts in stored messages.
const MaxStored = 1 << 20

// Granted returns how much memory an attempt may have of its GPU i if its share was
// cut to what it uses, else 0. A share cut by an idle policy is enforced as cut.
func Granted(a *cluster.Attempt, i int) int64 {
	if !a.WasCut() || a.Idle != nil && len(a.Idle.Was) > 0 {
		return 0
	}
	return a.Granted(i)
}

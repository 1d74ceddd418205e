package conv

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

// OwnerToLog converts an owner.
func OwnerToLog(o cluster.Owner) *logv1.Owner {
	return &logv1.Owner{Uid: uint32(o.UID), Gid: o.GID, Name: o.Name}
}

// OwnerFromLog converts back; nil becomes the zero owner.
func OwnerFromLog(m *logv1.Owner) cluster.Owner {
	return cluster.Owner{UID: cluster.UID(m.GetUid()), GID: m.GetGid(), Name: m.GetName()}
}

// SpecToLog converts a spec, including parts stored elsewhere.
func SpecToLog(s *cluster.Spec) *logv1.Spec {
	m := specToLog(s)
	env, script := s.Large()
	m.Env, m.Script = apiconv.Texts[[]byte](env), script
	return m
}

// SpecNaming converts a spec; parts stored elsewhere are named by their hash.
func SpecNaming(s *cluster.Spec) *logv1.Spec {
	if s.Bulk == nil {
		return SpecToLog(s)
	}
	m, sum := specToLog(s), s.Bulk.Sum()
	m.Bulk = sum[:]
	return m
}

// specToLog leaves out environment and script.
func specToLog(s *cluster.Spec) *logv1.Spec {
	return &logv1.Spec{
		Name: s.Name, Command: apiconv.Texts[[]byte](s.Command), Dir: []byte(s.Dir), Image: s.Image,
		Gpus: uint32(s.GPUs), Exclusive: s.Exclusive, GpuType: s.GPUType, Node: string(s.Node),
		GpuMemMib: s.GPUMemMiB, GpuMilli: s.GPUMilli, DurationUs: s.Duration.Microseconds(),
		MemMib: s.MemMiB, CpuMilli: s.CPUMilli, TimeLimitUs: s.TimeLimit.Microseconds(),
		Stdin: []byte(s.Stdin), Stdout: []byte(s.Stdout), Stderr: []byte(s.Stderr),
		RequeueOnLoss: s.RequeueOnLoss, Signature: s.Signature, Features: s.Features, Comment: s.Comment,
		DeadlineUs: int64(s.Deadline), Objective: string(s.Objective), MaxPowerW: s.MaxPowerW, MaxCostMilli: s.MaxCostMilli,
		CheckpointSignal: s.Checkpoint.Signal, CheckpointGraceUs: s.Checkpoint.Grace.Microseconds(),
		Partition: s.Partition, OrCpu: s.OrCPU, Nodes: uint32(s.Nodes), Tasks: uint32(s.Tasks),
		Hold: s.Hold, BeginUs: int64(s.Begin), DeferUs: s.Defer.Microseconds(), InPlace: s.InPlace, Program: s.Program, Numbers: s.Numbers, Data: s.Data, Depends: dependsToLog(s.Depends), DependAny: s.DependAny, KillInvalidDepend: s.KillInvalidDepend,
		Warning: warningToLog(s.Warning), Truncate: s.Truncate, Container: containerToLog(&s.Container),
		Where:      whereToLog(s.Where),
		MailEvents: uint32(s.Mail.Events), MailUser: s.Mail.To, IdleOkUs: s.IdleOK.Microseconds(), NoResize: s.NoResize,
		LeastGpus: uint32(s.GPURange.Min), MostGpus: uint32(s.GPURange.Max), LeastNodes: uint32(s.NodeRange.Min), MostNodes: uint32(s.NodeRange.Max), Retries: uint32(s.Retry.Times), RetryOn: s.Retry.On, BatchScaling: string(s.BatchScaling),
		Study:    studyToLog(s.Study),
		Service:  serviceToLog(s.Service),
		PowerCap: string(s.Power.Cap), GpuFreq: string(s.Power.Freq),
		Account: s.Account, Qos: s.QOS, Nice: s.Nice, Host: hostToLog(s.Host),
		Array: arrayToLog(s.Array),
	}
}

func us(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// ErrNoBulk is matched by the error of a spec that names missing parts.
var ErrNoBulk = errors.New("its environment and script are not there")

// SpecNamed converts back a spec that may name its large parts. find returns them
// by hash, nil if they are missing.
func SpecNamed(m *logv1.Spec, find func(sum []byte) cluster.Bulk) (*cluster.Spec, error) {
	s, err := specFromLog(m)
	switch {
	case err != nil || len(m.Bulk) == 0:
		return s, err
	case len(s.Env) > 0 || len(s.Script) > 0:
		return nil, errors.New("spec that names its environment and script, and has them")
	}
	if s.Bulk = find(m.Bulk); s.Bulk == nil {
		return nil, ErrNoBulk
	}
	return s, nil
}

// maxStoredUs is the longest time that fits a duration.
const maxStoredUs = math.MaxInt64 / int64(time.Microsecond)

func specFromLog(m *logv1.Spec) (*cluster.Spec, error) {
	switch {
	case m == nil:
		return nil, errors.New("spec is missing")
	case m.Gpus > apiconv.MaxStored:
		return nil, fmt.Errorf("spec with %d GPUs", m.Gpus)
	case m.LeastGpus > apiconv.MaxStored || m.MostGpus > apiconv.MaxStored:
		return nil, fmt.Errorf("spec with %d to %d GPUs", m.LeastGpus, m.MostGpus)
	case m.Nodes > apiconv.MaxStored || m.Tasks > apiconv.MaxStored:
		return nil, fmt.Errorf("spec with %d nodes and %d tasks on each", m.Nodes, m.Tasks)
	case m.GpuMemMib < 0 || m.GpuMilli < 0 || m.MemMib < 0 || m.CpuMilli < 0 || m.DurationUs < 0 || m.TimeLimitUs < 0 ||
		m.DeadlineUs < 0 || m.MaxPowerW < 0 || m.MaxCostMilli < 0 || m.CheckpointGraceUs < 0 || m.BeginUs < 0 ||
		m.GetWarning().GetBeforeUs() < 0 || m.GetContainer().GetTmpMib() < 0 || m.GetContainer().GetShmMib() < 0 || m.IdleOkUs < 0 || m.DeferUs < 0:
		return nil, errors.New("spec with a negative amount")
	case max(m.DurationUs, m.TimeLimitUs, m.CheckpointGraceUs, m.GetWarning().GetBeforeUs(), m.IdleOkUs, m.DeferUs) > maxStoredUs:
		return nil, errors.New("spec with a time beyond all") // it would be negative as a duration
	}
	array, err := arrayFromLog(m.GetArray())
	if err != nil {
		return nil, err
	}
	where, err := whereFromLog(m.GetWhere())
	if err != nil {
		return nil, err
	}
	return &cluster.Spec{
		Array: array,
		Where: where,
		Name:  m.GetName(), Command: apiconv.Texts[string](m.GetCommand()), Env: apiconv.Texts[string](m.GetEnv()), Dir: string(m.GetDir()), Image: m.GetImage(),
		GPUs: int(m.GetGpus()), Exclusive: m.GetExclusive(), GPUType: m.GetGpuType(), Node: cluster.NodeID(m.GetNode()),
		GPUMemMiB: m.GetGpuMemMib(), GPUMilli: m.GetGpuMilli(), Duration: us(m.GetDurationUs()),
		MemMiB: m.GetMemMib(), CPUMilli: m.GetCpuMilli(), TimeLimit: us(m.GetTimeLimitUs()),
		Stdin: string(m.GetStdin()), Stdout: string(m.GetStdout()), Stderr: string(m.GetStderr()),
		RequeueOnLoss: m.GetRequeueOnLoss(), Signature: m.GetSignature(), Features: m.GetFeatures(), Comment: m.GetComment(), Script: m.GetScript(),
		Deadline: cluster.Time(m.GetDeadlineUs()), Objective: cluster.Objective(m.GetObjective()), MaxPowerW: m.GetMaxPowerW(), MaxCostMilli: m.GetMaxCostMilli(),
		Checkpoint: cluster.Checkpoint{Signal: m.GetCheckpointSignal(), Grace: us(m.GetCheckpointGraceUs())},
		Partition:  m.GetPartition(),
		OrCPU:      m.GetOrCpu(),
		Hold:       m.GetHold(), Begin: cluster.Time(m.GetBeginUs()), Defer: us(m.GetDeferUs()), InPlace: m.GetInPlace(), Program: m.GetProgram(), Numbers: m.GetNumbers(), Data: m.GetData(), Depends: dependsFromLog(m.GetDepends()),
		Nodes: int(m.GetNodes()), Tasks: int(m.GetTasks()),
		DependAny: m.GetDependAny(), KillInvalidDepend: m.GetKillInvalidDepend(),
		Warning: warningFromLog(m.GetWarning()), Truncate: m.GetTruncate(), Container: apiconv.ContainerFrom(m.GetContainer()),
		Mail: cluster.Mail{Events: cluster.MailEvents(m.GetMailEvents()), To: m.GetMailUser()}, IdleOK: us(m.GetIdleOkUs()), NoResize: m.GetNoResize(),
		GPURange:  cluster.GPURange{Min: int(m.GetLeastGpus()), Max: int(m.GetMostGpus())},
		NodeRange: cluster.NodeRange{Min: int(m.GetLeastNodes()), Max: int(m.GetMostNodes())},
		Retry:     cluster.Retry{Times: int(m.GetRetries()), On: m.GetRetryOn()}, BatchScaling: cluster.BatchScaling(m.GetBatchScaling()), Power: apiconv.PowerFrom(m),
		Study:   studyFromLog(m.GetStudy()),
		Service: serviceFromLog(m.GetService()),
		Account: m.GetAccount(), QOS: m.GetQos(), Nice: m.GetNice(), Host: hostFromLog(m.GetHost()),
	}, nil
}

// EstimateToLog converts an estimate.
func EstimateToLog(e cluster.Estimate) *logv1.Estimate {
	return &logv1.Estimate{
		GpuType: e.GPUType, GpuMemMib: e.GPUMemMiB, GpuMemP95Mib: e.GPUMemP95MiB, Milli: e.Milli,
		DurationUs: e.Duration.Microseconds(), HostMemMib: e.HostMemMiB, CpuMilli: e.CPUMilli, PowerW: e.PowerW,
		ConfidenceMilli: e.ConfidenceMilli, Source: e.Source, HostConfidenceMilli: e.HostConfidenceMilli, TimeConfidenceMilli: e.TimeConfidenceMilli,
	}
}

// EstimateFromLog converts back.
func EstimateFromLog(m *logv1.Estimate) cluster.Estimate {
	return cluster.Estimate{
		GPUType: m.GetGpuType(), GPUMemMiB: m.GetGpuMemMib(), GPUMemP95MiB: m.GetGpuMemP95Mib(), Milli: m.GetMilli(),
		Duration: us(m.GetDurationUs()), HostMemMiB: m.GetHostMemMib(), CPUMilli: m.GetCpuMilli(), PowerW: m.GetPowerW(),
		ConfidenceMilli: m.GetConfidenceMilli(), Source: m.GetSource(), HostConfidenceMilli: m.GetHostConfidenceMilli(), TimeConfidenceMilli: m.GetTimeConfidenceMilli(),
	}
}

// EstimatesToLog converts estimates in order.
func EstimatesToLog(es []cluster.Estimate) []*logv1.Estimate {
	out := make([]*logv1.Estimate, 0, len(es))
	for _, e := range es {
		out = append(out, EstimateToLog(e))
	}
	return out
}

// EstimatesFromLog converts back.
func EstimatesFromLog(ms []*logv1.Estimate) []cluster.Estimate {
	out := make([]cluster.Estimate, 0, len(ms))
	for _, m := range ms {
		out = append(out, EstimateFromLog(m))
	}
	return out
}

// BerthToLog converts a berth.
func BerthToLog(b *cluster.Berth) *logv1.Berth {
	return &logv1.Berth{Node: string(b.Node), CpuMilli: b.CPUMilli, MemMib: b.MemMiB, Gpus: gpuSharesToLog(b.GPUs)}
}

// BerthFromLog converts back.
func BerthFromLog(m *logv1.Berth) cluster.Berth {
	return cluster.Berth{Node: cluster.NodeID(m.GetNode()), CPUMilli: m.GetCpuMilli(), MemMiB: m.GetMemMib(), GPUs: gpuSharesFromLog(m.GetGpus())}
}

func gpuSharesToLog(gpus []cluster.GPUShare) []*logv1.GPUShare {
	var out []*logv1.GPUShare
	for _, g := range gpus {
		out = append(out, &logv1.GPUShare{Gpu: string(g.GPU), MemMib: g.Share.MemMiB, Milli: g.Share.Milli, Exclusive: g.Share.Exclusive})
	}
	return out
}

func gpuSharesFromLog(m []*logv1.GPUShare) []cluster.GPUShare {
	var out []cluster.GPUShare
	for _, g := range m {
		out = append(out, cluster.GPUShare{GPU: cluster.GPUID(g.Gpu), Share: cluster.Share{MemMiB: g.MemMib, Milli: g.Milli, Exclusive: g.Exclusive}})
	}
	return out
}

// PreemptToLog returns the command for a proposed preemption.
func PreemptToLog(p *dispatch.Preemption) *logv1.PreemptAttempt {
	return &logv1.PreemptAttempt{Job: uint64(p.Job), Attempt: p.Attempt, For: uint64(p.For), Why: clip(p.Why, maxDetail)}
}

// PlanToLog converts a plan; unplaced jobs are not stored, and preemptions are
// separate commands, see PreemptToLog.
func PlanToLog(p *dispatch.Plan) *logv1.ApplyPlan {
	m := &logv1.ApplyPlan{BaseIndex: p.BaseIndex}
	for i := range p.Starts {
		s := &p.Starts[i]
		m.Starts = append(m.Starts, &logv1.Start{
			Job: uint64(s.Job), Attempt: s.Attempt, Berth: BerthToLog(&s.Berth), Estimate: EstimateToLog(s.Estimate),
			Why: s.Why, Overtook: s.Overtook, Rest: berthsToLog(s.Rest), Port: uint32(s.Port), Secret: []byte(s.Secret), Loan: s.Loan,
		})
	}
	for _, v := range p.Moves {
		m.Moves = append(m.Moves, &logv1.QueueMove{
			Job: uint64(v.Job), Gpu: string(v.GPU), Rank: v.Rank, EstStartUs: int64(v.EstStart), Reason: string(v.Reason), Nodes: apiconv.Texts[string](v.Nodes),
		})
	}
	return m
}

// PlanFromLog converts back.
func PlanFromLog(m *logv1.ApplyPlan) dispatch.Plan {
	p := dispatch.Plan{BaseIndex: m.GetBaseIndex()}
	for _, s := range m.GetStarts() {
		p.Starts = append(p.Starts, dispatch.Start{
			Job: cluster.JobID(s.Job), Attempt: s.Attempt, Berth: BerthFromLog(s.Berth), Estimate: EstimateFromLog(s.Estimate),
			Why: s.Why, Overtook: s.Overtook, Rest: berthsFromLog(s.Rest), Port: uint16(s.Port), Secret: cluster.Secret(s.Secret), Loan: s.Loan,
		})
	}
	for _, v := range m.GetMoves() {
		p.Moves = append(p.Moves, dispatch.QueueMove{
			Job: cluster.JobID(v.Job), GPU: cluster.GPUID(v.Gpu), Rank: v.Rank, EstStart: cluster.Time(v.EstStartUs), Reason: cluster.ReasonCode(v.Reason), Nodes: apiconv.Texts[cluster.NodeID](v.Nodes),
		})
	}
	return p
}

// UsageToLog converts measurements.
func UsageToLog(u cluster.Usage) *logv1.Usage {
	return &logv1.Usage{
		GpuMemPeakMib: u.GPUMemPeakMiB, Milli: u.Milli, HostMemPeakMib: u.HostMemPeakMiB, CpuMilli: u.CPUMilli,
		DurationUs: u.Duration.Microseconds(), GpuOom: u.GPUOOM, PowerW: u.PowerW, Steps: u.Steps,
		Profile: profileToLog(u.Profile),
	}
}

// UsageFromLog converts back.
func UsageFromLog(m *logv1.Usage) cluster.Usage {
	return cluster.Usage{
		GPUMemPeakMiB: m.GetGpuMemPeakMib(), Milli: m.GetMilli(), HostMemPeakMiB: m.GetHostMemPeakMib(), CPUMilli: m.GetCpuMilli(),
		Duration: us(m.GetDurationUs()), GPUOOM: m.GetGpuOom(), PowerW: m.GetPowerW(), Steps: m.GetSteps(),
		Profile: profileFromLog(m.GetProfile()),
	}
}

func reasonToLog(r cluster.Reason) *logv1.Reason {
	if r == (cluster.Reason{}) {
		return nil
	}
	return &logv1.Reason{Code: string(r.Code), Detail: r.Detail}
}

// ReasonFromLog converts a reason; nil becomes none.
func ReasonFromLog(m *logv1.Reason) cluster.Reason {
	return cluster.Reason{Code: cluster.ReasonCode(m.GetCode()), Detail: m.GetDetail()}
}

// JobToLog converts a job with its attempts. A task's has neither spec nor
// estimates: they are its array's.
func JobToLog(j *cluster.Job) *logv1.Job { return jobToLog(j, SpecToLog) }

// JobNaming is JobToLog with the spec converted by SpecNaming.
func JobNaming(j *cluster.Job) *logv1.Job { return jobToLog(j, SpecNaming) }

func jobToLog(j *cluster.Job, spec func(*cluster.Spec) *logv1.Spec) *logv1.Job {
	m := JobAlone(j)
	if !j.InArray() {
		m.Spec = spec(j.Spec)
	}
	m.Estimates = jobEstimates(j)
	return m
}

// JobAlone is JobToLog without spec and estimates, and JobShared is JobNaming with
// nothing else. Many jobs may have those in common: see ShareStored.
func JobAlone(j *cluster.Job) *logv1.Job {
	m := &logv1.Job{
		Id: uint64(j.ID), Revision: j.Revision, Owner: OwnerToLog(j.Owner), State: uint32(j.State),
		Reason: reasonToLog(j.Reason), MinGpuMemMib: j.MinGPUMemMiB, NeedWhole: j.NeedWhole,
		SubmittedUs: int64(j.Submitted), EligibleUs: int64(j.Eligible), StartedUs: int64(j.Started), EndedUs: int64(j.Ended),
		Queue: string(j.Queue), EstStartUs: int64(j.EstStart), EstimatedUs: int64(j.Estimated), MinHostMemMib: j.MinHostMemMiB, Promised: apiconv.Texts[string](j.Promised),
	}
	if c := j.Cancel; c != nil {
		m.Cancel = &logv1.CancelRequest{AtUs: int64(c.At), By: uint32(c.By), Admin: c.Admin, Why: c.Why}
	}
	holdToLog(m, j)
	taskToLog(m, j)
	for i := range j.Attempts {
		m.Attempts = append(m.Attempts, attemptToLog(&j.Attempts[i]))
	}
	return m
}

// JobShared returns the spec, as SpecNaming does, and the estimates of a job; see
// JobAlone.
func JobShared(j *cluster.Job) *logv1.Job {
	m := &logv1.Job{Estimates: jobEstimates(j)}
	if !j.InArray() {
		m.Spec = SpecNaming(j.Spec)
	}
	return m
}

// ShareStored reports whether JobShared of two jobs is known to be the same.
func ShareStored(a, b *cluster.Job) bool {
	return a.Spec == b.Spec && a.InArray() == b.InArray() && (a.Estimated == 0) == (b.Estimated == 0) &&
		len(a.Estimates) == len(b.Estimates) && (len(a.Estimates) == 0 || &a.Estimates[0] == &b.Estimates[0])
}

func attemptToLog(a *cluster.Attempt) *logv1.Attempt {
	m := &logv1.Attempt{
		No: a.No, Token: uint64(a.Token), State: uint32(a.State), Reason: reasonToLog(a.Reason), Berth: BerthToLog(&a.Berth),
		BootId: a.BootID, Estimate: EstimateToLog(a.Estimate), PlacedUs: int64(a.Placed), StartedUs: int64(a.Started), EndedUs: int64(a.Ended),
		Why: a.Why, Overtook: a.Overtook, Gang: gangToLog(a.Gang), Port: uint32(a.Port), GpuMilli: a.GPUMilli, Marks: uint32(a.Marks), Idle: idleToLog(a.Idle), Resize: resizeToLog(a.Resize), Progress: progressToLog(a.Progress),
		Secret: []byte(a.Secret), Power: cardPowerToLog(a.Power), Search: CapSearchToLog(a.Search), Serving: ServingToLog(a.Serving), Loan: a.Loan,
		Changes: changesToLog(a.Changes), Neighbours: apiconv.IDs[uint64](a.Neighbours),
	}
	if p := a.Preempt; p != nil {
		m.Preempt = preemptRequestToLog(p)
	}
	if a.Exit != nil {
		m.Exit = &logv1.Exit{Code: a.Exit.Code, Signal: a.Exit.Signal}
	}
	if a.Usage != (cluster.Usage{}) {
		m.Usage = UsageToLog(a.Usage)
	}
	return m
}

// JobFromLog converts back. A job without id or spec, or in a state that does not
// exist, is an error.
func JobFromLog(m *logv1.Job) (*cluster.Job, error) {
	return JobNamed(m, func([]byte) cluster.Bulk { return nil })
}

// JobNamed is JobFromLog with the spec converted by SpecNamed.
func JobNamed(m *logv1.Job, find func(sum []byte) cluster.Bulk) (*cluster.Job, error) {
	spec, err := SpecNamed(m.GetSpec(), find)
	if err != nil {
		return nil, fmt.Errorf("job %d: %w", m.GetId(), err)
	}
	return jobFromLog(m, spec, EstimatesFromLog(m.GetEstimates()))
}

func jobFromLog(m *logv1.Job, spec *cluster.Spec, estimates []cluster.Estimate) (*cluster.Job, error) {
	j := &cluster.Job{
		ID: cluster.JobID(m.GetId()), Revision: m.GetRevision(), Owner: OwnerFromLog(m.GetOwner()), Spec: spec,
		State: state(m.GetState()), Reason: ReasonFromLog(m.GetReason()), Estimates: estimates,
		MinGPUMemMiB: m.GetMinGpuMemMib(), NeedWhole: m.GetNeedWhole(), Submitted: cluster.Time(m.GetSubmittedUs()),
		Eligible: cluster.Time(m.GetEligibleUs()), Started: cluster.Time(m.GetStartedUs()), Ended: cluster.Time(m.GetEndedUs()),
		Queue: cluster.GPUID(m.GetQueue()), EstStart: cluster.Time(m.GetEstStartUs()), Estimated: cluster.Time(m.GetEstimatedUs()), MinHostMemMiB: m.GetMinHostMemMib(), Promised: apiconv.Texts[cluster.NodeID](m.GetPromised()),
	}
	if j.ID == 0 || !j.State.Valid() {
		return nil, fmt.Errorf("job %d in state %d", m.GetId(), m.GetState())
	}
	if c := m.GetCancel(); c != nil {
		j.Cancel = &cluster.CancelRequest{At: cluster.Time(c.AtUs), By: cluster.UID(c.By), Admin: c.Admin, Why: c.Why}
	}
	if err := holdFromLog(j, m); err != nil {
		return nil, err
	}
	for i, am := range m.GetAttempts() {
		a, err := attemptFromLog(am)
		if err != nil {
			return nil, fmt.Errorf("job %d: attempt %d: %w", j.ID, i+1, err)
		}
		if a.No != uint32(i)+1 || !a.State.Live() && !a.State.Terminal() {
			return nil, fmt.Errorf("job %d: attempt %d in place %d in state %d", j.ID, a.No, i+1, am.State)
		}
		j.Attempts = append(j.Attempts, a)
	}
	return j, nil
}

// state converts a stored state; one that does not exist becomes 0.
func state(n uint32) cluster.JobState {
	if n > uint32(cluster.JobDeadline) {
		return 0
	}
	return cluster.JobState(n)
}

func attemptFromLog(m *logv1.Attempt) (cluster.Attempt, error) {
	a := cluster.Attempt{
		No: m.No, Token: cluster.Token(m.Token), State: state(m.State), Reason: ReasonFromLog(m.Reason), Berth: BerthFromLog(m.Berth),
		BootID: m.BootId, Estimate: EstimateFromLog(m.Estimate), Placed: cluster.Time(m.PlacedUs), Started: cluster.Time(m.StartedUs), Ended: cluster.Time(m.EndedUs),
		Why: m.Why, Overtook: m.Overtook, Usage: UsageFromLog(m.Usage), Port: uint16(m.Port), GPUMilli: m.GpuMilli, Marks: cluster.MailEvents(m.Marks), Idle: idleFromLog(m.Idle), Resize: resizeFromLog(m.Resize), Progress: ProgressFromLog(m.Progress),
		Secret: cluster.Secret(m.Secret), Power: CardPowerFromLog(m.Power), Search: CapSearchFromLog(m.Search), Serving: ServingFromLog(m.Serving), Loan: m.Loan,
		Changes: changesFromLog(m.Changes),
	}
	if p := m.Preempt; p != nil {
		a.Preempt = preemptRequestFromLog(p)
	}
	if m.Exit != nil {
		a.Exit = &cluster.Exit{Code: m.Exit.Code, Signal: m.Exit.Signal}
	}
	a.Neighbours = apiconv.IDs[cluster.JobID](m.Neighbours)
	var err error
	a.Gang, err = gangFromLog(m.Gang)
	return a, err
}

// NodeToLog converts a node.
func NodeToLog(n *cluster.Node) *logv1.Node {
	m := &logv1.Node{
		Id: string(n.ID), Revision: n.Revision, Address: n.Address, BootId: n.BootID, State: uint32(n.State), Drain: n.Drain, DrainReason: n.DrainReason,
		CpuMilli: n.CPUMilli, MemMib: n.MemMiB, Runtimes: n.Runtimes, Version: n.Version, RegisteredUs: int64(n.Registered), ChangedUs: int64(n.Changed),
		Fence: n.Fence, Problem: n.Problem, Orders: ordersToLog(n.Orders), History: historyToLog(n.History), Features: n.Features,
		DrainUntilUs: int64(n.DrainUntil), Credentials: n.Credentials, Power: powerToLog(n.Power), Driver: n.Driver,
	}
	for _, g := range n.GPUs {
		m.Gpus = append(m.Gpus, &logv1.GPU{
			Id: string(g.ID), Index: uint32(g.Index), Type: g.Type, MemMib: g.MemMiB, SellableMib: g.SellableMiB,
			MaxShares: uint32(g.MaxShares), Numa: int32(g.NUMA), Pci: g.PCI, CapMode: g.CapMode, Scope: string(g.Scope), CapReason: g.CapReason,
			State: uint32(g.State), StateReason: g.StateReason,
		})
	}
	return m
}

// NodeFromLog converts back. A node without a name, with a negative amount, or with
// GPUs that are not sorted by id or not unique, is an error.
func NodeFromLog(m *logv1.Node) (*cluster.Node, error) {
	n := &cluster.Node{
		ID: cluster.NodeID(m.GetId()), Revision: m.GetRevision(), Address: m.GetAddress(), BootID: m.GetBootId(), State: nodeState(m.GetState()),
		Drain: m.GetDrain(), DrainReason: m.GetDrainReason(), CPUMilli: m.GetCpuMilli(), MemMiB: m.GetMemMib(), Runtimes: m.GetRuntimes(),
		Version: m.GetVersion(), Registered: cluster.Time(m.GetRegisteredUs()), Changed: cluster.Time(m.GetChangedUs()),
		Fence: m.GetFence(), Problem: m.GetProblem(), History: historyFromLog(m.GetHistory()), DrainUntil: cluster.Time(m.GetDrainUntilUs()),
		Credentials: m.GetCredentials(), Driver: m.GetDriver(),
	}
	var err error
	if n.Orders, err = ordersFromLog(m.GetId(), m.GetOrders()); err != nil {
		return nil, err
	}
	if n.Features, err = storedFeatures(m.GetId(), m.GetFeatures()); err != nil {
		return nil, err
	}
	if n.Power, err = powerFromLog(m.GetId(), m.GetPower()); err != nil {
		return nil, err
	}
	if n.ID == "" || n.State == 0 || n.CPUMilli < 0 || n.MemMiB < 0 {
		return nil, fmt.Errorf("node %q in state %d with %d milli-cores and %d MiB is malformed", n.ID, m.GetState(), n.CPUMilli, n.MemMiB)
	}
	for i, g := range m.GetGpus() {
		if g.Id == "" || i > 0 && string(n.GPUs[i-1].ID) >= g.Id {
			return nil, fmt.Errorf("node %s: GPU %q in place %d is not in order", n.ID, g.Id, i)
		}
		if g.SellableMib < 0 || g.MemMib < 0 || g.MaxShares > apiconv.MaxStored || g.Index > apiconv.MaxStored || g.State > uint32(cluster.GPULost) {
			return nil, fmt.Errorf("node %s: GPU %s is malformed", n.ID, g.Id)
		}
		n.GPUs = append(n.GPUs, cluster.GPU{
			ID: cluster.GPUID(g.Id), Index: int(g.Index), Type: g.Type, MemMiB: g.MemMib, SellableMiB: g.SellableMib,
			MaxShares: int(g.MaxShares), NUMA: int(g.Numa), PCI: g.Pci, CapMode: g.CapMode, Scope: cluster.Scope(g.Scope), CapReason: g.CapReason,
			State: cluster.GPUState(g.State), StateReason: g.StateReason,
		})
	}
	return n, nil
}

func nodeState(n uint32) cluster.NodeState {
	if n > uint32(cluster.NodeUnreachable) {
		return 0
	}
	return cluster.NodeState(n)
}

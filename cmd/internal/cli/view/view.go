package view

import (
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/jobspec"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// The views are what -o json and -o yaml print. Their names are part of the
// API and do not change; sizes are whole MiB, compute thousandths of a GPU or
// core, times RFC 3339. Values that do not apply are null.

// JobView is a job as -o json and yaml show it.
type JobView struct {
	ID              uint64         `json:"id"`
	Name            string         `json:"name"`
	User            string         `json:"user"`
	UID             uint32         `json:"uid"`
	Partition       string         `json:"partition"`
	Account         string         `json:"account"`
	QOS             string         `json:"qos"`
	Nice            int32          `json:"nice"`
	State           string         `json:"state"`
	Reason          string         `json:"reason"`
	ReasonDetail    string         `json:"reason_detail"`
	ExitCode        *int32         `json:"exit_code"`
	Signal          int32          `json:"signal"`
	Node            string         `json:"node"`
	NodeList        string         `json:"node_list"`
	GPUsWanted      uint32         `json:"gpus_wanted"`
	GPUs            []gpuShareView `json:"gpus"`
	Predicted       *PredictedView `json:"predicted" keep:""`
	Measured        *measuredView  `json:"measured"`
	Submitted       *time.Time     `json:"submitted"`
	Started         *time.Time     `json:"started"`
	Ended           *time.Time     `json:"ended"`
	EstimatedStart  *time.Time     `json:"estimated_start"`
	Queue           string         `json:"queue"`
	QueuePosition   uint32         `json:"queue_position"`
	CancelRequested bool           `json:"cancel_requested"`
	Neighbours      []uint64       `json:"neighbours"`
	// PredictedSlowdown is 0 for a job that has no co-located jobs now.
	PredictedSlowdown float64 `json:"predicted_slowdown"`
	// SlackSeconds is null without a deadline, and after the end.
	SlackSeconds *float64      `json:"slack_seconds"`
	Spec         *specView     `json:"spec" keep:""`
	Attempts     []attemptView `json:"attempts"`
	Revision     uint64        `json:"revision"`

	arrayFields
	// Trial is only present for a trial of a study.
	Trial *trialView `json:"trial,omitempty"`
}

// arrayFields are those of tasks of arrays; null for other jobs.
type arrayFields struct {
	ArrayJobID *uint64 `json:"array_job_id"`
	// ArrayTaskID is null where several tasks are listed as one: ArrayTasks and
	// ArrayCount say which, as 8-99, and how many.
	ArrayTaskID *uint32 `json:"array_task_id"`
	ArrayTasks  *string `json:"array_tasks"`
	ArrayCount  *uint32 `json:"array_count"`
	// ArrayThrottle is how many tasks may run at once, 0 for any number.
	ArrayThrottle *uint32 `json:"array_throttle"`
	// Array is only present if an array was requested by its id.
	Array *arrayView `json:"array"`
}

type arrayView struct {
	Tasks     string            `json:"tasks"`
	Size      uint32            `json:"size"`
	Ended     uint32            `json:"ended"`
	Completed uint32            `json:"completed"`
	States    map[string]uint32 `json:"states"`
}

func viewArray(j *apiv1.Job) (v arrayFields) {
	if j.GetArrayJobId() == 0 {
		return v
	}
	id, count, throttle := j.GetArrayJobId(), max(1, j.GetArrayCount()), j.GetArrayThrottle()
	tasks := j.GetArrayTasks()
	if count == 1 {
		task := j.GetArrayTaskId()
		tasks, v.ArrayTaskID = strconv.FormatUint(uint64(task), 10), &task
	}
	v.ArrayJobID, v.ArrayTasks, v.ArrayCount, v.ArrayThrottle = &id, &tasks, &count, &throttle
	if a := j.GetArray(); a != nil {
		v.Array = &arrayView{a.GetTasks(), a.GetSize(), a.GetEnded(), a.GetCompleted(), map[string]uint32{}}
		for _, s := range a.GetStates() {
			v.Array.States[s.GetState()] = s.GetCount()
		}
	}
	return v
}

type gpuShareView struct {
	UUID  string    `json:"uuid"`
	Type  string    `json:"type"`
	Index uint32    `json:"index"`
	Share shareView `json:"share"`
}

type shareView struct {
	MemMiB    int64 `json:"mem_mib"`
	Milli     int64 `json:"milli"`
	Exclusive bool  `json:"exclusive"`
	// GrantedMiB is what the job may get back if its share was cut to what it
	// uses; else 0.
	GrantedMiB int64 `json:"granted_mib"`
}

// PredictedView is a prediction for one type of GPU.
type PredictedView struct {
	GPUType      string     `json:"gpu_type"`
	GPUMemMiB    int64      `json:"gpu_mem_mib"`
	GPUMemP95MiB int64      `json:"gpu_mem_p95_mib"`
	GPUUtil      float64    `json:"gpu_util"` // 0–1
	Seconds      float64    `json:"seconds"`
	HostMemMiB   int64      `json:"host_mem_mib"`
	CPUMilli     int64      `json:"cpu_milli"`
	PowerW       int64      `json:"power_w"`
	Confidence   float64    `json:"confidence"`
	Source       string     `json:"source"`
	Parts        []partView `json:"parts,omitempty"`
	// Floors are what context and libraries take under each driver.
	Floors []floorView `json:"floors,omitempty"`
	// TimeConfidence is 0 if the time is as certain as the rest; see model.Prediction.
	TimeConfidence float64 `json:"time_confidence,omitempty"`
	TimeBy         string  `json:"time_by,omitempty"`
}

type floorView struct {
	Driver string `json:"driver"`
	MiB    int64  `json:"mib"`
	Runs   uint32 `json:"runs"`
}

type partView struct {
	Name string `json:"name"`
	MiB  int64  `json:"mib"`
}

type measuredView struct {
	GPUMemMiB  int64   `json:"gpu_mem_mib"`
	GPUUtil    float64 `json:"gpu_util"` // 0–1
	Seconds    float64 `json:"seconds"`
	HostMemMiB int64   `json:"host_mem_mib"`
	CPUMilli   int64   `json:"cpu_milli"`
	GPUOOM     bool    `json:"gpu_oom"`
	PowerW     int64   `json:"power_w"` // 0 if unknown
	// Profile is null when the node did not look while the job ran.
	Profile *profileView `json:"profile"`
}

type attemptView struct {
	No           uint32         `json:"no"`
	State        string         `json:"state"`
	Reason       string         `json:"reason"`
	ReasonDetail string         `json:"reason_detail"`
	Node         string         `json:"node"`
	GPUs         []gpuShareView `json:"gpus"`
	ExitCode     *int32         `json:"exit_code"`
	Signal       int32          `json:"signal"`
	Placed       *time.Time     `json:"placed"`
	Started      *time.Time     `json:"started"`
	Ended        *time.Time     `json:"ended"`
	Why          string         `json:"why"`
	Overtook     string         `json:"overtook"`
	Loan         string         `json:"loan"`
	Neighbours   []uint64       `json:"neighbours"`
	Predicted    *PredictedView `json:"predicted"`
	Measured     *measuredView  `json:"measured"`
	Token        uint64         `json:"token"`
	// Parts are its nodes by rank if it has several; Port is where its
	// processes meet, 0 if there is only one.
	Parts []gangPartView `json:"parts"`
	Port  uint32         `json:"port"`
	// Progress is null until it reports progress.
	Progress *ProgressView `json:"progress"`
	// What it has on its first node other than GPUs.
	CPUMilli int64 `json:"cpu_milli"`
	MemMiB   int64 `json:"mem_mib"`
	// Power is how the power and clock of its GPUs were set.
	Power []cardPowerView `json:"power,omitempty"`
	// PowerSearch is the result of the search for its power cap.
	PowerSearch *capSearchView `json:"power_search,omitempty"`
	// Changes are how nodes joined and left while it ran.
	Changes []sizeChangeView `json:"changes,omitempty"`
}

type gangPartView struct {
	Node         string         `json:"node"`
	State        string         `json:"state"`
	Reason       string         `json:"reason"`
	ReasonDetail string         `json:"reason_detail"`
	GPUs         []gpuShareView `json:"gpus"`
	ExitCode     *int32         `json:"exit_code"`
	Signal       int32          `json:"signal"`
	Ready        bool           `json:"ready"`
	// Left is when it was given up while the others continue.
	Left *time.Time `json:"left,omitempty"`
}

type specView struct {
	Name          string   `json:"name"`
	Command       []string `json:"command"`
	Env           []string `json:"env"`
	Dir           string   `json:"dir"`
	Image         string   `json:"image"`
	GPUs          uint32   `json:"gpus"`
	LeastGPUs     uint32   `json:"least_gpus,omitempty"`
	MostGPUs      uint32   `json:"most_gpus,omitempty"`
	LeastNodes    uint32   `json:"least_nodes,omitempty"`
	MostNodes     uint32   `json:"most_nodes,omitempty"`
	OrCPU         bool     `json:"or_cpu"`
	Exclusive     bool     `json:"exclusive"`
	GPUType       string   `json:"gpu_type"`
	Node          string   `json:"node"`
	Nodes         uint32   `json:"nodes"`
	TasksPerNode  uint32   `json:"tasks_per_node"`
	GPUMemMiB     int64    `json:"gpu_mem_mib"`
	GPUUtil       float64  `json:"gpu_util"`
	ExpectSeconds float64  `json:"expect_seconds"`
	MemMiB        int64    `json:"mem_mib"`
	CPUMilli      int64    `json:"cpu_milli"`
	TimeSeconds   float64  `json:"time_seconds"`
	Stdin         string   `json:"stdin"`
	Stdout        string   `json:"stdout"`
	Stderr        string   `json:"stderr"`
	RequeueOnLoss bool     `json:"requeue_on_loss"`
	Comment       string   `json:"comment"`
	MailType      string   `json:"mail_type"`
	MailUser      string   `json:"mail_user"`
	IdleOKSeconds float64  `json:"idle_ok_seconds"`
	NoResize      bool     `json:"no_resize,omitempty"`
	Retries       uint32   `json:"retries,omitempty"`
	RetryOn       string   `json:"retry_on,omitempty"`
	BatchScaling  string   `json:"batch_scaling,omitempty"`
	InPlace       bool     `json:"in_place,omitempty"`
	PowerCap      string   `json:"power_cap,omitempty"`
	GPUFreq       string   `json:"gpu_freq,omitempty"`

	NodeList    string   `json:"nodelist,omitempty"`
	Exclude     string   `json:"exclude,omitempty"`
	Constraint  string   `json:"constraint,omitempty"`
	Data        []string `json:"data,omitempty"`
	Reservation string   `json:"reservation,omitempty"`
	Switches    string   `json:"switches,omitempty"`
	WholeNodes  bool     `json:"whole_nodes,omitempty"`

	Deadline  *time.Time `json:"deadline"`
	Objective string     `json:"objective"`
	MaxPowerW int64      `json:"max_power_w"`
	MaxCost   float64    `json:"max_cost"`

	Checkpoint string `json:"checkpoint"`

	Signal   string   `json:"signal"`
	OpenMode string   `json:"open_mode"`
	Net      string   `json:"net"`
	Mounts   []string `json:"mounts"`
	ReadOnly bool     `json:"read_only"`
	TmpMiB   int64    `json:"tmp_mib"`
	ShmMiB   int64    `json:"shm_mib"`

	Hold             bool       `json:"hold"`
	Begin            *time.Time `json:"begin"`
	Dependency       string     `json:"dependency"`
	KillOnInvalidDep bool       `json:"kill_on_invalid_dep"`
}

func slackSeconds(j *apiv1.Job) *float64 {
	if j.GetSlack() == nil {
		return nil
	}
	return new(j.GetSlack().AsDuration().Seconds())
}

// Job returns the view of j.
func Job(j *apiv1.Job) JobView { return jobOf(j, Prediction(j.GetPredicted()), viewSpec(j.GetSpec())) }

// Jobs makes views of many jobs, building those of shared parts once. It is
// for one goroutine.
type Jobs struct {
	job       JobView
	specs     map[*apiv1.JobSpec]*specView
	predicted map[*apiv1.Prediction]*PredictedView
}

// mostShared is how many views of one kind Jobs holds; beyond that it drops all.
const mostShared = 256

// Job returns the view of j, which is valid until the next call.
func (s *Jobs) Job(j *apiv1.Job) *JobView {
	s.job = jobOf(j, shared(&s.predicted, j.GetPredicted(), Prediction), shared(&s.specs, j.GetSpec(), viewSpec))
	return &s.job
}

func shared[M comparable, V any](held *map[M]V, m M, view func(M) V) V {
	v, ok := (*held)[m]
	if !ok {
		if len(*held) >= mostShared || *held == nil {
			*held = map[M]V{}
		}
		v = view(m)
		(*held)[m] = v
	}
	return v
}

func jobOf(j *apiv1.Job, predicted *PredictedView, spec *specView) JobView {
	v := JobView{
		ID: j.GetId(), Name: j.GetName(), User: j.GetUser(), UID: j.GetUid(), Partition: j.GetPartition(), Account: j.GetAccount(), QOS: j.GetQos(), Nice: j.GetNice(), State: j.GetState(),
		Reason: j.GetReason(), ReasonDetail: j.GetReasonDetail(), ExitCode: j.ExitCode, Signal: j.GetSignal(),
		Node: j.GetNode(), NodeList: j.GetNodeList(), GPUsWanted: j.GetGpusWanted(), GPUs: viewShares(j.GetGpus()),
		Predicted: predicted, Measured: viewMeasured(j.GetMeasured()),
		Submitted: Stamp(j.GetSubmitted()), Started: Stamp(j.GetStarted()), Ended: Stamp(j.GetEnded()),
		EstimatedStart: Stamp(j.GetEstimatedStart()), Queue: j.GetQueue(), QueuePosition: j.GetQueuePosition(),
		CancelRequested: j.GetCancelRequested(), Neighbours: list(j.GetNeighbours()),
		PredictedSlowdown: j.GetPredictedSlowdown(), SlackSeconds: slackSeconds(j),
		Trial: viewTrial(j),
		Spec:  spec, Attempts: []attemptView{}, Revision: j.GetRevision(),
		arrayFields: viewArray(j),
	}
	for _, a := range j.GetAttempts() {
		v.Attempts = append(v.Attempts, attemptView{
			No: a.GetNo(), State: a.GetState(), Reason: a.GetReason(), ReasonDetail: a.GetReasonDetail(),
			Node: a.GetNode(), GPUs: viewShares(a.GetGpus()), ExitCode: a.ExitCode, Signal: a.GetSignal(),
			Placed: Stamp(a.GetPlaced()), Started: Stamp(a.GetStarted()), Ended: Stamp(a.GetEnded()),
			Why: a.GetWhy(), Overtook: a.GetOvertook(), Loan: a.GetLoan(), Neighbours: list(a.GetNeighbours()),
			Predicted: Prediction(a.GetPredicted()), Measured: viewMeasured(a.GetMeasured()), Token: a.GetToken(),
			Parts: viewParts(a.GetParts()), Port: a.GetPort(), Progress: viewProgress(a.GetProgress()),
			CPUMilli: a.GetCpuMilli(), MemMiB: a.GetMemMib(), Power: viewPower(a.GetPower()), PowerSearch: viewSearch(a.GetSearch()), Changes: viewChanges(a.GetChanges()),
		})
	}
	return v
}

// Host returns what a job has, or had, on its first node other than GPUs:
// thousandths of a core, and its cap on host memory in MiB. While it waits
// that is what it requests, 0 if it requests nothing.
func Host(j *apiv1.Job) (cpuMilli, memMiB int64) {
	as := j.GetAttempts()
	if console.Waiting(j.GetState()) || len(as) == 0 || as[len(as)-1].GetMemMib() == 0 {
		return j.GetSpec().GetCpuMilli(), j.GetSpec().GetMemMib()
	}
	a := as[len(as)-1]
	return a.GetCpuMilli(), a.GetMemMib()
}

func viewParts(in []*apiv1.Part) []gangPartView {
	out := []gangPartView{}
	for _, p := range in {
		out = append(out, gangPartView{
			p.GetNode(), p.GetState(), p.GetReason(), p.GetReasonDetail(), viewShares(p.GetGpus()), p.ExitCode, p.GetSignal(), p.GetReady(), Stamp(p.GetLeft()),
		})
	}
	return out
}

func viewShares(in []*apiv1.GPUShare) []gpuShareView {
	out := []gpuShareView{}
	for _, g := range in {
		out = append(out, gpuShareView{g.GetUuid(), g.GetType(), g.GetIndex(), shareView{
			g.GetShare().GetMemMib(), g.GetShare().GetMilli(), g.GetShare().GetExclusive(), g.GetShare().GetGrantedMib(),
		}})
	}
	return out
}

// Prediction returns the view of p; nil for nil.
func Prediction(p *apiv1.Prediction) *PredictedView {
	if p == nil {
		return nil
	}
	v := &PredictedView{
		GPUType: p.GetGpuType(), GPUMemMiB: p.GetGpuMemMib(), GPUMemP95MiB: p.GetGpuMemP95Mib(),
		GPUUtil: float64(p.GetGpuUtilMilli()) / 1000, Seconds: p.GetSeconds(), HostMemMiB: p.GetHostMemMib(),
		CPUMilli: p.GetCpuMilli(), PowerW: p.GetPowerW(), Confidence: p.GetConfidence(), Source: p.GetSource(), TimeConfidence: p.GetTimeConfidence(), TimeBy: p.GetTimeBy(),
	}
	for _, part := range p.GetParts() {
		v.Parts = append(v.Parts, partView{part.GetName(), part.GetMib()})
	}
	for _, f := range p.GetFloors() {
		v.Floors = append(v.Floors, floorView{f.GetDriver(), f.GetMib(), f.GetRuns()})
	}
	return v
}

func viewMeasured(m *apiv1.Measured) *measuredView {
	if m == nil {
		return nil
	}
	return &measuredView{m.GetGpuMemMib(), float64(m.GetGpuUtilMilli()) / 1000, m.GetSeconds(), m.GetHostMemMib(), m.GetCpuMilli(), m.GetGpuOom(), m.GetPowerW(), viewProfile(m.GetProfile())}
}

func viewSpec(s *apiv1.JobSpec) *specView {
	if s == nil {
		return nil
	}
	w := s.GetWhere()
	return &specView{
		Name: s.GetName(), Command: Texts(s.GetCommand()), Env: Texts(s.GetEnv()), Dir: string(s.GetDir()), Image: s.GetImage(),
		GPUs: s.GetGpus(), LeastGPUs: s.GetLeastGpus(), MostGPUs: s.GetMostGpus(), Exclusive: s.GetExclusive(), OrCPU: s.GetOrCpu(), GPUType: s.GetGpuType(), Node: s.GetNode(),
		Nodes: s.GetNodes(), LeastNodes: s.GetLeastNodes(), MostNodes: s.GetMostNodes(), TasksPerNode: s.GetTasksPerNode(),
		GPUMemMiB: s.GetGpuMemMib(), GPUUtil: float64(s.GetGpuUtilMilli()) / 1000, ExpectSeconds: s.GetExpected().AsDuration().Seconds(),
		MemMiB: s.GetMemMib(), CPUMilli: s.GetCpuMilli(), TimeSeconds: s.GetTimeLimit().AsDuration().Seconds(),
		Stdin: string(s.GetStdin()), Stdout: string(s.GetStdout()), Stderr: string(s.GetStderr()),
		RequeueOnLoss: s.GetRequeueOnLoss(), Comment: s.GetComment(), MailType: s.GetMailType(), MailUser: s.GetMailUser(), IdleOKSeconds: s.GetIdleOk().AsDuration().Seconds(), NoResize: s.GetNoResize(), Retries: s.GetRetries(), RetryOn: s.GetRetryOn(), BatchScaling: s.GetBatchScaling(), InPlace: s.GetInPlace(),
		PowerCap: s.GetPowerCap(), GPUFreq: s.GetGpuFreq(),
		NodeList: w.GetNodes(), Exclude: w.GetExclude(), Constraint: w.GetFeatures(), Data: s.GetData(), Reservation: w.GetReservation(), Switches: w.GetSwitches(), WholeNodes: w.GetWhole(),
		Deadline: Stamp(s.GetDeadline()), Objective: s.GetObjective(), MaxPowerW: s.GetMaxPowerW(), MaxCost: float64(s.GetMaxCostMilli()) / 1000,
		Checkpoint: cluster.Checkpoint{Signal: s.GetCheckpointSignal(), Grace: s.GetCheckpointGrace().AsDuration()}.String(),
		Signal:     jobspec.WarningOf(s), OpenMode: jobspec.OpenMode(s), Net: s.GetContainer().GetNetwork(), Mounts: jobspec.MountTexts(s),
		ReadOnly: s.GetContainer().GetReadOnly(), TmpMiB: s.GetContainer().GetTmpMib(), ShmMiB: s.GetContainer().GetShmMib(),
		Hold: s.GetHold(), Begin: Stamp(s.GetBegin()), Dependency: dependencyText(s), KillOnInvalidDep: s.GetKillInvalidDepend(),
	}
}

// dependencyText returns the dependencies as they may be typed again.
func dependencyText(s *apiv1.JobSpec) string {
	var out []string
	for _, d := range s.GetDepends() {
		out = append(out, cluster.Dependency{Kind: cluster.DependKind(d.GetKind()), Job: cluster.JobID(d.GetJob())}.String())
	}
	if s.GetDependAny() {
		return strings.Join(out, "?")
	}
	return strings.Join(out, ",")
}

// Stamp returns t as a time, nil for none.
func Stamp(t *timestamppb.Timestamp) *time.Time {
	if t == nil {
		return nil
	}
	return new(t.AsTime())
}

func list(in []uint64) []uint64 {
	if in == nil {
		return []uint64{}
	}
	return in
}

// Texts converts bytes, which need not be UTF-8, to strings.
func Texts(in [][]byte) []string {
	out := []string{}
	for _, b := range in {
		out = append(out, string(b))
	}
	return out
}

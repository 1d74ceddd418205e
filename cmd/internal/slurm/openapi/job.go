package openapi

import (
	"cmp"
	"strconv"

	"github.com/berth-scheduler/berth/cmd/internal/slurm"
)

// Head is what precedes "jobs", a list of Job, in the output of squeue --json
// and scontrol show job --json of Slurm 22.05.
type Head struct {
	Meta   Meta     `json:"meta"`
	Errors []string `json:"errors"`
}

// NewHead returns a head without errors.
func NewHead() Head { return Head{Meta: NewMeta(), Errors: []string{}} }

// Job is a job. Numbers that do not apply are null, text that does not is
// empty; times are Unix seconds, 0 for none, the time limit is minutes and
// memory MiB. Fields without a counterpart in Berth have the value that Slurm
// gives by default.
type Job struct {
	Account                  string        `json:"account"`
	AccrueTime               int64         `json:"accrue_time"`
	AdminComment             string        `json:"admin_comment"`
	ArrayJobID               uint64        `json:"array_job_id"`
	ArrayTaskID              *int64        `json:"array_task_id"`
	ArrayMaxTasks            uint32        `json:"array_max_tasks"`
	ArrayTaskString          string        `json:"array_task_string"`
	AssociationID            int64         `json:"association_id"`
	BatchFeatures            string        `json:"batch_features"`
	BatchFlag                bool          `json:"batch_flag"`
	BatchHost                string        `json:"batch_host"`
	Flags                    []string      `json:"flags"`
	BurstBuffer              string        `json:"burst_buffer"`
	BurstBufferState         string        `json:"burst_buffer_state"`
	Cluster                  string        `json:"cluster"`
	ClusterFeatures          string        `json:"cluster_features"`
	Command                  string        `json:"command"`
	Comment                  string        `json:"comment"`
	Container                string        `json:"container"`
	Contiguous               bool          `json:"contiguous"`
	CoreSpec                 *int64        `json:"core_spec"`
	ThreadSpec               *int64        `json:"thread_spec"`
	CoresPerSocket           *int64        `json:"cores_per_socket"`
	BillableTRES             *float64      `json:"billable_tres"`
	CPUsPerTask              *int64        `json:"cpus_per_task"`
	CPUFrequencyMinimum      *int64        `json:"cpu_frequency_minimum"`
	CPUFrequencyMaximum      *int64        `json:"cpu_frequency_maximum"`
	CPUFrequencyGovernor     *int64        `json:"cpu_frequency_governor"`
	CPUsPerTRES              string        `json:"cpus_per_tres"`
	Deadline                 int64         `json:"deadline"`
	DelayBoot                int64         `json:"delay_boot"`
	Dependency               string        `json:"dependency"`
	DerivedExitCode          int64         `json:"derived_exit_code"`
	EligibleTime             int64         `json:"eligible_time"`
	EndTime                  int64         `json:"end_time"`
	ExcludedNodes            string        `json:"excluded_nodes"`
	ExitCode                 int64         `json:"exit_code"`
	Features                 string        `json:"features"`
	FederationOrigin         string        `json:"federation_origin"`
	FederationSiblingsActive string        `json:"federation_siblings_active"`
	FederationSiblingsViable string        `json:"federation_siblings_viable"`
	GresDetail               []string      `json:"gres_detail"`
	GroupID                  uint32        `json:"group_id"`
	GroupName                string        `json:"group_name"`
	JobID                    uint64        `json:"job_id"`
	JobResources             *jobResources `json:"job_resources,omitempty"`
	JobState                 string        `json:"job_state"`
	LastSchedEvaluation      int64         `json:"last_sched_evaluation"`
	Licenses                 string        `json:"licenses"`
	MaxCPUs                  int64         `json:"max_cpus"`
	MaxNodes                 int64         `json:"max_nodes"`
	MCSLabel                 string        `json:"mcs_label"`
	MemoryPerTRES            string        `json:"memory_per_tres"`
	Name                     string        `json:"name"`
	Nodes                    string        `json:"nodes"`
	Nice                     *int64        `json:"nice"`
	TasksPerCore             *int64        `json:"tasks_per_core"`
	TasksPerNode             int64         `json:"tasks_per_node"`
	TasksPerSocket           *int64        `json:"tasks_per_socket"`
	TasksPerBoard            int64         `json:"tasks_per_board"`
	CPUs                     int64         `json:"cpus"`
	NodeCount                int           `json:"node_count"`
	Tasks                    int64         `json:"tasks"`
	HetJobID                 int64         `json:"het_job_id"`
	HetJobIDSet              string        `json:"het_job_id_set"`
	HetJobOffset             int64         `json:"het_job_offset"`
	Partition                string        `json:"partition"`
	Prefer                   string        `json:"prefer"`
	MemoryPerNode            *int64        `json:"memory_per_node"`
	MemoryPerCPU             *int64        `json:"memory_per_cpu"`
	MinimumCPUsPerNode       int64         `json:"minimum_cpus_per_node"`
	MinimumTmpDiskPerNode    int64         `json:"minimum_tmp_disk_per_node"`
	PreemptTime              int64         `json:"preempt_time"`
	PreSusTime               int64         `json:"pre_sus_time"`
	Priority                 int64         `json:"priority"`
	Profile                  *int64        `json:"profile"`
	QOS                      string        `json:"qos"`
	Reboot                   bool          `json:"reboot"`
	RequiredNodes            string        `json:"required_nodes"`
	Requeue                  bool          `json:"requeue"`
	ResizeTime               int64         `json:"resize_time"`
	RestartCnt               int           `json:"restart_cnt"`
	ResvName                 string        `json:"resv_name"`
	Shared                   *string       `json:"shared"`
	ShowFlags                []string      `json:"show_flags"`
	SocketsPerBoard          int64         `json:"sockets_per_board"`
	SocketsPerNode           *int64        `json:"sockets_per_node"`
	StartTime                int64         `json:"start_time"`
	StateDescription         string        `json:"state_description"`
	StateReason              string        `json:"state_reason"`
	StandardError            string        `json:"standard_error"`
	StandardInput            string        `json:"standard_input"`
	StandardOutput           string        `json:"standard_output"`
	SubmitTime               int64         `json:"submit_time"`
	SuspendTime              int64         `json:"suspend_time"`
	SystemComment            string        `json:"system_comment"`
	TimeLimit                *int64        `json:"time_limit"`
	TimeMinimum              int64         `json:"time_minimum"`
	ThreadsPerCore           *int64        `json:"threads_per_core"`
	TRESBind                 string        `json:"tres_bind"`
	TRESFreq                 string        `json:"tres_freq"`
	TRESPerJob               string        `json:"tres_per_job"`
	TRESPerNode              string        `json:"tres_per_node"`
	TRESPerSocket            string        `json:"tres_per_socket"`
	TRESPerTask              string        `json:"tres_per_task"`
	TRESReqStr               string        `json:"tres_req_str"`
	TRESAllocStr             string        `json:"tres_alloc_str"`
	UserID                   uint32        `json:"user_id"`
	UserName                 string        `json:"user_name"`
	WCKey                    string        `json:"wckey"`
	CurrentWorkingDirectory  string        `json:"current_working_directory"`
}

type jobResources struct {
	Nodes          string         `json:"nodes"`
	AllocatedCores int64          `json:"allocated_cores"`
	AllocatedHosts int            `json:"allocated_hosts"`
	AllocatedNodes []jobNodeShare `json:"allocated_nodes"`
}

// jobNodeShare is what a job has of a node. Cores are weights in Berth and
// have no numbers, so there are no sockets.
type jobNodeShare struct {
	Sockets         struct{} `json:"sockets"`
	NodeName        string   `json:"nodename"`
	CPUsUsed        int64    `json:"cpus_used"`
	MemoryUsed      int64    `json:"memory_used"`
	MemoryAllocated int64    `json:"memory_allocated"`
}

// NewJob returns a job in this form.
func NewJob(j *slurm.Job) Job {
	out := Job{
		Account: j.Account, AccrueTime: unix(j.Eligible), ArrayJobID: j.ArrayID, ArrayMaxTasks: j.Throttle, BatchFlag: true, BatchHost: j.FirstNode(),
		Flags: []string{}, Cluster: j.Cluster, Command: j.Command, Comment: j.Comment, CPUsPerTask: some(j.PerTask()),
		Deadline: unix(j.Deadline), Dependency: j.Dependency, EligibleTime: unix(j.Eligible), EndTime: unix(j.Ended), ExcludedNodes: j.Exclude,
		ExitCode: waitStatus(j), DerivedExitCode: waitStatus(j), Features: j.Features, GresDetail: []string{}, GroupID: j.GID, GroupName: j.Group, JobID: j.ID,
		JobState: j.State, LastSchedEvaluation: unix(j.LastEval), Name: j.Name, Nodes: j.NodeList,
		Nice: some(int64(j.Nice)), TasksPerNode: j.Tasked / int64(max(1, j.Nodes)), CPUs: j.CPUs, NodeCount: j.Nodes, Tasks: max(1, j.Tasked),
		Partition: j.Partition, MemoryPerNode: some(j.MinMemMiB), MinimumCPUsPerNode: cmp.Or(j.MinCPUs, j.CPUs), Priority: j.Priority, QOS: j.QOS,
		RequiredNodes: j.ReqNodes, Requeue: j.Requeue, RestartCnt: j.Restarts, ResvName: j.Reservation, ShowFlags: []string{"SHOW_ALL", "SHOW_DETAIL", "SHOW_LOCAL"},
		StartTime: unix(j.Started), StateReason: cmp.Or(j.Reason, "None"), StandardError: j.Stderr, StandardInput: cmp.Or(j.Stdin, "/dev/null"),
		StandardOutput: j.Stdout, SubmitTime: unix(j.Submitted), TimeLimit: minutes(j.Limit), TRESPerNode: j.Gres, TRESReqStr: j.TRES(), UserID: j.UID,
		UserName: j.User, CurrentWorkingDirectory: j.Dir,
	}
	if out.ArrayJobID != 0 {
		out.arrayed(j)
	}
	if j.Started.IsZero() {
		out.StartTime = unix(j.Expected)
	}
	if from := cmp.Or(unix(j.Started), unix(j.Expected)); out.EndTime == 0 && from > 0 && j.Limit > 0 {
		out.EndTime = from + int64(j.Limit.Seconds())
	}
	if j.NodeList != "" {
		out.onNodes(j)
	}
	return out
}

// arrayed sets which tasks of its array it is.
func (out *Job) arrayed(j *slurm.Job) {
	if n, err := strconv.ParseInt(j.Tasks, 10, 64); err == nil {
		out.ArrayTaskID = &n
	} else {
		out.ArrayTaskString = j.Listed()
	}
}

// onNodes sets what it has of its nodes.
func (out *Job) onNodes(j *slurm.Job) {
	out.TRESAllocStr, out.BillableTRES = j.TRES(), new(float64(j.CPUs))
	names, err := slurm.Unfold(j.NodeList)
	if err != nil {
		return
	}
	out.JobResources = &jobResources{Nodes: j.NodeList, AllocatedCores: j.CPUs, AllocatedHosts: len(names)}
	for _, name := range names {
		out.JobResources.AllocatedNodes = append(out.JobResources.AllocatedNodes, jobNodeShare{NodeName: name, MemoryAllocated: j.MinMemMiB})
		if j.GresUsed != "" {
			out.GresDetail = append(out.GresDetail, j.GresUsed)
		}
	}
}

// waitStatus returns how it ended as wait reports it: the exit code times
// 256, plus the signal.
func waitStatus(j *slurm.Job) int64 {
	code := int64(j.ExitCode)
	if j.Signal != 0 && j.ExitCode == 128+j.Signal {
		code = 0
	}
	return code<<8 | int64(j.Signal)
}

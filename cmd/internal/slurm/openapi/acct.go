package openapi

import (
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/berth-scheduler/berth/cmd/internal/slurm"
)

// Acct is what sacct --json of Slurm 22.05 prints.
type Acct struct {
	Meta   Meta      `json:"meta"`
	Errors []string  `json:"errors"`
	Jobs   []AcctJob `json:"jobs"`
}

// NewAcct returns jobs in this form, in order, each with the step of its
// script if steps is set.
func NewAcct(jobs []slurm.Job, steps bool) Acct {
	out := Acct{Meta: NewAcctMeta(), Errors: []string{}, Jobs: []AcctJob{}}
	for i := range jobs {
		j := acctJob(&jobs[i])
		if step, begun := jobs[i].Batch(); begun && steps {
			j.Steps = append(j.Steps, acctStep(&step))
		}
		out.Jobs = append(out.Jobs, j)
	}
	return out
}

// AcctJob is a job of the accounting. Times are Unix seconds, or durations in
// seconds; memory is MiB. CPU time in the kernel and outside it is not
// measured separately: both are 0, and total is the sum.
type AcctJob struct {
	Account          string          `json:"account"`
	Comment          acctComment     `json:"comment"`
	AllocationNodes  int             `json:"allocation_nodes"`
	Array            acctArray       `json:"array"`
	Association      acctAssociation `json:"association"`
	Cluster          string          `json:"cluster"`
	Constraints      string          `json:"constraints"`
	Container        *string         `json:"container"`
	DerivedExitCode  acctExit        `json:"derived_exit_code"`
	Time             acctTime        `json:"time"`
	ExitCode         acctExit        `json:"exit_code"`
	Flags            []string        `json:"flags"`
	Group            string          `json:"group"`
	Het              acctHet         `json:"het"`
	JobID            uint64          `json:"job_id"`
	KillRequestUser  *string         `json:"kill_request_user"`
	MCS              acctLabel       `json:"mcs"`
	Name             string          `json:"name"`
	Nodes            string          `json:"nodes"`
	Partition        string          `json:"partition"`
	Priority         int64           `json:"priority"`
	QOS              string          `json:"qos"`
	Required         acctRequired    `json:"required"`
	Reservation      acctReservation `json:"reservation"`
	State            acctState       `json:"state"`
	Steps            []AcctStep      `json:"steps"`
	TRES             acctTRES        `json:"tres"`
	User             string          `json:"user"`
	WCKey            acctWCKey       `json:"wckey"`
	WorkingDirectory string          `json:"working_directory"`
}

// AcctStep is a step of a job of the accounting.
type AcctStep struct {
	Time            acctStepTime   `json:"time"`
	ExitCode        acctExit       `json:"exit_code"`
	Nodes           acctNodes      `json:"nodes"`
	Tasks           acctCount      `json:"tasks"`
	PID             *int64         `json:"pid"`
	CPU             acctCPU        `json:"CPU"`
	KillRequestUser *string        `json:"kill_request_user"`
	State           string         `json:"state"`
	Statistics      acctStatistics `json:"statistics"`
	Step            acctStepName   `json:"step"`
	Task            acctTask       `json:"task"`
	TRES            acctStepTRES   `json:"tres"`
}

type (
	acctComment struct {
		Administrator *string `json:"administrator"`
		Job           *string `json:"job"`
		System        *string `json:"system"`
	}
	acctArray struct {
		JobID  uint64     `json:"job_id"`
		Limits acctLimits `json:"limits"`
		Task   *string    `json:"task"`
		TaskID *int64     `json:"task_id"`
	}
	acctLimits struct {
		Max acctMax `json:"max"`
	}
	acctMax struct {
		Running acctRunning `json:"running"`
	}
	acctRunning struct {
		Tasks uint32 `json:"tasks"`
	}
	acctAssociation struct {
		Account   string  `json:"account"`
		Cluster   string  `json:"cluster"`
		Partition *string `json:"partition"`
		User      string  `json:"user"`
	}
	acctExit struct {
		Status     string      `json:"status"`
		ReturnCode *int32      `json:"return_code"`
		Signal     *acctSignal `json:"signal,omitempty"`
	}
	acctSignal struct {
		SignalID int32  `json:"signal_id"`
		Name     string `json:"name"`
	}
	acctSeconds struct {
		Seconds      int64 `json:"seconds"`
		Microseconds int64 `json:"microseconds"`
	}
	acctStepTime struct {
		Elapsed   int64       `json:"elapsed"`
		End       int64       `json:"end"`
		Start     int64       `json:"start"`
		Suspended int64       `json:"suspended"`
		System    acctSeconds `json:"system"`
		Total     acctSeconds `json:"total"`
		User      acctSeconds `json:"user"`
	}
	acctTime struct {
		Elapsed    int64       `json:"elapsed"`
		Eligible   int64       `json:"eligible"`
		End        int64       `json:"end"`
		Start      int64       `json:"start"`
		Submission int64       `json:"submission"`
		Suspended  int64       `json:"suspended"`
		System     acctSeconds `json:"system"`
		Limit      *int64      `json:"limit"`
		Total      acctSeconds `json:"total"`
		User       acctSeconds `json:"user"`
	}
	acctHet struct {
		JobID     int64  `json:"job_id"`
		JobOffset *int64 `json:"job_offset"`
	}
	acctLabel struct {
		Label string `json:"label"`
	}
	acctRequired struct {
		CPUs   int64 `json:"CPUs"`
		Memory int64 `json:"memory"`
	}
	acctReservation struct {
		ID   int64   `json:"id"`
		Name *string `json:"name"`
	}
	acctState struct {
		Current string `json:"current"`
		Reason  string `json:"reason"`
	}
	acctTRES struct {
		Allocated []tresJSON `json:"allocated"`
		Requested []tresJSON `json:"requested"`
	}
	acctWCKey struct {
		WCKey string   `json:"wckey"`
		Flags []string `json:"flags"`
	}
	acctNodes struct {
		List  []string `json:"list"`
		Count int      `json:"count"`
		Range string   `json:"range"`
	}
	acctCount struct {
		Count int64 `json:"count"`
	}
	acctCPU struct {
		RequestedFrequency acctFrequency `json:"requested_frequency"`
		Governor           int64         `json:"governor"`
	}
	acctFrequency struct {
		Min int64 `json:"min"`
		Max int64 `json:"max"`
	}
	acctStatistics struct {
		CPU    acctActual   `json:"CPU"`
		Energy acctConsumed `json:"energy"`
	}
	acctActual struct {
		ActualFrequency int64 `json:"actual_frequency"`
	}
	acctConsumed struct {
		Consumed int64 `json:"consumed"`
	}
	acctStepName struct {
		JobID uint64        `json:"job_id"`
		Het   acctComponent `json:"het"`
		ID    string        `json:"id"`
		Name  string        `json:"name"`
	}
	acctComponent struct {
		Component *int64 `json:"component"`
	}
	acctTask struct {
		Distribution string `json:"distribution"`
	}
	acctStepTRES struct {
		Requested acctUsage  `json:"requested"`
		Consumed  acctUsage  `json:"consumed"`
		Allocated []tresJSON `json:"allocated"`
	}
	acctUsage struct {
		Max     []tresJSON `json:"max"`
		Min     []tresJSON `json:"min"`
		Average []tresJSON `json:"average"`
		Total   []tresJSON `json:"total"`
	}
	tresJSON struct {
		Type  string  `json:"type"`
		Name  *string `json:"name"`
		ID    int     `json:"id"`
		Count int64   `json:"count"`
	}
)

func acctJob(j *slurm.Job) AcctJob {
	out := AcctJob{
		Account: j.Account, AllocationNodes: j.Nodes, Cluster: j.Cluster, Constraints: j.Features, DerivedExitCode: exitOf(j), ExitCode: exitOf(j),
		Array:       acctArray{JobID: j.ArrayID, Limits: acctLimits{acctMax{acctRunning{j.Throttle}}}},
		Association: acctAssociation{Account: j.Account, Cluster: j.Cluster, User: j.User},
		Time: acctTime{
			Elapsed: int64(j.Ran / time.Second), Eligible: unix(j.Eligible), End: unix(j.Ended), Start: unix(j.Started), Submission: unix(j.Submitted),
			Limit: minutes(j.Limit), Total: secondsOf(j.CPUUsed),
		},
		Flags: []string{}, Group: j.Group, JobID: j.ID, Name: j.Name, Nodes: j.NodeList, Partition: j.Partition, Priority: j.Priority, QOS: j.QOS,
		Required: acctRequired{CPUs: j.CPUs, Memory: j.MinMemMiB}, Steps: []AcctStep{}, TRES: acctTRES{Allocated: []tresJSON{}, Requested: tresOf(j)},
		User: j.User, WCKey: acctWCKey{Flags: []string{}}, WorkingDirectory: j.Dir,
	}
	var by string
	if out.State.Current, by, _ = strings.Cut(j.State, " by "); by != "" {
		out.KillRequestUser = &by
	}
	if out.State.Reason = j.Reason; j.Reason == "" {
		out.State.Reason = "None"
	}
	if n, err := strconv.ParseInt(j.Tasks, 10, 64); err == nil {
		out.Array.TaskID = &n
	} else if j.Tasks != "" {
		out.Array.Task = &j.Tasks
	}
	for _, x := range []struct {
		to   **string
		from *string
	}{{&out.Comment.Job, &j.Comment}, {&out.Reservation.Name, &j.Reservation}} {
		if *x.from != "" {
			*x.to = x.from
		}
	}
	if !j.Started.IsZero() {
		out.TRES.Allocated = tresOf(j)
	} else {
		out.Nodes = "None assigned"
	}
	return out
}

// acctStep converts a step made by Batch.
func acctStep(j *slurm.Job) AcctStep {
	nodes, err := slurm.Unfold(j.NodeList)
	if err != nil || nodes == nil {
		nodes = []string{}
	}
	usage := usageOf(j)
	none := acctUsage{Max: []tresJSON{}, Min: []tresJSON{}, Average: []tresJSON{}, Total: []tresJSON{}}
	return AcctStep{
		Time: acctStepTime{
			Elapsed: int64(j.Ran / time.Second), End: unix(j.Ended), Start: unix(j.Started), Total: secondsOf(j.CPUUsed),
		},
		ExitCode: exitOf(j), Nodes: acctNodes{List: nodes, Count: len(nodes), Range: j.NodeList}, Tasks: acctCount{j.Tasked}, State: j.State,
		Statistics: acctStatistics{Energy: acctConsumed{j.EnergyJ}}, Step: acctStepName{JobID: j.ID, ID: j.Step, Name: j.Name}, Task: acctTask{"Unknown"},
		TRES: acctStepTRES{Requested: acctUsage{Max: usage, Min: []tresJSON{}, Average: usage, Total: usage}, Consumed: none, Allocated: tresOf(j)},
	}
}

// exitOf returns how it ended.
func exitOf(j *slurm.Job) acctExit {
	none := int32(0)
	code, signal := j.Accounted()
	switch {
	case j.Ended.IsZero():
		return acctExit{Status: "PENDING"}
	case signal != 0:
		return acctExit{Status: "SIGNALED", ReturnCode: &none, Signal: &acctSignal{signal, signalText(signal)}}
	case code != 0:
		return acctExit{Status: "ERROR", ReturnCode: &code}
	}
	return acctExit{Status: "SUCCESS", ReturnCode: &none}
}

// signalText names a signal in the words of the C library.
func signalText(n int32) string {
	s := syscall.Signal(n).String()
	return strings.ToUpper(s[:1]) + s[1:]
}

func secondsOf(d time.Duration) acctSeconds {
	return acctSeconds{int64(d / time.Second), int64(d % time.Second / time.Microsecond)}
}

// Slurm's numbers of the resources it counts; those of generic resources come
// from its database, from this one on.
const (
	idCPU, idMem, idEnergy, idNode, idBilling = 1, 2, 3, 4, 5
	idGPU, idGPUMem, idGPUUtil                = 1001, 1002, 1003
)

func tres(kind, name string, id int, count int64) tresJSON {
	t := tresJSON{Type: kind, ID: id, Count: count}
	if name != "" {
		t.Name = &name
	}
	return t
}

// tresOf returns what TRES does, in parts.
func tresOf(j *slurm.Job) []tresJSON {
	out := []tresJSON{tres("cpu", "", idCPU, j.CPUs)}
	if j.MemUsedMiB > 0 {
		out = append(out, tres("mem", "", idMem, j.MemUsedMiB))
	}
	out = append(out, tres("node", "", idNode, int64(j.Nodes)), tres("billing", "", idBilling, j.CPUs))
	if j.GPUs > 0 {
		out = append(out, tres("gres", "gpu", idGPU, int64(j.GPUs)))
	}
	return out
}

// usageOf returns what used does, in parts: time in milliseconds, memory in bytes.
func usageOf(j *slurm.Job) []tresJSON {
	out := []tresJSON{}
	for _, t := range []tresJSON{
		tres("cpu", "", idCPU, j.CPUUsed.Milliseconds()), tres("mem", "", idMem, j.MaxRSSMiB<<20), tres("energy", "", idEnergy, j.EnergyJ),
		tres("gres", "gpumem", idGPUMem, j.GPUMemMiB<<20), tres("gres", "gpuutil", idGPUUtil, (j.GPUUtilMilli+5)/10),
	} {
		if t.Count > 0 {
			out = append(out, t)
		}
	}
	return out
}

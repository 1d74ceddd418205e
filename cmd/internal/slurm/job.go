package slurm

import (
	"cmp"
	"strconv"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/slurm/text"
)

// Job is a job in Slurm's terms. An empty text prints as Slurm prints a missing one.
type Job struct {
	ID uint64
	// Array is its id as part of an array, such as "4_0" or, while tasks wait,
	// "4_[0-5%2]"; Tasks is the part after the underscore.
	Array, Tasks string
	// ArrayID is the array's id, 0 for a job by itself; Throttle is how many of
	// its tasks may run at once, 0 for any number.
	ArrayID  uint64
	Throttle uint32
	part     bool // only some of the tasks that it stands for, see Narrow
	// Begun reports whether it was ever started, though it may wait again.
	Begun bool
	Name  string
	// User and Group own it.
	User, Group string
	UID, GID    uint32
	// Partition, Account and QOS are names.
	Partition, Account, QOS string
	// Nice is how far it yields to others.
	Nice int32
	// State is the long name in capitals and Code the compact one.
	State, Code string
	// Reason is why it waits, as one of Slurm's words.
	Reason string
	// Nodes is how many it takes, NodeList which, ReqNodes those it requested.
	Nodes              int
	NodeList, ReqNodes string
	// CPUs is what it takes in all, MinCPUs the least on each node.
	CPUs, MinCPUs int64
	MinMemMiB     int64
	// Features are those it requests and Exclude the nodes that it must not use;
	// Reservation is where it runs, and Whole says that it shares its nodes with
	// no other job.
	Features, Exclude, Reservation string
	Whole                          bool
	// Gres is the generic resources it requested on each node, such as
	// "gres:gpu:a100:2".
	Gres string
	// GresUsed is what it was given, such as "gpu:a100:2(IDX:0-1)".
	GresUsed string
	// Submitted, Eligible, Started and Ended are zero if unknown; Expected is
	// when it is expected to start.
	Submitted, Eligible, Started, Ended, Expected time.Time
	// Limit is its time limit, 0 for none; Ran is how long it has run, or ran.
	Limit, Ran time.Duration
	Deadline   time.Time
	// Command is the script or program, Dir the working directory.
	Command, Dir, Comment string
	// MailType says what mail is sent about, "" for nothing, and MailUser to whom.
	MailType, MailUser    string
	Stdin, Stdout, Stderr string
	Dependency            string
	// Switches is the most switches its nodes may span, 0 for any number, and
	// SwitchWait how long it waits for that.
	Switches   int
	SwitchWait time.Duration
	// LastEval is when the scheduler last considered it, SubmitHost where it
	// was submitted, as HOST:SESSION.
	LastEval   time.Time
	SubmitHost string
	// Tasked is how many tasks it has, GPUs how many GPUs it takes in all,
	// CPUIDs the cores and MemUsedMiB the memory that it was given.
	Tasked     int64
	GPUs       int
	CPUIDs     string
	MemUsedMiB int64
	// Priority is greater for jobs that go first, 0 for a held job.
	Priority         int64
	ExitCode, Signal int32
	Requeue          bool
	Restarts         int
	MaxRSSMiB        int64
	// Pending is how long it has waited, or waited, since its submit.
	Pending time.Duration
	// Waited is how long it waited for its start, CPUUsed its CPU time; GPUMemMiB
	// and GPUUtilMilli are the most memory that it held on a GPU and how busy it
	// kept its GPUs on average. 0 means unknown.
	Waited, CPUUsed                  time.Duration
	EnergyJ, ReadBytes, WrittenBytes int64
	GPUMemMiB, GPUUtilMilli          int64
	Cluster                          string
	// Times is how its times are written, and Unit the letter of the unit for
	// amounts of memory and bytes, "" for whichever fits.
	Times text.Times
	Unit  string
	// Step is the step that this stands for, "" for the job.
	Step string
}

func (j *Job) waiting() bool { return j.Code == "PD" }

// over reports whether it has ended. An earlier attempt of a job that waits
// again may have, so its times do not show that.
func (j *Job) over() bool {
	st, err := cluster.ParseJobState(j.State)
	return err == nil && st.Terminal()
}

// minJobAge is how long Slurm lists ended jobs, as scontrol show config says.
const minJobAge = 300 * time.Second

// Gone reports whether it ended so long ago that Slurm would no longer know it.
func (j *Job) Gone(now time.Time) bool {
	return j.over() && !j.Ended.IsZero() && now.Sub(j.Ended) > minJobAge
}

// null is how Slurm prints missing text.
const null = "(null)"

func orNull(s string) string {
	return cmp.Or(s, null)
}

func orNA(s string) string {
	return cmp.Or(s, "N/A")
}

// end returns when it ended or will have to.
func (j *Job) end() string {
	switch {
	case !j.Ended.IsZero():
		return j.Times.Stamp(j.Ended, "")
	case j.Started.IsZero() && j.Expected.IsZero():
		return "N/A"
	case j.Limit == 0:
		return "NONE"
	case j.Started.IsZero():
		return j.Times.Stamp(j.Expected.Add(j.Limit), "")
	}
	return j.Times.Stamp(j.Started.Add(j.Limit), "")
}

func (j *Job) start() string {
	if j.Started.IsZero() {
		return j.Times.Stamp(j.Expected, "N/A")
	}
	return j.Times.Stamp(j.Started, "")
}

func (j *Job) limit() string {
	if j.Limit == 0 {
		return "UNLIMITED"
	}
	return text.Span(j.Limit)
}

func (j *Job) left() string {
	if j.Limit == 0 {
		return "UNLIMITED"
	}
	if j.Ran > j.Limit {
		return "-" + text.Span(j.Ran-j.Limit)
	}
	return text.Span(j.Limit - j.Ran)
}

// where returns the node, or why there is none.
func (j *Job) where() string {
	switch {
	case j.waiting():
		return "(" + j.Reason + ")"
	case j.NodeList == "" && j.Reason != "" && j.Reason != "None":
		return "(" + j.Reason + ")"
	}
	return j.NodeList
}

// FirstNode returns the node of its script, "" while it has none.
func (j *Job) FirstNode() string {
	if names, err := Unfold(j.NodeList); err == nil && len(names) > 0 {
		return names[0]
	}
	return j.NodeList
}

// PerTask returns how many GPUs each task has.
func (j *Job) PerTask() int64 {
	if j.Tasked > int64(j.Nodes) {
		return max(1, j.CPUs/j.Tasked)
	}
	return cmp.Or(j.MinCPUs, j.CPUs)
}

// FirstPriority is the priority of Slurm's first job under priority/basic,
// which counts down from there. Berth has no such number: a job's priority is
// FirstPriority minus its id, so that scripts that sort by it see jobs in
// submit order.
const FirstPriority = 4294901760

func (j *Job) fraction() string {
	return strconv.FormatFloat(float64(j.Priority)/(1<<32-1), 'f', 14, 64)
}

func (j *Job) id() string { return strconv.FormatUint(j.ID, 10) + j.stepped() }

// stepped returns a step's suffix to the id of its job.
func (j *Job) stepped() string {
	if j.Step == "" {
		return ""
	}
	return "." + j.Step
}

func (j *Job) arrayID() string {
	if j.ArrayID != 0 {
		return strconv.FormatUint(j.ArrayID, 10)
	}
	return j.id()
}

func (j *Job) shown() string {
	if j.Array != "" {
		return j.Array + j.stepped()
	}
	return j.id()
}

func number[N int | int32 | int64 | uint32 | uint64](n N) string {
	return strconv.FormatInt(int64(n), 10)
}

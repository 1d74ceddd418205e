package terms

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/slurmcmd/option"
	"github.com/berth-scheduler/berth/cmd/internal/slurm"
	"github.com/berth-scheduler/berth/cmd/internal/slurm/text"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

// ListJobs reads jobs in Slurm's terms. full is for a format that shows what
// columns do not hold.
func ListJobs(ctx context.Context, e *console.Env, c *client.Client, req *apiv1.ListJobsRequest, full bool) ([]slurm.Job, error) {
	v := ViewFrom(e)
	var jobs []slurm.Job
	if full {
		for page, err := range client.JobPages(ctx, c, req) {
			if err != nil {
				return nil, err
			}
			if cap(jobs)-len(jobs) < len(page) { // a job is a kilobyte here: spare room saves moving them
				jobs = slices.Grow(jobs, max(len(page), 3*len(jobs)))
			}
			for _, j := range page {
				jobs = append(jobs, Job(v, j))
			}
		}
		return jobs, nil
	}
	req.Brief, req.PageSize, req.Columns = true, 20000, apiv1.JobColumnsOf_JOB_COLUMNS_OF_ALL
	err := client.ListPages(ctx, c, req, func(resp *apiv1.ListJobsResponse) {
		rows := slurmRows{apiconv.Columns{M: resp.GetColumns()}, v}
		for i, s := range rows.M.GetTexts() {
			rows.M.Texts[i] = console.Escape(s)
		}
		jobs = slices.Grow(jobs, len(rows.M.GetIds())+len(resp.GetJobs()))
		for i := range rows.M.GetIds() {
			jobs = append(jobs, slurm.Job{})
			rows.read(&jobs[len(jobs)-1], i)
		}
		for _, j := range resp.GetJobs() {
			jobs = append(jobs, Job(v, j))
		}
	})
	return jobs, err
}

// slurmRows are columns in Slurm's terms, as of now.
type slurmRows struct {
	apiconv.Columns
	*Viewer
}

// read does what Job and addSpec do, for a row.
func (r slurmRows) read(s *slurm.Job, i int) {
	m := r.M
	st, err := cluster.ParseJobState(r.Text(m.GetStates(), i))
	s.State, s.Code = r.Text(m.GetStates(), i), st.Code()
	if t, ok := slurmStates[st]; ok && err == nil {
		s.State, s.Code = t[0], t[1]
	}
	s.Cluster, s.Times = option.ClusterName, r.times
	s.ID, s.Name, s.User, s.UID = m.GetIds()[i], r.Text(m.GetNames(), i), r.Text(m.GetUsers(), i), apiconv.Cell(m.GetUids(), i)
	s.Partition = cmp.Or(r.Text(m.GetPartitions(), i), NoPartition)
	s.Account, s.QOS, s.Nice = r.Text(m.GetAccounts(), i), r.Text(m.GetQos(), i), apiconv.Cell(m.GetNices(), i)
	s.Reason = cmp.Or(r.Text(m.GetReasons(), i), "None")
	s.Nodes, s.NodeList = int(max(1, apiconv.Cell(m.GetNodesWanted(), i))), r.Text(m.GetNodeLists(), i)
	s.Submitted, s.Eligible, s.Deadline = r.time(m.GetSubmitted(), i), r.time(m.GetEligible(), i), r.time(m.GetDeadlines(), i)
	s.Started, s.Ended = r.time(m.GetStarted(), i), r.time(m.GetEnded(), i)
	s.ExitCode, s.Signal = apiconv.Cell(m.GetExitCodes(), i), apiconv.Cell(m.GetSignals(), i)
	s.Restarts, s.Requeue = int(apiconv.Cell(m.GetRestarts(), i)), apiconv.Cell(m.GetRequeues(), i)
	s.Limit = time.Duration(apiconv.Cell(m.GetTimeLimits(), i)) * time.Millisecond
	s.Dependency, s.ReqNodes = r.Text(m.GetDependencies(), i), r.Text(m.GetAskedNodes(), i)
	gpus, nodes := apiconv.Cell(m.GetGpus(), i), int64(s.Nodes)
	s.GPUs, s.Gres = int(gpus)*s.Nodes, gresOf(gpus, r.Text(m.GetGpuTypes(), i))
	s.Tasked = nodes * int64(max(1, apiconv.Cell(m.GetTasksPerNode(), i)))
	s.MinCPUs = max(1, (apiconv.Cell(m.GetCpuMilli(), i)+999)/1000)
	s.CPUs, s.MinMemMiB = nodes*s.MinCPUs, apiconv.Cell(m.GetMemMib(), i)
	s.MemUsedMiB = nodes * s.MinMemMiB
	s.Priority = slurm.FirstPriority - int64(cmp.Or(apiconv.Cell(m.GetArrays(), i), s.ID)) // tasks of an array share one
	if IsHeld(s.Reason) {
		s.Priority = 0
	}
	settle(s, st.Waiting(), r.now)
	s.GID, s.Group = r.group(s.UID)
	s.InArray(apiconv.Cell(m.GetArrays(), i), r.Text(m.GetArrayTasks(), i), apiconv.Cell(m.GetArrayThrottles(), i))
}

func (r slurmRows) time(col []int64, i int) time.Time {
	if us := apiconv.Cell(col, i); us != 0 {
		return time.UnixMicro(us).In(r.now.Location())
	}
	return time.Time{}
}

// IsHeld reports whether a reason means that a job is held.
func IsHeld(reason string) bool {
	return reason == string(cluster.ReasonHeldUser) || reason == string(cluster.ReasonHeldAdmin)
}

// endReasons are Slurm's names of reasons for an end. Clients look the word
// up in a list of Slurm's, and some fail on an unknown one.
var endReasons = map[cluster.ReasonCode]string{
	cluster.ReasonLaunch: "JobLaunchFailure", cluster.ReasonSignal: "NonZeroExitCode", cluster.ReasonByUser: "None", cluster.ReasonByAdmin: "None", cluster.ReasonPulling: "None",
	cluster.ReasonHostOOM: "OutOfMemory", cluster.ReasonGPUOOM: "OutOfMemory", cluster.ReasonNodeLost: "NodeDown",
	cluster.ReasonGPUFault: "SystemFailure", cluster.ReasonGPUCheck: "SystemFailure", cluster.ReasonNodeFault: "SystemFailure", cluster.ReasonNotReady: "SystemFailure",
	cluster.ReasonRuntimeLost: "SystemFailure", cluster.ReasonUnkillable: "SystemFailure",
}

// settle derives values from the times of a job.
func settle(s *slurm.Job, waiting bool, now time.Time) {
	s.Begun = !s.Started.IsZero()
	if waiting { // what it did before a requeue does not count
		s.Started, s.Ended, s.NodeList = time.Time{}, time.Time{}, ""
	}
	if why, ok := endReasons[cluster.ReasonCode(s.Reason)]; ok && !waiting {
		s.Reason = why
	}
	if waiting && s.Expected.IsZero() && s.Eligible.After(now) { // not before --begin
		s.Expected = s.Eligible
	}
	s.Pending = now.Sub(s.Submitted)
	if !s.Started.IsZero() {
		s.Pending = s.Started.Sub(s.Submitted)
	}
	switch {
	case s.Started.IsZero():
	case s.Ended.IsZero():
		s.Ran = now.Sub(s.Started)
	default:
		s.Ran = s.Ended.Sub(s.Started)
	}
}

// Viewer is the user who looks at the cluster: the time there, and the names
// of users and groups on that machine.
type Viewer struct {
	now      time.Time
	times    text.Times
	accounts console.Accounts
	groups   map[uint32]groupOf // the primary group of each user looked up
}

type groupOf struct {
	gid  uint32
	name string
}

// ViewFrom returns the viewer of an environment.
func ViewFrom(e *console.Env) *Viewer {
	return &Viewer{now: e.Now(), times: text.Times{Form: e.Getenv("SLURM_TIME_FORMAT"), Now: e.Now()}, accounts: e.Accounts, groups: map[uint32]groupOf{}}
}

// group returns a user's primary group there.
func (v *Viewer) group(uid uint32) (gid uint32, name string) {
	x, ok := v.groups[uid]
	if !ok {
		x.gid = uid
		if u, err := v.accounts.UserID(strconv.FormatUint(uint64(uid), 10)); err == nil {
			if gid, err := strconv.ParseUint(u.Gid, 10, 32); err == nil {
				x.gid = uint32(gid)
			}
		}
		x.name = strconv.FormatUint(uint64(x.gid), 10)
		if u, err := v.accounts.GroupID(x.name); err == nil {
			x.name = u.Name
		}
		v.groups[uid] = x
	}
	return x.gid, x.name
}

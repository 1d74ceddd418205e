package apiconv

import (
	"slices"
	"strings"

	"github.com/berth-scheduler/berth/cluster"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// headToAPI sets what all jobs of a spec have in common, also in the brief form.
func headToAPI(m *apiv1.Job, j *cluster.Job) {
	m.User, m.Uid = j.Owner.Name, uint32(j.Owner.UID)
	if j.Spec == nil {
		return
	}
	m.Name, m.GpusWanted, m.Partition = j.Spec.Name, uint32(max(0, j.Spec.GPUs)), j.Spec.Partition
	m.Account, m.Qos, m.Nice = j.Spec.Account, j.Spec.QOS, j.Spec.Nice
	if j.Spec.Ranked() {
		m.NodesWanted, m.TasksPerNode = uint32(j.Spec.NodeCount()), uint32(j.Spec.TaskCount())
	}
}

// specToAPI sets what all jobs with the same spec and estimates have in common.
func specToAPI(m *apiv1.Job, j *cluster.Job, d JobDetail) {
	if at := predictedBy(j, d.GPU); at >= 0 {
		m.Predicted = EstimateToAPI(j.Estimates[at])
	}
	for _, e := range j.Estimates {
		m.Predictions = append(m.Predictions, EstimateToAPI(e))
	}
	if j.Spec == nil {
		return
	}
	m.Spec = SpecToAPI(j.Spec)
	m.Spec.Script = nil // a list of jobs would be as long as all their scripts
	if j.Spec.Bulk != nil && d.Whole && !d.Redact {
		env, _ := j.Spec.Large()
		m.Spec.Env = Texts[[]byte](env)
	}
}

// Common is a key: jobs with equal ones have all in common that CommonToAPI
// returns. It is for comparing jobs that exist at the same time.
type Common struct {
	spec      *cluster.Spec
	estimates *cluster.Estimate // the first of them
	owner     cluster.Owner
	predicted int
	redact    bool
}

// CommonOf returns what a job has in common with others that were submitted alike.
func CommonOf(j *cluster.Job, d JobDetail) Common {
	c := Common{spec: j.Spec, owner: j.Owner, predicted: predictedBy(j, d.GPU), redact: d.Redact}
	if len(j.Estimates) > 0 {
		c.estimates = &j.Estimates[0]
	}
	return c
}

// CommonToAPI returns what all jobs with the same Common share, as far as users may
// see it.
func CommonToAPI(j *cluster.Job, d JobDetail) *apiv1.Job {
	m := &apiv1.Job{}
	headToAPI(m, j)
	specToAPI(m, j, d)
	if d.Redact {
		redact(m)
	}
	return m
}

// byAttempt is the index of an attempt's own estimate, none that of no estimate.
const (
	byAttempt = -1
	none      = -2
)

// predictedBy returns which of a job's estimates is its prediction.
func predictedBy(j *cluster.Job, gpu GPULookup) int {
	if a := j.Last(); a != nil && !j.State.Waiting() {
		return byAttempt
	}
	of := func(typ string) (int, bool) {
		return slices.BinarySearchFunc(j.Estimates, typ, func(e cluster.Estimate, typ string) int { return strings.Compare(e.GPUType, typ) })
	}
	if j.Queue != "" && gpu != nil {
		if typ, _ := gpu("", j.Queue); typ != "" {
			if i, ok := of(typ); ok {
				return i
			}
		}
	}
	if j.Spec != nil && j.Spec.GPUType != "" {
		if i, ok := of(j.Spec.GPUType); ok {
			return i
		}
	}
	if len(j.Estimates) == 0 {
		return none
	}
	return 0
}

// Join gives jobs of an answer what they have in common with others of it, which is
// then shared and must not be modified.
func Join(resp *apiv1.ListJobsResponse) {
	common := resp.GetCommon()
	for _, m := range resp.GetJobs() {
		if at := m.GetCommon(); at > 0 && int64(at) <= int64(len(common)) {
			join(m, common[at-1])
		}
		m.Common = 0
	}
	resp.Common = nil
}

func join(m, c *apiv1.Job) {
	m.Name, m.User, m.Uid = c.GetName(), c.GetUser(), c.GetUid()
	m.GpusWanted, m.Partition, m.Account, m.Qos, m.Nice = c.GetGpusWanted(), c.GetPartition(), c.GetAccount(), c.GetQos(), c.GetNice()
	m.NodesWanted, m.TasksPerNode = c.GetNodesWanted(), c.GetTasksPerNode()
	m.Spec, m.Predictions = c.GetSpec(), c.GetPredictions()
	if m.GetPredicted() == nil {
		m.Predicted = c.GetPredicted()
	}
}

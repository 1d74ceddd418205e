package jobs

import (
	"slices"
	"strconv"

	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/api/authorize"
	"github.com/berth-scheduler/berth/coordinator/limit"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

// maxColumnPage bounds a page most of whose jobs come as columns: some 80 bytes
// each.
const maxColumnPage = 200_000

// stepJobs is the number of jobs of a listing after which it yields to waiting
// requests.
const stepJobs = 16

// listed builds the answer to a listing from what the query found, in a turn.
func (s *jobServer) listed(req *apiv1.ListJobsRequest, who authorize.Caller, jobs []*cluster.Job, turn *limit.Turn) (*apiv1.ListJobsResponse, error) {
	resp := &apiv1.ListJobsResponse{}
	switch req.Columns {
	case apiv1.JobColumnsOf_JOB_COLUMNS_OF_ALL:
		resp.Columns = s.c.columns(jobs)
		return resp, nil
	case apiv1.JobColumnsOf_JOB_COLUMNS_OF_WAITING:
		waiting := make([]*cluster.Job, 0, len(jobs))
		var others []*cluster.Job
		for _, j := range jobs {
			if j.State.Waiting() && !j.InArray() {
				waiting = append(waiting, j)
			} else {
				others = append(others, j)
			}
		}
		resp.Columns, jobs = s.c.columns(waiting), others
	}
	how := full
	if req.Brief || resp.Columns != nil {
		how = brief
	}
	if req.Shared && how == full {
		return resp, s.shared(resp, who, jobs, turn)
	}
	at := places{c: s.c}
	resp.Jobs = make([]*apiv1.Job, 0, len(jobs))
	for i, j := range jobs {
		if i%stepJobs == 0 {
			if err := turn.Step(); err != nil {
				return nil, err
			}
		}
		resp.Jobs = append(resp.Jobs, s.c.viewAt(j, who, how, at.of(j)))
	}
	return resp, nil
}

// columns returns jobs as columns, with the current throttles of arrays (which may
// differ from those submitted) and why jobs wait now.
func (c *Jobs) columns(jobs []*cluster.Job) *apiv1.JobColumns {
	m := apiconv.JobColumns(jobs)
	if len(m.Arrays) > 0 && len(m.ArrayThrottles) == 0 {
		m.ArrayThrottles = make([]uint32, len(m.Arrays))
	}
	now := map[uint64]uint32{}
	for i, id := range m.Arrays {
		if id == 0 {
			continue
		}
		n, ok := now[id]
		if !ok {
			n = uint32(c.fsm.Throttle(cluster.JobID(id)))
			now[id] = n
		}
		m.ArrayThrottles[i] = n
	}
	texts := map[cluster.ReasonCode]uint32{}
	for i, j := range jobs {
		r := c.reasonNow(j)
		if r.Code == "" {
			continue
		}
		if len(m.Reasons) == 0 {
			m.Reasons = make([]uint32, len(jobs))
		}
		text, ok := texts[r.Code]
		if !ok {
			text = uint32(len(m.Texts)) // #nosec G115 -- at most a page
			texts[r.Code] = text
			m.Texts = append(m.Texts, string(r.Code))
		}
		m.Reasons[i] = text
	}
	return m
}

// maxCommon is how many bytes of what its jobs have in common, such as large
// environments, a page holds before it ends.
const maxCommon = 2 << 20

// shared fills in a page of jobs, with what many have in common once: most waiting
// jobs are among many that were submitted alike, and share a spec in memory.
func (s *jobServer) shared(resp *apiv1.ListJobsResponse, who authorize.Caller, jobs []*cluster.Job, turn *limit.Turn) error {
	at, known, bytes := places{c: s.c}, map[apiconv.Common]uint32{}, 0
	resp.Jobs = make([]*apiv1.Job, 0, len(jobs))
	for i, j := range jobs {
		if i%stepJobs == 0 {
			if err := turn.Step(); err != nil {
				return err
			}
		}
		d := s.c.detailOf(j, who, full, at.of(j))
		of := apiconv.CommonOf(j, d)
		place, ok := known[of]
		if !ok {
			if bytes > maxCommon {
				resp.NextPageToken = strconv.FormatUint(uint64(jobs[i-1].ID), 10)
				return nil
			}
			common := apiconv.CommonToAPI(j, d)
			bytes += proto.Size(common)
			resp.Common = append(resp.Common, common)
			place = uint32(len(resp.Common)) // #nosec G115 -- at most a page
			known[of] = place
		}
		d.Apart = true
		m := s.c.viewOf(j, d)
		m.Common = place
		resp.Jobs = append(resp.Jobs, m)
	}
	return nil
}

// places knows the places of jobs in their queues, each of which it reads once:
// searching it for each of thousands of waiting jobs takes longer than everything
// else.
type places struct {
	c  *Jobs
	in map[cluster.GPUID]map[cluster.JobID]int
}

func (p *places) of(j *cluster.Job) int {
	if j.State != cluster.JobQueued {
		return 0
	}
	at, ok := p.in[j.Queue]
	if !ok {
		q := p.c.fsm.Queue(j.Queue)
		at = make(map[cluster.JobID]int, len(q))
		for i, w := range q {
			at[w.Job] = i + 1
		}
		if p.in == nil {
			p.in = map[cluster.GPUID]map[cluster.JobID]int{}
		}
		p.in[j.Queue] = at
	}
	return at[j.ID]
}

// among reports whether ids contains a job, its array, or any of the tasks that it
// folds.
func among(ids map[cluster.JobID]struct{}, j *cluster.Job) bool {
	if _, ok := ids[j.ID]; ok {
		return true
	}
	if !j.InArray() {
		return false
	}
	if _, ok := ids[j.ArrayJobID]; ok || j.Fold == nil {
		return ok
	}
	for id := range ids {
		if id >= j.ArrayJobID && cluster.SpanHas(j.Fold, int(id-j.ArrayJobID)) {
			return true
		}
	}
	return false
}

// keeper returns the part of a listing's filter that the state machine does not
// know; nil for none.
func keeper(req *apiv1.ListJobsRequest) func(*cluster.Job) bool {
	users, ids, nodes := map[string]struct{}{}, map[cluster.JobID]struct{}{}, map[cluster.NodeID]struct{}{}
	for _, u := range req.Users {
		users[u] = struct{}{}
	}
	for _, id := range req.Ids {
		ids[cluster.JobID(id)] = struct{}{}
	}
	for _, n := range req.Nodes {
		nodes[cluster.NodeID(n)] = struct{}{}
	}
	if len(users)+len(ids)+len(nodes)+len(req.Partitions)+len(req.Names) == 0 && !req.Trials && !req.Replicas {
		return nil
	}
	owner := func(o *cluster.Owner) bool {
		if len(users) == 0 {
			return true
		}
		if _, byName := users[o.Name]; byName {
			return true
		}
		_, byUID := users[strconv.FormatUint(uint64(o.UID), 10)]
		return byUID
	}
	on := func(j *cluster.Job) bool {
		a := j.Last()
		if len(nodes) == 0 || a == nil || j.State.Waiting() {
			return len(nodes) == 0
		}
		return slices.ContainsFunc(a.NodeIDs(), func(id cluster.NodeID) bool { _, ok := nodes[id]; return ok })
	}
	return func(j *cluster.Job) bool {
		return (len(ids) == 0 || among(ids, j)) && (!req.Trials || j.Spec.Study.Searches()) && (!req.Replicas || j.Spec.Service != nil) && (len(req.Partitions) == 0 || slices.Contains(req.Partitions, j.Spec.Partition)) &&
			(len(req.Names) == 0 || slices.Contains(req.Names, j.Spec.Name)) && owner(&j.Owner) && on(j)
	}
}

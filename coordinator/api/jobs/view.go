package jobs

import (
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/api/authorize"
	"github.com/berth-scheduler/berth/coordinator/nodes"
	"github.com/berth-scheduler/berth/fsm"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
	"github.com/berth-scheduler/berth/scheduler/deadline"
	"github.com/berth-scheduler/berth/scheduler/site"
)

// detail is how much of a job a view holds.
type detail uint8

const (
	brief detail = iota // a line of a listing
	full
	whole // full, with the environment however large
)

// view returns a job as who may see it: what a user runs, and with which
// environment, is shown only to the owner and to administrators.
func (c *Jobs) view(j *cluster.Job, who authorize.Caller, d detail) *apiv1.Job {
	return c.viewAt(j, who, d, c.queuePosition(j))
}

// viewAt is view for a job whose place in its queue is known, from 1.
func (c *Jobs) viewAt(j *cluster.Job, who authorize.Caller, d detail, place int) *apiv1.Job {
	return c.viewOf(j, c.detailOf(j, who, d, place))
}

// detailOf returns what who may see about a job, apart from the job itself.
func (c *Jobs) detailOf(j *cluster.Job, who authorize.Caller, d detail, place int) apiconv.JobDetail {
	return apiconv.JobDetail{
		Reason: c.reasonNow(j), Throttle: c.throttleOf(j),
		GPU: c.gpuName, Host: c.hostOf, QueuePosition: place, Served: c.served, Brief: d == brief, Whole: d == whole, Now: cluster.TimeOf(c.clock()),
		Redact: c.auth.May(who, authorize.ReadJob, &j.Owner) != nil,
	}
}

func (c *Jobs) viewOf(j *cluster.Job, d apiconv.JobDetail) *apiv1.Job {
	m := apiconv.JobToAPI(j, d)
	if !d.Brief {
		c.tellCaps(m)
		m.PredictedSlowdown = c.slowdown(j)
		if s, ok := deadline.Slack(c.shared(j), cluster.TimeOf(c.clock()), c.lead.PolicyOf(j)); ok {
			m.Slack = durationpb.New(s)
		}
	}
	return m
}

// shared returns a waiting job as passes see it, with what its deadline needs.
func (c *Jobs) shared(j *cluster.Job) *cluster.Job {
	if j.Spec.Deadline == 0 || !j.Spec.Elastic() || !j.State.Waiting() {
		return j
	}
	snap, _ := c.fsm.SchedulerSnapshotAt(cluster.TimeOf(c.clock()))
	return site.Shared(snap, j, &c.lead.Scheduling().Site)
}

// served returns the measurements of a service.
func (c *Jobs) served(owner cluster.UID, name string) apiconv.Served {
	v := c.lead.Served(owner, name)
	return apiconv.Served{Measured: v.Measured, ColdStart: v.ColdStart, Starts: v.Starts, Told: v.Told, LoadKnown: v.LoadKnown, Unready: v.Unready}
}

// hostOf returns where the processes of a node are reached.
func (c *Jobs) hostOf(id cluster.NodeID) string { return nodes.HostOf(c.fsm, id) }

// gpuName looks up a GPU's name in listings. The node may be "": a UUID suffices.
func (c *Jobs) gpuName(n cluster.NodeID, g cluster.GPUID) (typ string, index int) {
	if n == "" {
		c.fsm.Read(func(st *fsm.State) {
			if u, ok := st.Ledger().GPU(g); ok {
				n = u.Node
			}
		})
	}
	if node, ok := c.fsm.Node(n); ok {
		if card := node.GPU(g); card != nil {
			return card.Type, card.Index
		}
	}
	return "", -1
}

func (c *Jobs) queuePosition(j *cluster.Job) int {
	if j.State != cluster.JobQueued {
		return 0
	}
	_, pos := c.fsm.QueuePosition(j.ID)
	return pos
}

package client

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/hostnames"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// alike is what waiting tasks that are listed as one have in common.
type alike struct {
	array                   uint64
	state, reason, name     string
	partition, account, qos string
	gpus, nodes             uint32
}

// Folded lists tasks of an array that wait alike as one, in the place of the
// first of them. The coordinator folds those that wait for any GPU; tasks in
// the queues of GPUs are separate jobs there.
func Folded(jobs []*apiv1.Job) []*apiv1.Job { return folded(jobs, alikeOf, foldOf) }

// folded lists jobs with the same key as the one job that fold makes of them,
// in the place of the first of them; jobs for which key reports false are
// listed as they are.
func folded(jobs []*apiv1.Job, key func(*apiv1.Job) (alike, bool), fold func([]*apiv1.Job) *apiv1.Job) []*apiv1.Job {
	groups := map[alike][]*apiv1.Job{}
	for _, j := range jobs {
		if k, ok := key(j); ok {
			groups[k] = append(groups[k], j)
		}
	}
	out := make([]*apiv1.Job, 0, len(jobs))
	for _, j := range jobs {
		k, ok := key(j)
		switch group := groups[k]; {
		case !ok || len(group) == 1:
			out = append(out, j)
		case group[0] == j:
			out = append(out, fold(group))
		}
	}
	return out
}

func alikeOf(j *apiv1.Job) (alike, bool) {
	return alike{
		array: j.GetArrayJobId(), state: j.GetState(), reason: j.GetReason(), name: j.GetName(),
		partition: j.GetPartition(), account: j.GetAccount(), qos: j.GetQos(), gpus: j.GetGpusWanted(), nodes: j.GetNodesWanted(),
	}, j.GetArrayJobId() != 0 && console.Waiting(j.GetState()) && j.GetStarted() == nil
}

// FoldedRunning also lists tasks of an array that run in the same state as
// one, in the place of the first of them: it began when the first of them
// did, and has all of their GPUs and nodes.
func FoldedRunning(jobs []*apiv1.Job) []*apiv1.Job {
	return folded(jobs, func(j *apiv1.Job) (alike, bool) {
		return alike{array: j.GetArrayJobId(), state: j.GetState(), name: j.GetName(), partition: j.GetPartition()},
			j.GetArrayJobId() != 0 && !console.Waiting(j.GetState()) && !console.Terminal(j.GetState())
	}, together)
}

// together returns the one job that stands for tasks that run.
func together(group []*apiv1.Job) *apiv1.Job {
	all := proto.Clone(foldOf(group)).(*apiv1.Job)
	all.GpusWanted, all.Gpus = 0, nil
	var nodes, gangs []string
	for _, j := range group {
		if s := j.GetStarted(); s != nil && (all.Started == nil || s.AsTime().Before(all.GetStarted().AsTime())) {
			all.Started = s
		}
		all.GpusWanted += j.GetGpusWanted()
		all.Gpus = append(all.Gpus, j.GetGpus()...)
		if list := console.NodesOf(j); strings.ContainsAny(list, "[,") {
			gangs = append(gangs, list)
		} else if list != "" {
			nodes = append(nodes, list)
		}
	}
	slices.Sort(nodes)
	all.NodeList = strings.Trim(strings.Join(append(gangs, hostnames.FoldSet(slices.Compact(nodes))), ","), ",")
	return all
}

// foldOf returns the first of some tasks, standing for all of them.
func foldOf(group []*apiv1.Job) *apiv1.Job {
	var lists []string
	for _, j := range group {
		lists = append(lists, TasksOf(j))
	}
	tasks, err := UnionOfTasks(lists)
	if err != nil {
		return group[0] // no coordinator lists such tasks
	}
	j := proto.Clone(group[0]).(*apiv1.Job)
	j.ArrayTasks, j.ArrayCount = tasks.String(), uint32(tasks.Len())
	return j
}

// UnionOfTasks returns all tasks of some lists such as 3-9,12.
func UnionOfTasks(lists []string) (cluster.Tasks, error) {
	var runs []cluster.TaskRun
	for _, list := range lists {
		t, err := cluster.ParseTasks(list)
		if err != nil {
			return cluster.Tasks{}, err
		}
		runs = append(runs, t.Runs()...)
	}
	return cluster.NewTasks(runs)
}

package sbatch

import (
	"fmt"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
)

// finishRange decides whether the cluster chooses the number of nodes. It
// does if each has the same resources whatever their number; else the job has
// the least.
func (r *resolver) finishRange() {
	least, most := r.req.Nodes, min(r.req.MostNodes, cluster.MaxNodes)
	if r.req.MostNodes == 0 {
		return
	}
	why := ""
	switch _, all := r.gpus["gpus"]; {
	case r.own("nodes"): // it wins
		r.req.MostNodes = 0
		return
	case all && !r.own("gpus"):
		why = "--gpus is the total over all nodes"
	case len(r.gpus) == 0 && !r.own("gpus"):
		why = "the job asks for no GPUs"
	case r.tasksSaid:
		why = "--ntasks is the total over all nodes"
	case r.perGPU > 0:
		why = "--ntasks-per-gpu applies to all nodes together"
	case r.req.Array != nil:
		why = "it is an array"
	case r.req.WholeNodes:
		why = "they are exclusive"
	case len(r.named) > 0:
		why = "nodes are listed"
	case most > least:
		r.req.MostNodes = most
		r.remark("nodes", fmt.Sprintf("%d to %d nodes, as many as are free at the start", least, most))
		return
	}
	r.req.MostNodes = 0
	note := fmt.Sprintf("%d nodes", least)
	if least == 1 {
		note, r.req.Nodes = "one node", 0
	}
	if why != "" {
		note += ", since " + why
	}
	r.remark("nodes", note)
}

// own reports whether a flag of Berth's own was given.
func (r *resolver) own(name string) bool {
	return slices.ContainsFunc(r.req.Own, func(s Setting) bool { return s.Name == name })
}

// finishNodes decides how many tasks each of several nodes has. There the
// script runs once per task, as srun would run it.
func (r *resolver) finishNodes() {
	n := r.req.Nodes
	if n > 1 && r.tasksSaid && r.tasks < n {
		r.ignore("nodes", fmt.Sprintf("can't run %d processes on %d nodes, setting nnodes to %d", r.tasks, n, r.tasks), "ask for as many tasks (--ntasks)")
		n, r.req.Nodes = r.tasks, r.tasks
	}
	if n < 2 {
		r.req.Nodes = 0
		return
	}
	switch {
	case r.perGPU > 0:
		r.refuse("ntasks-per-gpu", fmt.Sprintf("does not divide over %d nodes", n), "--ntasks-per-node")
	case r.perNode > 0 && r.tasksSaid && r.tasks > r.perNode*n:
		r.refuse("ntasks", fmt.Sprintf("%d tasks are more than %d on each of %d nodes", r.tasks, r.perNode, n), fmt.Sprintf("--ntasks=%d, or leave it out", r.perNode*n))
	case r.tasksSaid && r.tasks%n != 0 || r.perNode > 0 && r.tasksSaid && r.tasks != r.perNode*n:
		r.uneven = r.tasks
	}
	said := r.perNode
	if r.perNode == 0 && r.tasksSaid {
		r.perNode = (r.tasks + n - 1) / n // each has the same number of cores
	}
	r.perNodeSaid, r.perNode = said, max(1, r.perNode)
	r.tasks, r.tasksSaid, r.req.Tasks = r.perNode, true, r.perNode
}

// each returns one node's part of a request for all of them.
func (r *resolver) each(name string, n int64) int64 {
	if r.req.Nodes < 2 || name != "gpus" {
		return n
	}
	if n%r.req.Nodes != 0 {
		r.refuse(name, fmt.Sprintf("%d GPUs cannot be divided evenly over %d nodes", n, r.req.Nodes), "--gpus-per-node")
	}
	return n / r.req.Nodes
}

package view

import (
	"fmt"
	"path/filepath"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/outputpath"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// OutputPath resolves the name of a job's output file as the agent does:
// Slurm's patterns for the first process of its first node, then relative to
// the job's directory.
func OutputPath(j *apiv1.Job, pattern string) (string, error) {
	names := outputNames(j)
	name := outputpath.Expand(pattern, &names)
	if name == "" {
		return "", fmt.Errorf("job %d has no output file", j.GetId())
	}
	if filepath.IsAbs(name) {
		return filepath.Clean(name), nil
	}
	return filepath.Join(string(j.GetSpec().GetDir()), name), nil
}

// PathText returns a job's output, error or input file, with Slurm's patterns
// filled in if that gives one name for all its nodes and processes.
func PathText(j *apiv1.Job, pattern string) string {
	here, there := outputNames(j), outputNames(j)
	there.Node, there.NodeRank, there.Rank = "there", 1, "1"
	path := outputpath.Expand(pattern, &here)
	if j.GetArrayCount() > 1 || path != outputpath.Expand(pattern, &there) {
		return pattern
	}
	return path
}

func outputNames(j *apiv1.Job) outputpath.Names {
	n := outputpath.Names{Job: cluster.JobID(j.GetId()), Array: cluster.JobID(j.GetArrayJobId()), Name: j.GetName(), User: j.GetUser(), Node: j.GetNode()}
	if n.Array != 0 && j.GetArrayCount() < 2 {
		n.Task = j.ArrayTaskId
	}
	return n
}

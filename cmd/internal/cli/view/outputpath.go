package view

import (
	"fmt"
	"path/filepath"

	"github.com/berth-scheduler/berth/cluster"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// OutputPath resolves the name of a job's output file as the agent does:
// Slurm's patterns for the first process of its first node, then relative to the
// job's directory.
func OutputPath(j *apiv1.Job, pattern string) (string, error) {
	name := expandPatterns(j, pattern)
	if name == "" {
		return "", fmt.Errorf("job %d has no output file", j.GetId())
	}
	if filepath.IsAbs(name) {
		return filepath.Clean(name), nil
	}
	return filepath.Join(string(j.GetSpec().GetDir()), name), nil
}

func expandPatterns(j *apiv1.Job, p string) string {
	n := cluster.OutputNames{Job: cluster.JobID(j.GetId()), Array: cluster.JobID(j.GetArrayJobId()), Name: j.GetName(), User: j.GetUser(), Node: j.GetNode()}
	if n.Array != 0 && j.GetArrayCount() < 2 {
		n.Task = j.ArrayTaskId
	}
	return cluster.OutputPath(p, &n)
}

package sbatch

import (
	"errors"
	"fmt"
	"testing"

	"github.com/berth-scheduler/berth/cluster"
)

func TestSlurmWords(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		code      cluster.Code
		msg, want string
	}{
		{cluster.CodeInvalid, `partition "nope" is not known; the partitions are gpu`, "Invalid partition name specified"},
		{cluster.CodeInvalid, "never satisfiable: node n77 is not registered", "Invalid node name specified"},
		{cluster.CodeInvalid, "never satisfiable: no node has the features nope; there are a100", "Invalid feature specification"},
		{cluster.CodeInvalid, "never satisfiable: 9 GPUs on one node; the largest is node n1 with 2", "Requested node configuration is not available"},
		{cluster.CodeInvalid, "in partition gpu: no node has 9 GPUs", "Requested node configuration is not available"},
		{cluster.CodeInvalid, `GPU type "b300": the cluster has T4`, "Requested node configuration is not available"},
		{cluster.CodeInvalid, "array: 200001 tasks, at most 100000 are allowed", "Invalid job array specification"},
		{cluster.CodeDenied, "reservation night is not for ann; it is for bob", "Requested reservation is invalid"},
		{cluster.CodeDenied, "nice: -5 would put the job before others", "Access/permission denied"},
		{cluster.CodeExhausted, "AssocMaxSubmitJobLimit: user 7 has 3 jobs", "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"},
		{cluster.CodeExhausted, "the coordinator's disk is almost full, nothing was done: 12 MiB", "Resource temporarily unavailable"},
		{cluster.CodeNotFound, "job 99 is not known: it was never submitted", "Invalid job id specified"},
		{cluster.CodeConflict, "job 12 has ended as FAILED and cannot be changed", "Job/step already completing or completed"},
		{cluster.CodeConflict, "job 12 runs", ""},
		{cluster.CodeUnavailable, "no coordinator answers", "Unable to contact slurm controller (connect failure)"},
		{cluster.CodeUnknown, "partition lost", ""},
		{cluster.CodeInvalid, "comment: is too long", ""},
	} {
		err := fmt.Errorf("submit: %w", cluster.Errorf(c.code, "%s", c.msg))
		if got := SlurmWords(err); got != c.want {
			t.Errorf("%s: %q, want %q", c.msg, got, c.want)
		}
	}
	if got := SlurmWords(errors.New("partition of the disk is full")); got != "" {
		t.Errorf("an error of no code: %q", got)
	}
}

package sbatch

import (
	"errors"
	"strings"

	"github.com/berth-scheduler/berth/cluster"
)

// words maps Berth's refusals to what Slurm 22.05 says: by code, 0 for any,
// and by message prefix, "" for any. The first match counts.
var words = []struct {
	code   cluster.Code
	begins string
	slurm  string
}{
	{cluster.CodeUnavailable, "", "Unable to contact slurm controller (connect failure)"},
	{0, "reservation", "Requested reservation is invalid"},
	{cluster.CodeDenied, "", "Access/permission denied"},
	{0, "no such job", "Invalid job id specified"},
	{0, "job ", "Invalid job id specified"},
	{0, "partition", "Invalid partition name specified"},
	{0, "never satisfiable: no node has the features", "Invalid feature specification"},
	{0, "never satisfiable", "Requested node configuration is not available"},
	{0, "in partition", "Requested node configuration is not available"},
	{0, "gpu type", "Requested node configuration is not available"},
	{0, "account", "Invalid account or account/partition combination specified"},
	{0, "qos", "Invalid qos specification"},
	{0, "constraint", "Invalid feature specification"},
	{0, "feature", "Invalid feature specification"},
	{0, "nodelist", "Invalid node name specified"},
	{0, "exclude", "Invalid node name specified"},
	{0, "node ", "Invalid node name specified"},
	{0, "nodes:", "Node count specification invalid"},
	{0, "array", "Invalid job array specification"},
	{0, "dependency", "Job dependency problem"},
	{0, "time", "Requested time limit is invalid (missing or exceeds some limit)"},
	{0, "deadline", "Requested time limit is invalid (missing or exceeds some limit)"},
	{cluster.CodeExhausted, "assoc", "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"},
	{cluster.CodeExhausted, "", "Resource temporarily unavailable"}, // as when Slurm has reached its most jobs
}

// SlurmWords returns what Slurm's commands say for a refusal of Berth's, for
// scripts that search for it; "" if Slurm has no words. An ended or running
// job that cannot be changed is not an unknown one: such a conflict has none.
func SlurmWords(err error) string {
	ce, ok := errors.AsType[*cluster.Error](err)
	if !ok || ce.Code == cluster.CodeUnknown || ce.Code == cluster.CodeInternal {
		return ""
	}
	msg := strings.ToLower(ce.Msg)
	if ce.Code == cluster.CodeConflict && strings.HasPrefix(msg, "job ") {
		if strings.Contains(msg, "has ended") {
			return "Job/step already completing or completed"
		}
		return ""
	}
	if strings.HasPrefix(msg, "never satisfiable: node ") && strings.Contains(msg, "not registered") {
		return "Invalid node name specified"
	}
	for _, w := range words {
		if (w.code == 0 || w.code == ce.Code) && strings.HasPrefix(msg, w.begins) {
			return w.slurm
		}
	}
	return ""
}

// InSlurmWords formats a refusal: Slurm's words, and Berth's reason on the next line.
func InSlurmWords(err error) string {
	if w := SlurmWords(err); w != "" {
		return w + "\n" + err.Error()
	}
	return err.Error()
}

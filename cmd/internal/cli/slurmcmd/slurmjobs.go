package slurmcmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// slurmFault is what scontrol 22.05 says of it.
func slurmFault(r *apiv1.ControlResult) string {
	switch r.GetFault() {
	case "NOT_FOUND":
		return "Invalid job id specified"
	case "DENIED":
		return "Access/permission denied"
	}
	switch {
	case strings.Contains(r.GetMessage(), "waits already"):
		return "Job is pending execution"
	case strings.Contains(r.GetMessage(), "has ended"):
		return "Job has already finished"
	}
	return r.GetMessage()
}

// scontrolActions are the words of scontrol that act on jobs.
var scontrolActions = map[string]apiv1.JobAction{
	"hold": apiv1.JobAction_JOB_ACTION_HOLD, "uhold": apiv1.JobAction_JOB_ACTION_HOLD, "holdu": apiv1.JobAction_JOB_ACTION_HOLD,
	"release": apiv1.JobAction_JOB_ACTION_RELEASE, "requeue": apiv1.JobAction_JOB_ACTION_REQUEUE, "requeuehold": apiv1.JobAction_JOB_ACTION_REQUEUE_HOLD,
}

// runScontrolJobs acts on jobs as scontrol does: silently, with one line for
// each that could not be.
func runScontrolJobs(ctx context.Context, e *console.Env, c *client.Client, word string, args []string) error {
	if len(args) == 0 {
		return bare("too few arguments for keyword:" + word)
	}
	action, ids := scontrolActions[word], []uint64(nil)
	for _, a := range args {
		list, err := jobNumbers(strings.TrimPrefix(strings.ToLower(a), "jobid="), "%s")
		if err != nil {
			return bare(fmt.Sprintf("Invalid job id specified for job %s\nslurm_suspend error: Invalid job id specified", a))
		}
		ids = append(ids, list...)
	}
	var faults []string
	for part := range slices.Chunk(ids, console.MaxIDs) {
		results, err := client.Control(ctx, e, c, &apiv1.ControlJobsRequest{Ids: part, Action: action, AsUser: word == "uhold" || word == "holdu"})
		if err != nil {
			return console.UnknownChange(err, "Asking again is safe.")
		}
		for _, r := range results {
			if r.GetFault() != "" {
				fault := slurmFault(r)
				faults = append(faults, fmt.Sprintf("%s for job %d", fault, r.GetId()))
				if word != "requeue" && word != "requeuehold" {
					faults = append(faults, "slurm_suspend error: "+fault)
				}
			}
		}
	}
	if len(faults) > 0 {
		return bare(strings.Join(faults, "\n"))
	}
	return nil
}

var errNoAction = errors.New("name a command: show, hold, uhold, release, requeue, requeuehold, update, ping, version")

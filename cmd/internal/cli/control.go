package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

func newHoldCmd(e *Env, c *client) *cobra.Command {
	var asUser bool
	cmd := &cobra.Command{
		Use:   "hold JOB…",
		Short: "Keep jobs from starting",
		Long: "Keep jobs from starting until they are released. What runs goes on, and is held once it waits\n" +
			"again. What an administrator holds, only administrators release, unless with --as-user.",
		Example: "  berth hold 12\n  berth hold 12,14 20-30",
		Args:    someArgs("job id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runControl(cmd.Context(), e, c, args, apiv1.JobAction_JOB_ACTION_HOLD, asUser)
		},
	}
	cmd.Flags().BoolVar(&asUser, "as-user", false, "the owner may release it, even if an administrator holds it")
	return cmd
}

func newReleaseCmd(e *Env, c *client) *cobra.Command {
	return &cobra.Command{
		Use:     "release JOB…",
		Short:   "Let held jobs start again",
		Example: "  berth release 12\n  berth release 12,14 20-30",
		Args:    someArgs("job id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runControl(cmd.Context(), e, c, args, apiv1.JobAction_JOB_ACTION_RELEASE, false)
		},
	}
}

func newRequeueCmd(e *Env, c *client) *cobra.Command {
	var hold bool
	cmd := &cobra.Command{
		Use:   "requeue JOB…",
		Short: "End running jobs and let them wait again",
		Long: "End running jobs and let them wait again under their ids. A job with a checkpoint hook saves\n" +
			"its state first; any other gets TERM, and KILL after a grace, and begins anew.",
		Example: "  berth requeue 12\n  berth requeue --hold 12",
		Args:    someArgs("job id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			action := apiv1.JobAction_JOB_ACTION_REQUEUE
			if hold {
				action = apiv1.JobAction_JOB_ACTION_REQUEUE_HOLD
			}
			return runControl(cmd.Context(), e, c, args, action, false)
		},
	}
	cmd.Flags().BoolVar(&hold, "hold", false, "hold them then")
	return cmd
}

// done says what became of a job.
var done = map[apiv1.JobAction]string{
	apiv1.JobAction_JOB_ACTION_HOLD: "held", apiv1.JobAction_JOB_ACTION_RELEASE: "released",
	apiv1.JobAction_JOB_ACTION_REQUEUE: "will wait again", apiv1.JobAction_JOB_ACTION_REQUEUE_HOLD: "will wait again, held",
}

// control asks for an action on up to 1,000 jobs.
func control(ctx context.Context, e *Env, c *client, ids []uint64, action apiv1.JobAction, asUser bool) ([]*apiv1.ControlResult, error) {
	req := &apiv1.ControlJobsRequest{RequestId: e.RequestID(), Ids: ids, Action: action, AsUser: asUser}
	var resp *apiv1.ControlJobsResponse
	err := c.jobs(ctx, changes, func(ctx context.Context, s apiv1.JobServiceClient) (err error) {
		resp, err = s.ControlJobs(ctx, req)
		return err
	})
	return resp.GetResults(), err
}

// runControl prints a line for each id in the order given, with exit codes as
// those of cancel.
func runControl(ctx context.Context, e *Env, c *client, args []string, action apiv1.JobAction, asUser bool) error {
	ids, err := parseIDs(args)
	if err != nil {
		return err
	}
	results, err := control(ctx, e, c, ids, action, asUser)
	if err != nil {
		return unknownChange(err, "Look with: berth show "+idRanges(ids))
	}
	code := ExitDone
	for _, r := range results {
		switch r.GetFault() {
		case "":
			if e.printf("job %d: %s\n", r.GetId(), done[action]); r.GetMessage() != "" {
				e.warnf("job %d: %s", r.GetId(), escape(r.GetMessage()))
			}
			continue
		case "NOT_FOUND":
			e.warnf("job %d: no such job", r.GetId())
			if code == ExitDone {
				code = ExitNotFound
			}
			continue
		}
		text := escape(r.GetMessage())
		if name := fmt.Sprintf("job %d ", r.GetId()); !strings.HasPrefix(text, name) {
			text = strings.TrimSpace(name) + ": " + text
		}
		e.warnf("%s", text)
		code = ExitFailed
	}
	if code != ExitDone {
		return &ExitError{Code: code}
	}
	return nil
}

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
func runScontrolJobs(ctx context.Context, e *Env, c *client, word string, args []string) error {
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
	for part := range slices.Chunk(ids, maxIDs) {
		results, err := control(ctx, e, c, part, action, word == "uhold" || word == "holdu")
		if err != nil {
			return unknownChange(err, "Asking again is safe.")
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

package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/cluster"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// maxCount is how many jobs one request may hold.
const maxCount = 1000

// maxRequestBytes is a little less than what coordinators accept.
const maxRequestBytes = 4<<20 - 4<<10

type submitOptions struct {
	specArgs
	count     string
	requestID string
	parsable  bool
	wait      bool
}

func newSubmitCmd(e *Env, c *client) *cobra.Command {
	var o submitOptions
	cmd := &cobra.Command{
		Use:   "submit [flags] (SCRIPT [ARG…] | FILE.yaml | -- COMMAND [ARG…])",
		Short: "Submit a job",
		Long: "Submit a job. Without --gpus it gets one GPU when anything about a GPU or a model is\n" +
			"asked for, and none otherwise. What is not said of memory and time is predicted.\n" +
			"A batch script's #SBATCH and #BERTH lines are read; the options of sbatch are taken beside\n" +
			"those below.",
		Example: "  berth submit --gpus 1 --gpu-mem 12G --time 2h -- python train.py --epochs 3\n" +
			"  berth submit --onnx resnet50.onnx --batch 64 --steps 20000 -- python train.py\n" +
			"  berth submit train.sh --epochs 3\n" +
			"  berth submit job.yaml\n" +
			"  id=$(berth submit --parsable -- ./prepare.sh)",
		RunE: func(cmd *cobra.Command, args []string) error {
			args, dash, err := afterSpec(cmd, args)
			if err != nil {
				return err
			}
			return runSubmit(cmd.Context(), e, c, &o, args, dash)
		},
	}
	o.register(cmd)
	fs := cmd.Flags()
	fs.StringVar(&o.count, "count", "1", "submit this `NUMBER` of equal jobs at once, 1 to 1000; all or none")
	fs.BoolVar(&o.parsable, "parsable", false, "print the job id alone")
	fs.BoolVarP(&o.wait, "wait", "W", false, "wait for the end and exit with the job's exit code")
	registerSlurm(fs, &o.slurm)
	fs.SetInterspersed(false) // what follows a script is the script's
	fs.StringVar(&o.requestID, "request-id", "", "`ID` of 16 to 64 characters; the same id never submits twice")
	return cmd
}

func runSubmit(ctx context.Context, e *Env, c *client, o *submitOptions, args []string, dash int) error {
	var count int64
	if err := whole("number of jobs", maxCount, func(*request) *int64 { return &count })(nil, o.count); err != nil {
		return Usagef("--count: %w", err)
	}
	if o.requestID == "" {
		o.requestID = e.RequestID()
	} else if err := checkRequestID(o.requestID); err != nil {
		return err
	}
	if err := o.read(e, args, dash); err != nil {
		return err
	}
	if w := secretsWarning(o.spec.Env, o.spec.Command); w != "" {
		e.warnf("warning: %s", escape(w))
	}
	if o.slurm.typed && o.spec.GPUType == o.slurm.asked.GPUType {
		var err error
		if o.spec.GPUType, err = slurmType(ctx, c, o.spec.GPUType); err != nil {
			return err
		}
	}
	if a := o.slurm.asked; a != nil && a.Test {
		return testSubmit(ctx, e, c, &o.spec)
	}
	req := &apiv1.SubmitJobsRequest{RequestId: o.requestID}
	for range count {
		req.Jobs = append(req.Jobs, conv.SpecToAPI(&o.spec))
	}
	if n := proto.Size(req); n > maxRequestBytes {
		return Usagef("--count %d: %d KiB of arguments and environment in all, at most %d may be in one request; submit fewer at once, or pass less with --export",
			count, n>>10, maxRequestBytes>>10)
	}
	var resp *apiv1.SubmitJobsResponse
	err := c.jobs(ctx, changes, func(ctx context.Context, s apiv1.JobServiceClient) (err error) {
		resp, err = s.SubmitJobs(ctx, req)
		return err
	})
	if err != nil {
		return submitError(err, o.requestID)
	}
	for _, w := range resp.GetWarnings() {
		e.warnf("warning: %s", escape(w))
	}
	parsable := o.parsable || o.slurm.asked != nil && o.slurm.asked.Parsable
	if err := printSubmitted(e, resp.GetIds(), parsable); err != nil {
		return err
	}
	if a := o.slurm.asked; o.wait || a != nil && a.Wait {
		return waitJobs(ctx, e, c, resp.GetIds(), 0)
	}
	return nil
}

// afterSpec reads the flags that follow a spec file: only a script's
// arguments are its own.
func afterSpec(cmd *cobra.Command, args []string) (rest []string, dash int, err error) {
	dash = cmd.ArgsLenAtDash()
	if dash >= 0 || len(args) < 2 || isScript(args[0]) {
		return args, dash, nil
	}
	fs := cmd.Flags()
	fs.SetInterspersed(true)
	if err := fs.Parse(args[1:]); err != nil {
		return nil, 0, flagError(cmd, err)
	}
	if dash = fs.ArgsLenAtDash(); dash >= 0 {
		dash++
	}
	return append(args[:1:1], fs.Args()...), dash, nil
}

// submitError tells how to learn what became of a submit whose outcome is not
// known.
func submitError(err error, requestID string) error {
	var ce *cluster.Error
	if errors.As(err, &ce) && ce.Code == cluster.CodeUnknown {
		return &cluster.Error{Code: ce.Code, Msg: fmt.Sprintf(
			"%s\nThe job may or may not have been submitted. Its request id is %s.\n"+
				"Run the same command again with --request-id %s: it submits the job if that did not happen yet, and prints its id either way.",
			ce.Msg, requestID, requestID)}
	}
	return err
}

func checkRequestID(s string) error {
	if len(s) < 16 || len(s) > 64 {
		return Usagef("--request-id %s: want 16 to 64 characters", shortQuote(s))
	}
	for _, b := range []byte(s) {
		if b <= ' ' || b >= 0x7f {
			return Usagef("--request-id %s: want printable ASCII characters without spaces", shortQuote(s))
		}
	}
	return nil
}

// printSubmitted writes the ids out at once: what follows may fail, and a job
// whose id nobody saw would be lost to its owner.
func printSubmitted(e *Env, ids []uint64, parsable bool) error {
	switch {
	case parsable:
		for _, id := range ids {
			e.printf("%d\n", id)
		}
	case len(ids) == 1:
		e.printf("Submitted batch job %d\n", ids[0])
	default:
		e.printf("Submitted %d batch jobs %s\n", len(ids), idRanges(ids))
	}
	if err := e.flush(); err != nil {
		return &ExitError{ExitFailed, fmt.Errorf("submitted as %s, but: %w", idRanges(ids), err)}
	}
	return nil
}

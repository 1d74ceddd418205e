package jobcmd

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/batch"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/jobspec"
	"github.com/berth-scheduler/berth/cmd/internal/cli/modelcmd"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

// maxCount is how many jobs one request may hold.
const maxCount = 1000

// maxRequestBytes is slightly less than what coordinators accept.
const maxRequestBytes = 4<<20 - 4<<10

// SubmitOptions are the flags of submit.
type SubmitOptions struct {
	jobspec.SpecArgs
	Count string
	// RequestID identifies the submit; "" generates one.
	RequestID string
	parsable  bool
	wait      bool
	// Study requires a study.
	Study bool
	// Prepare changes what was read before it is submitted; nil changes nothing.
	Prepare func(*cluster.Spec) error
}

// NewSubmitCmd returns the command submit.
func NewSubmitCmd(e *console.Env, c *client.Client) *cobra.Command {
	var o SubmitOptions
	var helpAll bool
	cmd := &cobra.Command{
		Use:   "submit [flags] (SCRIPT [ARG…] | FILE.yaml | -- COMMAND [ARG…])",
		Short: "Submit a job",
		Long: "Submit a job. Without --gpus it gets one GPU if any option concerns a GPU or a model, and none\n" +
			"otherwise. Memory and time that are not given are predicted. #SBATCH and #BERTH lines in a batch\n" +
			"script are read; sbatch's options are accepted besides those below.",
		Example: "  berth submit --gpus 1 --gpu-mem 12G --time 2h -- python train.py --epochs 3\n" +
			"  berth submit --onnx resnet50.onnx --batch 64 --steps 20000 -- python train.py\n" +
			"  berth submit train.sh --epochs 3\n" +
			"  berth submit job.yaml\n" +
			"  id=$(berth submit --parsable -- ./prepare.sh)",
		RunE: func(cmd *cobra.Command, args []string) error {
			if helpAll {
				return cmd.Help()
			}
			args, dash, err := afterSpec(cmd, args)
			if err != nil {
				return err
			}
			return RunSubmit(cmd.Context(), e, c, &o, args, dash)
		},
	}
	o.Register(cmd)
	fs := cmd.Flags()
	fs.StringVar(&o.Count, "count", "1", "submit `NUMBER` identical jobs at once, 1 to 1000; all or none")
	fs.BoolVar(&o.parsable, "parsable", false, "print only the job id")
	fs.BoolVarP(&o.wait, "wait", "W", false, "wait until the job ends and exit with its exit code")
	jobspec.RegisterSlurm(fs, &o.Slurm)
	fs.SetInterspersed(false) // what follows a script belongs to the script
	fs.StringVar(&o.RequestID, "request-id", "", "`ID` of 16 to 64 characters; the same id is never submitted twice")
	helpBySections(e, cmd, &helpAll)
	return cmd
}

// RunSubmit submits what o and args describe; dash is the index of "--" in args, or -1.
func RunSubmit(ctx context.Context, e *console.Env, c *client.Client, o *SubmitOptions, args []string, dash int) error {
	var count int64
	if err := jobspec.Whole("number of jobs", maxCount, func(*jobspec.Request) *int64 { return &count })(nil, o.Count); err != nil {
		return console.Usagef("--count: %w%s", err, moreThanOneRequest(o.Count))
	}
	if o.RequestID == "" {
		o.RequestID = e.RequestID()
	} else if err := checkRequestID(o.RequestID); err != nil {
		return err
	}
	if err := o.read(e, args, dash); err != nil {
		return err
	}
	if w := batch.SecretsWarning(o.Spec.Env, o.Spec.Command); w != "" {
		e.Warnf("warning: %s", console.Escape(w))
	}
	if err := o.findType(ctx, c); err != nil {
		return err
	}
	if a := o.Slurm.Asked; a != nil && a.Test {
		return modelcmd.TestSubmit(ctx, e, c, &o.Spec)
	}
	req := &apiv1.SubmitJobsRequest{RequestId: o.RequestID}
	for range count {
		req.Jobs = append(req.Jobs, apiconv.SpecToAPI(&o.Spec))
	}
	if n := proto.Size(req); n > maxRequestBytes {
		return console.Usagef("--count %d: %d KiB of arguments and environment in total, at most %d allowed per request; submit fewer at once, or pass less with --export",
			count, n>>10, maxRequestBytes>>10)
	}
	said := batch.OutputFolders(&o.Spec, e.User(), e.Prog != "")
	resp, err := client.SubmitJobs.Ask(ctx, c, client.Changes, req)
	if err != nil {
		return submitError(err, o.RequestID)
	}
	for _, w := range resp.GetWarnings() {
		e.Warnf("warning: %s", console.Escape(w))
	}
	o.say(e, append(resp.GetPromises(), said...))
	if err := o.printSubmitted(e, resp.GetIds()); err != nil {
		return err
	}
	if a := o.Slurm.Asked; o.wait || a != nil && a.Wait {
		w := &waiter{env: e, c: c}
		for _, id := range resp.GetIds() {
			w.jobs = append(w.jobs, client.JobRef{ID: id})
		}
		return w.run(ctx, 0)
	}
	return nil
}

// read reads the description and applies the requested changes.
func (o *SubmitOptions) read(e *console.Env, args []string, dash int) error {
	if err := o.Read(e, args, dash); err != nil {
		return err
	}
	if o.Study && !o.Spec.Study.Searches() {
		return console.Usagef("the study is missing; it is a key of the spec file: berth study create --help shows one")
	}
	if o.Prepare != nil {
		return o.Prepare(&o.Spec)
	}
	return nil
}

// findType resolves a typed GPU type.
func (o *SubmitOptions) findType(ctx context.Context, c *client.Client) (err error) {
	find := client.GPUType
	if o.Slurm.Typed && o.Spec.GPUType == o.Slurm.Asked.GPUType {
		find = client.SlurmType
	}
	o.Spec.GPUType, err = find(ctx, c, o.Spec.GPUType)
	return err
}

// say reports what a submit found around it, unless the user asked for silence.
func (o *SubmitOptions) say(e *console.Env, said []string) {
	for _, s := range said {
		if !o.Slurm.Quiet() {
			e.Warnf("%s", console.Escape(s))
		}
	}
}

// moreThanOneRequest says how to submit more jobs than fit into one request,
// which is carried out as a whole or not at all.
func moreThanOneRequest(count string) string {
	n, err := strconv.ParseUint(count, 10, 32)
	if err != nil || n <= maxCount {
		return ""
	}
	return fmt.Sprintf("; none or all of them are submitted; --array 1-%d makes one job with as many tasks", n)
}

// afterSpec reads the flags that follow a spec file: only a script has
// arguments of its own.
func afterSpec(cmd *cobra.Command, args []string) (rest []string, dash int, err error) {
	dash = cmd.ArgsLenAtDash()
	if dash >= 0 || len(args) < 2 || jobspec.IsScript(args[0]) {
		return args, dash, nil
	}
	fs := cmd.Flags()
	fs.SetInterspersed(true)
	if err := fs.Parse(args[1:]); err != nil {
		return nil, 0, console.FlagError(cmd, err)
	}
	if dash = fs.ArgsLenAtDash(); dash >= 0 {
		dash++
	}
	return append(args[:1:1], fs.Args()...), dash, nil
}

// submitError says how to find out what became of a submit of unknown outcome.
func submitError(err error, requestID string) error {
	var ce *cluster.Error
	if errors.As(err, &ce) && ce.Code == cluster.CodeUnknown {
		return &cluster.Error{Code: ce.Code, Msg: fmt.Sprintf(
			"%s\n"+
				"The job may or may not have been submitted. Its request id is %s.\n"+
				"Run the same command again with --request-id %s: it submits the job unless that has happened, and prints its id either way.",
			ce.Msg, requestID, requestID)}
	}
	return err
}

func checkRequestID(s string) error {
	if len(s) < 16 || len(s) > 64 {
		return console.Usagef("--request-id %s: want 16 to 64 characters", console.ShortQuote(s))
	}
	for _, b := range []byte(s) {
		if b <= ' ' || b >= 0x7f {
			return console.Usagef("--request-id %s: want printable ASCII characters without spaces", console.ShortQuote(s))
		}
	}
	return nil
}

// printSubmitted flushes the ids at once: what follows may fail, and a job
// whose id nobody saw would be lost to its owner. It names the cluster if the
// user did, as sbatch does.
func (o *SubmitOptions) printSubmitted(e *console.Env, ids []uint64) error {
	parsable, after, on := o.parsable, "", ""
	if a := o.Slurm.Asked; a != nil {
		parsable = parsable || a.Parsable
		if a.Cluster != "" {
			after, on = ";"+a.Cluster, " on cluster "+a.Cluster
		}
	}
	switch {
	case parsable:
		for _, id := range ids {
			e.Printf("%d%s\n", id, after)
		}
	case len(ids) == 1 && o.Spec.Study.Searches():
		e.Printf("Submitted study %d%s of %s; berth study show %d shows their progress\n", ids[0], on, console.Plural(o.Spec.Array.Tasks.Len(), "trial", "trials"), ids[0])
	case len(ids) == 1 && o.Spec.Service != nil:
		e.Printf("Submitted service %s%s as job %d; berth service show %s shows its replicas\n", o.Spec.Service.Name, on, ids[0], o.Spec.Service.Name)
	case len(ids) == 1:
		e.Printf("Submitted batch job %d%s\n", ids[0], on)
	default:
		e.Printf("Submitted %d batch jobs %s\n", len(ids), console.IDRanges(ids))
	}
	if err := e.Flush(); err != nil {
		return &console.ExitError{Code: console.ExitFailed, Err: fmt.Errorf("submitted as %s, but: %w", console.IDRanges(ids), err)}
	}
	return nil
}

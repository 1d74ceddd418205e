package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cluster"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

type logsOptions struct {
	follow, stderr, path bool
}

func newLogsCmd(e *Env, c *client) *cobra.Command {
	var o logsOptions
	cmd := &cobra.Command{
		Use:   "logs JOB",
		Short: "Print what a job has written",
		Long: "Print the output file of a job. The file is read here, with your rights, so this works on\n" +
			"the node of the job and wherever its directory is shared.",
		Example: "  berth logs 12\n  berth logs -f 12\n  tail -n 20 \"$(berth logs --path 12)\"",
		Args:    oneArg("job id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runLogs(cmd.Context(), e, c, o, args[0])
		},
	}
	fs := cmd.Flags()
	fs.BoolVarP(&o.follow, "follow", "f", false, "go on until the job has ended")
	fs.BoolVarP(&o.stderr, "stderr", "e", false, "the file of standard error instead")
	fs.BoolVar(&o.path, "path", false, "print the name of the file only")
	return cmd
}

func runLogs(ctx context.Context, e *Env, c *client, o logsOptions, arg string) error {
	id, err := parseID(arg)
	if err != nil {
		return err
	}
	job, err := c.getJob(ctx, id)
	if err != nil {
		return err
	}
	if job.GetSpec() == nil || len(job.GetSpec().GetDir()) == 0 {
		return cluster.Errorf(cluster.CodeDenied, "job %d: only its owner and administrators may see where its output goes", id)
	}
	if job.GetNode() == "" {
		if job, err = awaitStart(ctx, e, c, o, job); err != nil {
			return err
		}
	}
	pattern := string(job.GetSpec().GetStdout())
	if o.stderr && len(job.GetSpec().GetStderr()) > 0 {
		pattern = string(job.GetSpec().GetStderr())
	}
	name, err := outputPath(job, pattern)
	if err != nil {
		return err
	}
	if o.path {
		e.printf("%s\n", name)
		return nil
	}
	l := &logReader{env: e, c: c, job: job, name: name}
	defer l.close()
	if o.follow {
		return l.followFile(ctx)
	}
	if err := l.open(); err != nil {
		return l.explain(err)
	}
	return l.copy()
}

// awaitStart returns the job once it has a node; without --follow it says why
// there is nothing to read.
func awaitStart(ctx context.Context, e *Env, c *client, o logsOptions, job *apiv1.Job) (*apiv1.Job, error) {
	if terminal(job.GetState()) {
		return nil, cluster.Errorf(cluster.CodeConflict, "job %d never started (%s), so it wrote nothing", job.GetId(), job.GetState())
	}
	if !o.follow {
		return nil, cluster.Errorf(cluster.CodeConflict, "job %d has not started (%s): berth why %d says why; berth logs -f waits for it",
			job.GetId(), job.GetState(), job.GetId())
	}
	e.warnf("job %d has not started (%s); waiting", job.GetId(), job.GetState())
	err := c.watchJobs(ctx, []uint64{job.GetId()}, func(news []*apiv1.Job) bool {
		for _, j := range news {
			if j.GetId() == job.GetId() && (j.GetNode() != "" || terminal(j.GetState())) {
				return true
			}
		}
		return false
	})
	if err != nil {
		return nil, err
	}
	if job, err = c.getJob(ctx, job.GetId()); err != nil {
		return nil, err
	}
	if job.GetNode() == "" && terminal(job.GetState()) {
		o.follow = false
		return awaitStart(ctx, e, c, o, job)
	}
	return job, nil
}

// logReader copies one output file to standard output.
type logReader struct {
	env  *Env
	c    *client
	job  *apiv1.Job
	name string
	file *os.File
}

func (l *logReader) open() (err error) {
	if l.file == nil {
		l.file, err = openRegular(l.name)
	}
	return err
}

func (l *logReader) close() {
	if l.file != nil {
		l.file.Close()
	}
}

// copy writes what is there and not yet written.
func (l *logReader) copy() error {
	if _, err := io.Copy(l.env.out, l.file); err != nil {
		if ferr := l.env.flush(); ferr != nil {
			return ferr
		}
		return fmt.Errorf("read %s: %w", l.name, err)
	}
	return l.env.flush()
}

// How often a followed file and its job are looked at.
const (
	fileEvery = 200 * time.Millisecond
	jobEvery  = 2 * time.Second
)

// followFile copies until the job has ended. The job is asked first and the
// file read after, so that its last lines are not missed.
func (l *logReader) followFile(ctx context.Context) error {
	asked := time.Time{}
	for {
		ended := false
		if now := time.Now(); now.Sub(asked) >= jobEvery {
			j, err := l.c.getJob(ctx, l.job.GetId())
			if err != nil {
				return err
			}
			l.job, asked, ended = j, now, terminal(j.GetState())
		}
		err := l.open()
		switch {
		case err == nil:
			if err := l.copy(); err != nil {
				return err
			}
		case ended || !errors.Is(err, fs.ErrNotExist):
			return l.explain(err)
		case l.elsewhere() && time.Since(l.job.GetStarted().AsTime()) > jobEvery && l.job.GetStarted() != nil:
			return l.explain(err)
		}
		if ended {
			return nil
		}
		if !sleep(ctx, fileEvery) {
			return context.Cause(ctx)
		}
	}
}

// elsewhere tells whether the job's node has another name than this machine.
func (l *logReader) elsewhere() bool {
	host, err := l.env.Hostname()
	return err == nil && host != l.job.GetNode()
}

// explain says what to do about a file that cannot be read.
func (l *logReader) explain(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist) && l.elsewhere():
		return cluster.Errorf(cluster.CodeNotFound, "job %d ran on node %s, and its output file %s is not on this machine; read it there, or give jobs a directory that all machines share",
			l.job.GetId(), l.job.GetNode(), l.name)
	case errors.Is(err, fs.ErrNotExist):
		return cluster.Errorf(cluster.CodeNotFound, "job %d: its output file %s is not there (yet); it may have been removed", l.job.GetId(), l.name)
	default:
		return fmt.Errorf("job %d: its output: %w", l.job.GetId(), err)
	}
}

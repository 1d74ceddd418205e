package sruncmd

import (
	"context"
	_ "embed" // of the script
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/jobspec"
	"github.com/berth-scheduler/berth/cmd/internal/units"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

//go:embed notebook.sh
var notebookScript string

type notebookOptions struct {
	lab     bool
	jupyter string
	idle    string
	port    int
}

// NewNotebookCmd returns the command notebook.
func NewNotebookCmd(e *console.Env, c *client.Client) *cobra.Command {
	args := &jobspec.SpecArgs{}
	var o notebookOptions
	cmd := &cobra.Command{
		Use:   "notebook [flags]",
		Short: "Start Jupyter in a share of a GPU, and say how to reach it",
		Long: "Submit a job that runs Jupyter, wait until it answers, and print the tunnel to open on your own\n" +
			"machine and the address for its browser. What is asked for is said as for berth submit; the\n" +
			"environment is this shell's, or the image's with --image. The token in the address is made in\n" +
			"the job and kept in a file that only you can read; who has it can run anything as you.\n" +
			"The notebook ends when nothing was done in it for --idle-limit, and with berth cancel.",
		Example: "  berth notebook --gpus 1 --gpu-mem 8G --time 8h\n  berth notebook --lab --gpus 1 --idle-limit 30m",
		Args:    console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runNotebook(cmd.Context(), e, c, args, &o)
		},
	}
	args.Register(cmd)
	cmd.Args = console.NoArgs
	fs := cmd.Flags()
	fs.BoolVar(&o.lab, "lab", false, "JupyterLab instead of the classic notebook")
	fs.StringVar(&o.jupyter, "jupyter", "", "run this `PROGRAM`, a jupyter that is not in the PATH")
	fs.StringVar(&o.idle, "idle-limit", "1h", "end it after so much `TIME` in which nothing is done in it; 0 never does")
	fs.IntVar(&o.port, "local-port", 8888, "the `PORT` of your own machine that the tunnel begins at")
	jobspec.RegisterSlurm(fs, &args.Slurm)
	return cmd
}

func (o *notebookOptions) kind() string {
	if o.lab {
		return "lab"
	}
	return "notebook"
}

// script is what the job runs.
func (o *notebookOptions) script() (string, error) {
	idle := time.Duration(0)
	if o.idle != "0" {
		d, err := units.ParseDuration(o.idle)
		if err != nil || d < time.Second {
			return "", console.Usagef("--idle-limit %s: want a time such as 30 (minutes) or 2h, or 0", console.ShortQuote(o.idle))
		}
		idle = d
	}
	if o.port < 1 || o.port > 65535 {
		return "", console.Usagef("--local-port %d: want 1 to 65535", o.port)
	}
	quoted := "'" + strings.ReplaceAll(o.jupyter, "'", `'\''`) + "'"
	return strings.NewReplacer("@JUPYTER@", quoted, "@KIND@", o.kind(), "@IDLE@", strconv.Itoa(int(idle/time.Second))).Replace(notebookScript), nil
}

// there says before anything waits that the job would find no Jupyter: it has
// this environment, if no image.
func (o *notebookOptions) there(args *jobspec.SpecArgs) error {
	names := []string{"jupyter-" + o.kind(), "jupyter"}
	if o.jupyter != "" {
		names = []string{o.jupyter}
	}
	for _, n := range names {
		if _, err := exec.LookPath(n); err == nil || args.Spec.Image != "" {
			return nil
		}
	}
	if o.jupyter != "" {
		return console.Usagef("--jupyter %s: there is no such program here", console.ShortQuote(o.jupyter))
	}
	return &console.ExitError{Code: console.ExitFailed, Err: fmt.Errorf(
		"no Jupyter: neither jupyter-%s nor jupyter is in your PATH, which the job would have\n"+
			"Load its module or activate its environment first, say where it is with --jupyter, or name an image that has it with --image", o.kind())}
}

func runNotebook(ctx context.Context, e *console.Env, c *client.Client, args *jobspec.SpecArgs, o *notebookOptions) error {
	script, err := o.script()
	if err != nil {
		return err
	}
	if err := args.FromSession(e, o.kind(), script); err != nil {
		return err
	}
	if err := o.there(args); err != nil {
		return err
	}
	a, err := sendSession(ctx, e, c, args)
	if err != nil {
		return err
	}
	e.Warnf("job %d is submitted", a.id)
	err = a.await(ctx, func() { e.Warnf("waiting for job %d to start (berth why %[1]d says why)", a.id) })
	if errors.Is(err, errRevoked) {
		return a.noNotebook(o)
	}
	if err != nil {
		return err
	}
	port, token, err := a.address(ctx)
	if err != nil {
		return err
	}
	if port == "" {
		return a.noNotebook(o)
	}
	host, err := e.Hostname()
	if err != nil {
		host = "LOGIN-HOST"
	}
	user := e.Getenv("USER")
	if user == "" {
		user = e.User()
	}
	node, path := a.job.GetNode(), "tree"
	if o.lab {
		path = "lab"
	}
	e.Printf("Jupyter runs in job %d on %s; berth cancel %[1]d ends it.\n\nOn your own machine:\n  ssh -N -L %[3]d:%[2]s:%[4]s %[5]s@%[6]s\n\nThen, in its browser:\n  http://localhost:%[3]d/%[7]s?token=%[8]s\n",
		a.id, node, o.port, port, console.Escape(user), console.Escape(host), path, token)
	return nil
}

// address waits until Jupyter answers; the port is "" when it never will.
func (a *allocation) address(ctx context.Context) (port, token string, err error) {
	x := &apiv1.AttachExec{}
	for _, w := range []string{"/bin/sh", "-c", `d=/tmp/.berth-notebook-$BERTH_JOB_ID-$BERTH_RESTART_COUNT; n=0
while [ ! -e "$d/ready.py" ] && [ $n -lt 100 ]; do n=$((n+1)); sleep 0.1; done
p=python3; command -v $p >/dev/null || p=python; exec $p "$d/ready.py"`} {
		x.Command = append(x.Command, []byte(w))
	}
	s, err := a.c.OpenSession(ctx, client.SessionConfig{}, &apiv1.AttachOpen{Job: a.id, What: &apiv1.AttachOpen_Exec{Exec: x}})
	var ce *cluster.Error
	if errors.As(err, &ce) && ce.Code == cluster.CodeConflict {
		return "", "", nil // it has ended
	}
	if err != nil {
		return "", "", err
	}
	defer s.Close()
	var out []byte
	for {
		m, err := s.Recv()
		if err != nil {
			return "", "", err
		}
		out = append(out, m.GetStdout()...)
		if end := m.GetEnded(); end != nil {
			if words := strings.Fields(string(out)); end.GetCode() == 0 && len(words) == 2 {
				return words[0], words[1], nil
			}
			return "", "", nil
		}
	}
}

// noNotebook says why there is none.
func (a *allocation) noNotebook(o *notebookOptions) error {
	ctx, done := context.WithTimeout(context.Background(), 5*time.Second)
	defer done()
	var j *apiv1.Job
	_ = a.c.WatchJobs(ctx, []uint64{a.id}, func(news []*apiv1.Job) bool { // it may be running still, and then is ended
		for _, n := range news {
			if n.GetId() == a.id {
				j = n
			}
		}
		return j != nil && console.Terminal(j.GetState())
	})
	switch {
	case j == nil || !console.Terminal(j.GetState()):
		a.cancel()
		return &console.ExitError{Code: console.ExitFailed, Err: fmt.Errorf("job %d runs, but Jupyter does not answer; it is ended. Its log is log in /tmp/.berth-notebook-%[1]d-0 on node %[2]s", a.id, a.job.GetNode())}
	case j.GetExitCode() == 127:
		return &console.ExitError{Code: console.ExitFailed, Err: fmt.Errorf("job %d found no Jupyter: neither jupyter-%[2]s nor jupyter is in its PATH on node %[3]s", a.id, o.kind(), j.GetNode())}
	}
	return &console.ExitError{Code: console.ExitFailed, Err: fmt.Errorf("job %d ended before Jupyter answered: %s %s; its log is log in /tmp/.berth-notebook-%[1]d-0 on node %[4]s", a.id, j.GetState(), console.Escape(j.GetReasonDetail()), j.GetNode())}
}

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
	detach  bool
	local   localOptions
}

// NewNotebookCmd returns the command notebook.
func NewNotebookCmd(e *console.Env, c *client.Client) *cobra.Command {
	args := &jobspec.SpecArgs{}
	var o notebookOptions
	cmd := &cobra.Command{
		Use:   "notebook [flags]",
		Short: "Start Jupyter on a share of a GPU and show how to reach it",
		Long: "Submit a job that runs Jupyter, wait until it answers, print the tunnel to open on your own machine and\n" +
			"the address for its browser, and forward the browser's connections. Jupyter listens on a socket inside\n" +
			"its job and on no network; the connection takes the same path as berth shell. An interrupt leaves the\n" +
			"notebook running; berth notebook attach reconnects to it.\n" +
			"\n" +
			"Options are those of berth submit; the environment is this shell's, or the image's with --image. The\n" +
			"token in the address is made in the job and kept in a file that only you can read. The notebook ends\n" +
			"after --idle-limit without activity, and with berth cancel.",
		Example: "  berth notebook --gpus 1 --gpu-mem 8G --time 8h\n  berth notebook --lab --gpus 1 --idle-limit 30m\n  berth notebook attach 12",
		Args:    console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runNotebook(cmd.Context(), e, c, args, &o)
		},
	}
	args.Register(cmd)
	cmd.Args = console.NoArgs
	fs := cmd.Flags()
	fs.BoolVar(&o.lab, "lab", false, "start JupyterLab instead of the classic notebook")
	fs.StringVar(&o.jupyter, "jupyter", "", "jupyter `PROGRAM` to run, if it is not in PATH")
	fs.StringVar(&o.idle, "idle-limit", "1h", "end it after this `TIME` without activity; 0 for never")
	fs.BoolVar(&o.detach, "detach", false, "only start it; connect later with berth notebook attach")
	o.local.register(fs, 8888)
	jobspec.RegisterSlurm(fs, &args.Slurm)
	cmd.AddCommand(newAttachCmd(e, c))
	return cmd
}

func (o *notebookOptions) kind() string {
	if o.lab {
		return "lab"
	}
	return "notebook"
}

// script returns what the job runs.
func (o *notebookOptions) script() (string, error) {
	idle := time.Duration(0)
	if o.idle != "0" {
		d, err := units.ParseDuration(o.idle)
		if err != nil || d < time.Second {
			return "", console.Usagef("--idle-limit %s: want a time such as 30 (minutes) or 2h, or 0", console.ShortQuote(o.idle))
		}
		idle = d
	}
	if err := o.local.check(); err != nil {
		return "", err
	}
	quoted := "'" + strings.ReplaceAll(o.jupyter, "'", `'\''`) + "'"
	return strings.NewReplacer("@JUPYTER@", quoted, "@KIND@", o.kind(), "@IDLE@", strconv.Itoa(int(idle/time.Second))).Replace(notebookScript), nil
}

// there reports, before anything waits, that the job would find no Jupyter:
// without an image it has this environment.
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
		return console.Usagef("--jupyter %s: no such program here", console.ShortQuote(o.jupyter))
	}
	return &console.ExitError{Code: console.ExitFailed, Err: fmt.Errorf(
		"no Jupyter: neither jupyter-%s nor jupyter is in your PATH, which the job inherits\n"+
			"Load its module or activate its environment first, name it with --jupyter, or use an image that has it with --image", o.kind())}
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
	err = a.await(ctx, func() { e.Warnf("waiting for job %d to start (see berth why %[1]d)", a.id) })
	if errors.Is(err, errRevoked) {
		return a.noNotebook(o)
	}
	if err != nil {
		return err
	}
	at, err := a.address(ctx, 10*time.Second)
	if err != nil {
		return err
	}
	if at == nil {
		return a.noNotebook(o)
	}
	if o.detach {
		e.Printf("Jupyter runs in job %d on %s; connect with berth notebook attach %[1]d, end it with berth cancel %[1]d.\n", a.id, a.job.GetNode())
		return nil
	}
	return a.carryNotebook(ctx, at, &o.local)
}

func newAttachCmd(e *console.Env, c *client.Client) *cobra.Command {
	var o localOptions
	cmd := &cobra.Command{
		Use:   "attach JOB",
		Short: "Connect to a running notebook",
		Long: "Forward a browser's connections to one of your notebooks, as berth notebook does after starting one,\n" +
			"and print how to reach it. Only the owner and administrators may do so.",
		Example: "  berth notebook attach 12\n  berth notebook attach --listen 8888 12",
		Args:    console.OneArg("job id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := console.ParseID(args[0])
			if err == nil {
				err = o.check()
			}
			if err != nil {
				return err
			}
			a := &allocation{e: e, c: c, id: id}
			if a.job, err = c.GetJob(cmd.Context(), id); err != nil {
				return err
			}
			at, err := a.address(cmd.Context(), 0)
			if err != nil {
				return err
			}
			if at == nil {
				return &console.ExitError{Code: console.ExitFailed, Err: fmt.Errorf("job %d has no notebook that answers (any more)", id)}
			}
			return a.carryNotebook(cmd.Context(), at, &o)
		},
	}
	o.register(cmd.Flags(), 8888)
	return cmd
}

// carryNotebook carries a browser's connections until the job ends, or the user leaves.
func (a *allocation) carryNotebook(ctx context.Context, at *address, o *localOptions) error {
	end, err := o.open(a.e, fmt.Sprintf("notebook-%d.sock", a.id))
	if err != nil {
		return fmt.Errorf("%w\nThe notebook is running: connect with berth notebook attach %d", err, a.id)
	}
	t := &carrier{e: a.e, c: a.c, job: a.id, target: at.where}
	err = t.run(ctx, end, func() {
		a.e.Printf("Jupyter runs in job %d on %s; end it with berth cancel %[1]d.\n\n", a.id, a.job.GetNode())
		if end.port > 0 {
			a.e.Printf("In a browser here:\n  http://127.0.0.1:%d/%s?token=%s\n\n", end.port, at.path(), at.token)
		}
		a.e.Printf("On your own machine:\n  %s\n\nThen, in its browser:\n  http://localhost:%d/%s?token=%s\n\n",
			end.line(a.e, o.own), o.own, at.path(), at.token)
		a.e.Printf("This program carries the connection: leave it running. An interrupt ends it, but not the notebook;\nreconnect with berth notebook attach %d.\n", a.id)
	})
	if err == nil && ctx.Err() != nil {
		a.e.Warnf("the notebook keeps running: reconnect with berth notebook attach %d, end it with berth cancel %[1]d", a.id)
	}
	return err
}

// address is where Jupyter listens in its job.
type address struct{ where, token, kind string }

// path returns what a browser opens.
func (at *address) path() string {
	if at.kind == "lab" {
		return "lab"
	}
	return "tree"
}

// address waits until Jupyter answers, which must be within patience; nil if
// it never will.
func (a *allocation) address(ctx context.Context, patience time.Duration) (*address, error) {
	x := &apiv1.AttachExec{Env: [][]byte{fmt.Appendf(nil, "BERTH_TRIES=%d", patience/(100*time.Millisecond))}}
	for _, w := range []string{"/bin/sh", "-c", `d=/tmp/.berth-notebook-$BERTH_JOB_ID-$BERTH_RESTART_COUNT; n=0
while [ ! -e "$d/ready.py" ] && [ $n -lt "$BERTH_TRIES" ]; do n=$((n+1)); sleep 0.1; done
p=python3; command -v $p >/dev/null || p=python; exec $p "$d/ready.py"`} {
		x.Command = append(x.Command, []byte(w))
	}
	s, err := a.c.OpenSession(ctx, client.SessionConfig{}, &apiv1.AttachOpen{Job: a.id, What: &apiv1.AttachOpen_Exec{Exec: x}})
	var ce *cluster.Error
	if errors.As(err, &ce) && ce.Code == cluster.CodeConflict {
		return nil, nil // it has ended
	}
	if err != nil {
		return nil, err
	}
	defer s.Close()
	var out []byte
	for {
		m, err := s.Recv()
		if err != nil {
			return nil, err
		}
		out = append(out, m.GetStdout()...)
		if end := m.GetEnded(); end != nil {
			if words := strings.Fields(string(out)); end.GetCode() == 0 && len(words) == 3 {
				return &address{where: words[0], token: words[1], kind: words[2]}, nil
			}
			return nil, nil
		}
	}
}

// noNotebook says why there is no notebook.
func (a *allocation) noNotebook(o *notebookOptions) error {
	ctx, done := context.WithTimeout(context.Background(), 5*time.Second)
	defer done()
	j, _ := a.watchEnd(ctx) // it may still be running, and then ends
	switch {
	case j == nil || !console.Terminal(j.GetState()):
		a.cancel()
		return &console.ExitError{Code: console.ExitFailed, Err: fmt.Errorf("job %d runs, but Jupyter does not answer; it is being ended. Its log is the file log in /tmp/.berth-notebook-%[1]d-0 on node %[2]s", a.id, a.job.GetNode())}
	case j.GetExitCode() == 127:
		return &console.ExitError{Code: console.ExitFailed, Err: fmt.Errorf("job %d found no Jupyter: neither jupyter-%[2]s nor jupyter is in its PATH on node %[3]s", a.id, o.kind(), j.GetNode())}
	}
	return &console.ExitError{Code: console.ExitFailed, Err: fmt.Errorf("job %d ended before Jupyter answered: %s %s; its log is the file log in /tmp/.berth-notebook-%[1]d-0 on node %[4]s", a.id, j.GetState(), console.Escape(j.GetReasonDetail()), j.GetNode())}
}

package enter

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/units"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// keepShell is how long a shell asks to be kept; its node may keep it for less.
const keepShell = 14 * 24 * time.Hour

type shellOptions struct {
	node, session, output string
	list, fresh           bool
}

// NewShellCmd returns the command shell.
func NewShellCmd(e *console.Env, c *client.Client) *cobra.Command {
	var o shellOptions
	cmd := &cobra.Command{
		Use:   "shell (JOB|ARRAY_TASK)",
		Short: "Open a shell inside a running job, or reattach to one",
		Long: "Open a shell (the job's $SHELL) inside one of your jobs, like berth exec, with a terminal if standard\n" +
			"input and output are one.\n" +
			"\n" +
			"With a terminal, the shell outlives the connection: if that breaks or the leader changes, it continues\n" +
			"where it was; if this program or its machine dies, the same command reattaches and shows the latest\n" +
			"output. Type ~d at the beginning of a line to detach. The shell ends with the job, when the node's\n" +
			"agent restarts, and when nobody reattaches for as long as the node keeps it (jobs.detached, 12 hours\n" +
			"by default).",
		Example: "  berth shell 12\n  berth shell --list 12\n  echo 'nvidia-smi; free -m' | berth shell 12",
		Args:    console.OneArg("job id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runShell(cmd.Context(), e, c, &o, args[0])
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&o.node, "node", "", "node to use if the job has several; by default the first")
	fs.BoolVar(&o.list, "list", false, "list the job's shells and commands kept on the node")
	fs.StringVar(&o.session, "attach", "", "reattach to this `SESSION` (see --list), even if it is attached elsewhere")
	fs.BoolVar(&o.fresh, "new", false, "open a new shell, even if there is one to reattach to")
	console.AddFormat(cmd, &o.output, console.FormatTable, console.FormatJSON, console.FormatYAML)
	return cmd
}

func runShell(ctx context.Context, e *console.Env, c *client.Client, o *shellOptions, arg string) error {
	one, err := client.OneJob(ctx, c, arg)
	if err != nil {
		return err
	}
	id := one.GetId()
	if o.list {
		return listSessions(ctx, e, c, o, id)
	}
	_, in := e.StdinTerminal()
	x := &apiv1.AttachExec{Terminal: in && e.IsTerminal}
	job := &InsideJob{Open: &apiv1.AttachOpen{Job: id, Node: o.node, What: &apiv1.AttachOpen_Exec{Exec: x}}}
	if x.Terminal {
		x.Term, job.Keep = e.Getenv("TERM"), keepShell
	}
	switch {
	case o.session != "":
		x.Session, x.Terminal, job.Keep = o.session, true, keepShell
	case x.Terminal && !o.fresh:
		if x.Session, err = leftShell(ctx, e, c, o, id); err != nil {
			return err
		}
	}
	err = runInJob(ctx, e, c, job)
	var ce *cluster.Error
	if x.GetSession() != "" && o.session == "" && errors.As(err, &ce) && ce.Code == cluster.CodeNotFound {
		x.Session = "" // it has just ended
		return runInJob(ctx, e, c, job)
	}
	return err
}

// leftShell returns the newest shell that no user is connected to.
func leftShell(ctx context.Context, e *console.Env, c *client.Client, o *shellOptions, id uint64) (string, error) {
	all, err := sessions(ctx, c, o, id)
	if err != nil {
		return "", err
	}
	for i := len(all) - 1; i >= 0; i-- {
		if s := all[i]; s.GetTerminal() && !s.GetAttached() {
			e.Warnf("reattached to session %s, opened %s ago (--new opens another)", s.GetId(), units.FormatDuration(e.Now().Sub(s.GetStarted().AsTime()).Truncate(time.Second)))
			return s.GetId(), nil
		}
	}
	return "", nil
}

// sessions asks the node what it keeps for a job; a node that does not know
// sessions keeps none.
func sessions(ctx context.Context, c *client.Client, o *shellOptions, id uint64) ([]*apiv1.Session, error) {
	open := &apiv1.AttachOpen{Job: id, Node: o.node, What: &apiv1.AttachOpen_Sessions{Sessions: &apiv1.AttachSessions{}}}
	a, err := c.Attach(ctx, client.Reads, min(client.AttachPatience, c.Timeout), open)
	var ce *cluster.Error
	if errors.As(err, &ce) && ce.Code == cluster.CodeInvalid {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer a.Close()
	for {
		m, err := a.Recv()
		switch {
		case err != nil:
			return nil, err
		case m.GetSessions() != nil:
			return m.GetSessions().GetSessions(), nil
		case m.GetEnded() != nil:
			return nil, nil
		}
	}
}

// sessionView is one kept command as it is printed.
type sessionView struct {
	ID       string     `json:"id" yaml:"id"`
	Job      uint64     `json:"job" yaml:"job"`
	Node     string     `json:"node" yaml:"node"`
	Command  string     `json:"command" yaml:"command"`
	Terminal bool       `json:"terminal" yaml:"terminal"`
	Started  time.Time  `json:"started" yaml:"started"`
	Attached bool       `json:"attached" yaml:"attached"`
	Ends     *time.Time `json:"ends,omitempty" yaml:"ends,omitempty"`
}

func listSessions(ctx context.Context, e *console.Env, c *client.Client, o *shellOptions, id uint64) error {
	all, err := sessions(ctx, c, o, id)
	if err != nil {
		return err
	}
	views := make([]sessionView, len(all))
	for i, s := range all {
		views[i] = sessionView{ID: s.GetId(), Job: s.GetJob(), Node: s.GetNode(), Command: s.GetCommand(), Terminal: s.GetTerminal(),
			Started: s.GetStarted().AsTime(), Attached: s.GetAttached()}
		if s.GetEnds() != nil {
			views[i].Ends = new(s.GetEnds().AsTime())
		}
	}
	if done, err := console.PrintList(e, console.Format(o.output), views); done {
		return err
	}
	t := &console.Table{Cols: []console.Column{{Head: "SESSION"}, {Head: "NODE"}, {Head: "COMMAND", Shrink: true}, {Head: "STARTED"}, {Head: "NOW"}}}
	for _, v := range views {
		now := "attached"
		if v.Ends != nil {
			now = "detached; ends in " + units.FormatDuration(v.Ends.Sub(e.Now()).Truncate(time.Second))
		}
		t.Add(v.ID, v.Node, v.Command, units.FormatDuration(e.Now().Sub(v.Started).Truncate(time.Second))+" ago", now)
	}
	t.Print(e)
	return nil
}

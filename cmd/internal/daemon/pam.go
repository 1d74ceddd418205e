package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/agent"
	"github.com/berth-scheduler/berth/agent/login"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
)

// serveLogins answers berth pam until ctx ends. A node where that is
// impossible runs jobs anyway.
func serveLogins(ctx context.Context, dir string, a *agent.Agent, log *slog.Logger) error {
	ln, err := login.Listen(filepath.Join(dir, login.SocketName))
	if err != nil {
		log.ErrorContext(ctx, "berth pam cannot let anyone in", "err", err)
		return nil
	}
	return login.Serve(ctx, ln, a, log.With("component", "login"))
}

// pamOptions are the arguments from pam_exec's line, and PAM's environment.
type pamOptions struct {
	socket   string
	exempt   []string
	failOpen bool
	// user and kind are PAM_USER and PAM_TYPE; parent is the process that logs in.
	user, kind string
	parent     int
}

// newPAMCommand is called by pam_exec when a user logs in to a node.
func newPAMCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "pam", Short: "Allow logins only to users with a job here (run by pam_exec)", Hidden: true}
	var o pamOptions
	sub := func(name, short string, run func(*pamOptions, io.Writer) error) *cobra.Command {
		c := &cobra.Command{
			Use: name, Short: short, Args: cobra.NoArgs, Example: "  berth pam " + name,
			RunE: func(cmd *cobra.Command, _ []string) error {
				o.user, o.kind, o.parent = os.Getenv("PAM_USER"), os.Getenv("PAM_TYPE"), os.Getppid()
				return run(&o, cmd.OutOrStdout())
			},
		}
		f := c.Flags()
		f.StringVar(&o.socket, "socket", "/var/lib/berth/agent/"+login.SocketName, "the agent's `SOCKET`, in its data.dir")
		f.StringSliceVar(&o.exempt, "exempt", nil, "`GROUPS` whose members may always log in, outside any job")
		f.BoolVar(&o.failOpen, "fail-open", false, "let everyone log in while the agent does not answer")
		return c
	}
	cmd.AddCommand(
		sub("account", "Succeeds if PAM_USER may log in", pamAccount),
		sub("session", "Moves the process that called PAM into the job's control group", pamSession),
	)
	return cmd
}

// pamAccount decides whether a user may log in.
func pamAccount(o *pamOptions, out io.Writer) error {
	who, free, err := o.who()
	if free || err != nil {
		return refuse(out, err)
	}
	return o.ask(out, login.Question{Who: who})
}

// pamSession moves a login into the control group of the user's job. The
// process is the one that opened PAM's session, which waits for us, so its
// number is still its own.
func pamSession(o *pamOptions, out io.Writer) error {
	if o.kind == "close_session" {
		return nil // what is in the group ends with it
	}
	who, free, err := o.who()
	if free || err != nil {
		return refuse(out, err)
	}
	return o.ask(out, login.Question{Who: who, PID: o.parent})
}

// who resolves the name that PAM gives; free is true for users who are never refused.
func (o *pamOptions) who() (who login.Who, free bool, err error) {
	who = login.Who{UID: -1, Name: o.user}
	if o.user == "" {
		return who, false, errors.New("PAM_USER is not set: this is for pam_exec")
	}
	u, err := user.Lookup(o.user)
	if err != nil { // from a directory that this program does not read: the agent goes by the name
		return who, o.user == "root", nil
	}
	if who.UID, err = strconv.ParseInt(u.Uid, 10, 64); err != nil {
		return who, false, fmt.Errorf("uid of %s: %w", o.user, err)
	}
	if who.UID == 0 {
		return who, true, nil
	}
	if len(o.exempt) == 0 {
		return who, false, nil
	}
	ids, err := u.GroupIds()
	if err != nil {
		return who, false, nil // a refused login can be tried again
	}
	for _, name := range o.exempt {
		if g, err := user.LookupGroup(name); err == nil && slices.Contains(ids, g.Gid) {
			return who, true, nil
		}
	}
	return who, false, nil
}

// ask asks the agent and prints its reason, if any, for a refusal.
func (o *pamOptions) ask(out io.Writer, q login.Question) error {
	a, err := login.Ask(o.socket, q)
	switch {
	case errors.Is(err, login.ErrNoAgent) && o.failOpen:
		fmt.Fprintln(out, "berth: the agent of this node does not answer; you are let in without a job")
		return nil
	case err != nil:
		return refuse(out, err)
	case a.Refused != "":
		return refuse(out, errors.New(a.Refused))
	}
	return nil
}

// refuse prints the one line for the user, and ends with code 1.
func refuse(out io.Writer, err error) error {
	if err == nil {
		return nil
	}
	fmt.Fprintf(out, "berth: access denied: %v\n", err)
	return &console.ExitError{Code: 1}
}

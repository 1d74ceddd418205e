package daemon

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/agent/login"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
)

// tenant is a node on which only nobody has a job.
type tenant struct{ moved chan int }

func (tenant) Resident(w login.Who) (string, error) {
	if w.Name == "nobody" {
		return "12", nil
	}
	return "", errors.New("you have no running job on this node")
}

func (n tenant) Adopt(w login.Who, pid int) (string, error) {
	job, err := n.Resident(w)
	if err == nil {
		n.moved <- pid
	}
	return job, err
}

// TestPAM: who is let in, and what those read who are not. Users that the
// machine does not know are asked for by their names.
func TestPAM(t *testing.T) {
	dir, err := os.MkdirTemp("", "pam") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	up, down := filepath.Join(dir, "up"), filepath.Join(dir, "down")
	ln, err := login.Listen(up)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done, moved := make(chan struct{}), make(chan int, 1)
	go func() {
		defer close(done)
		_ = login.Serve(ctx, ln, tenant{moved}, slog.New(slog.DiscardHandler))
	}()
	t.Cleanup(func() { cancel(); <-done })
	for name, c := range map[string]struct {
		args, user, kind string
		code             int
		says             string
	}{
		"a job":                    {"account --socket " + up, "nobody", "account", 0, ""},
		"a job, at its session":    {"session --socket " + up, "nobody", "open_session", 0, ""},
		"the session's end":        {"session --socket " + down, "nobody", "close_session", 0, ""},
		"no job":                   {"account --socket " + up, "no-such-user", "account", 1, "access denied: you have no running job on this node\n"},
		"no job, at the session":   {"session --socket " + up, "no-such-user", "open_session", 1, "access denied: you have no running job on this node\n"},
		"root":                     {"account --socket " + down, "root", "account", 0, ""},
		"root's session":           {"session --socket " + down, "root", "open_session", 0, ""},
		"a group that is exempt":   {"account --exempt wheel,nogroup,nobody --socket " + down, "nobody", "account", 0, ""},
		"another group":            {"account --exempt no-such-group --socket " + down, "nobody", "account", 1, "does not answer"},
		"no agent":                 {"account --socket " + down, "nobody", "account", 1, "access denied: the agent of this node does not answer"},
		"no agent, but let in":     {"account --fail-open --socket " + down, "nobody", "account", 0, "you are let in without a job"},
		"an agent that says no":    {"account --fail-open --socket " + up, "no-such-user", "account", 1, "access denied"},
		"by hand, without a user":  {"account --socket " + up, "", "account", 1, "PAM_USER is not set"},
		"session without an agent": {"session --socket " + down, "nobody", "open_session", 1, "does not answer"},
	} {
		t.Setenv("PAM_USER", c.user)
		t.Setenv("PAM_TYPE", c.kind)
		var out strings.Builder
		cmd := newPAMCommand()
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetOut(&out)
		cmd.SetArgs(strings.Fields(c.args))
		err, code := cmd.Execute(), 0
		if x, ok := errors.AsType[*console.ExitError](err); ok {
			code = x.Code
		} else if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if code != c.code || !strings.Contains(out.String(), c.says) || c.says == "" && out.Len() > 0 || strings.Count(out.String(), "\n") > 1 {
			t.Errorf("%s: code %d and %q, want %d and one line with %q", name, code, out.String(), c.code, c.says)
		}
	}
	if pid := <-moved; pid != os.Getppid() {
		t.Errorf("process %d was moved, want our parent, %d", pid, os.Getppid())
	}
}

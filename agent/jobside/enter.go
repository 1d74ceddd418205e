package jobside

import (
	"os"
	"syscall"

	"github.com/berth-scheduler/berth/agent/asuser"
	"github.com/berth-scheduler/berth/agent/launch"
)

// enter runs a command inside a host job: in the job's directory, with its variables. It runs
// in the job's container as the job's user. It returns only on an error of ours; an error of
// the command ends the process as in a shell.
func enter(specFile string, args []string) error {
	s, err := read(specFile)
	if err != nil {
		return err
	}
	if s.DropHome {
		if err := os.Unsetenv("HOME"); err != nil {
			return err
		}
	}
	l := s.Launch
	l.Env = launch.Environ(l.Env, syscall.Environ())
	if l.Args = args; len(l.Args) == 0 {
		l.Args = launch.ShellOf(l.Env)
	}
	return exit(enterJob(l))
}

func enterJob(l *launch.Launch) error {
	if err := os.Chdir(l.Dir); err != nil {
		return &launch.Error{Code: 125, Reason: "WORKDIR", Err: err}
	}
	prog, err := asuser.LookPath(l)
	if err != nil {
		return err
	}
	return asuser.ExecError(prog, syscall.Exec(prog, l.Args, l.Env))
}

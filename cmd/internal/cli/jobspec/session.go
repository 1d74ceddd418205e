package jobspec

import (
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/proto/conv/plainconv"
)

// FromSession makes the job of a session: script only holds what the job has,
// for commands that are run in it. The options are those in Slurm.Set, Berth's
// own among them.
func (r *Request) FromSession(e *console.Env, name, script string) error {
	if err := r.resolveSlurm(e, "", nil); err != nil {
		return err
	}
	packed, err := plainconv.PackScript([]byte(script))
	if err != nil {
		return err
	}
	r.Spec.Script, r.Spec.Command, r.tasks = packed, []string{name}, 0
	if err := r.ApplyFlags(); err != nil {
		return err
	}
	if err := r.scriptDefaults(e, name); err != nil {
		return err
	}
	r.Spec.Stdin, r.Spec.Stdout, r.Spec.Stderr = "", "/dev/null", ""
	return nil
}

package jobspec

import "github.com/berth-scheduler/berth/cmd/internal/cli/console"

// FromSession builds the job of a session: script only holds the job's
// resources, for commands that run in it. The options are those in Slurm.Set,
// Berth's own among them.
func (r *Request) FromSession(e *console.Env, name, script string) error {
	if err := r.resolveSlurm(e, "", nil); err != nil {
		return err
	}
	if err := r.Session(caller(e), r.Slurm.Asked, script, name); err != nil {
		return failedPlace(err)
	}
	if err := r.ApplyFlags(); err != nil {
		return err
	}
	r.Spec.Stdin, r.Spec.Stdout, r.Spec.Stderr = "", "/dev/null", ""
	return nil
}

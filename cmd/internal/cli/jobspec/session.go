package jobspec

import (
	"slices"

	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/sbatch"
	"github.com/berth-scheduler/berth/proto/conv"
)

// FromSession makes the job of a session: script only holds what the job has,
// for commands that are run in it. The options are those in Slurm.Set, Berth's
// own among them.
func (r *Request) FromSession(e *console.Env, name, script string) error {
	all := Fields()
	var slurm []sbatch.Setting
	for _, s := range r.Slurm.Set {
		i := slices.IndexFunc(all, func(f Field) bool { return s.Own && f.Name == s.Name })
		if i < 0 {
			slurm = append(slurm, s)
			continue
		}
		if all[i].Kind == KindTruth && s.Value == "" {
			s.Value = "true"
		}
		r.Flags = append(r.Flags, FlagText{&all[i], s.Value})
	}
	r.Slurm.Set = slurm
	if err := r.resolveSlurm(e, "", nil); err != nil {
		return err
	}
	packed, err := conv.PackScript([]byte(script))
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

package sbatch

import (
	"cmp"
	"fmt"
)

// finishEnv sets the variables by which Slurm tells jobs what was requested;
// the node adds those only it knows.
func (r *resolver) finishEnv() {
	set := func(name, value string) { r.req.Env = append(r.req.Env, name+"="+value) }
	num := func(name string, n int64) {
		if n > 0 {
			set(name, fmt.Sprint(n))
		}
	}
	for _, s := range r.req.Own {
		if s.Name == "partition" || s.Name == "account" || s.Name == "qos" {
			r.keep(s.Name, s.Value)
		}
		if truncate, err := ParseOpenMode(s.Value); s.Name == "open-mode" && err == nil {
			r.keep(s.Name, openModeLetter(truncate))
		}
	}
	counted := r.req.MostNodes == 0 && !r.own("nodes") // else the node counts them
	nodes := max(1, r.req.Nodes)
	all := cmp.Or(r.uneven, r.tasks*nodes)
	if counted {
		set("SLURM_TASKS_PER_NODE", spread(all, nodes))
	}
	if r.tasksSaid && counted {
		num("SLURM_NTASKS", all)
		num("SLURM_NPROCS", all)
	}
	if nodes > 1 {
		num("SLURM_NTASKS_PER_NODE", r.perNodeSaid)
	} else {
		num("SLURM_NTASKS_PER_NODE", r.perNode)
	}
	num("SLURM_NTASKS_PER_GPU", r.perGPU)
	num("SLURM_CPUS_PER_TASK", r.cpusPerTask)
	num("SLURM_CPUS_PER_GPU", r.cpusPerGPU)
	num("SLURM_MEM_PER_CPU", r.memPerCPU)
	num("SLURM_MEM_PER_GPU", r.memPerGPU)
	for _, v := range []struct{ option, name string }{
		{"gpus", "SLURM_GPUS"}, {"gpus-per-node", "SLURM_GPUS_PER_NODE"}, {"gpus-per-task", "SLURM_GPUS_PER_TASK"},
		{"partition", "SLURM_JOB_PARTITION"}, {"account", "SLURM_JOB_ACCOUNT"}, {"qos", "SLURM_JOB_QOS"}, {"reservation", "SLURM_JOB_RESERVATION"},
		{"dependency", "SLURM_JOB_DEPENDENCY"}, {"open-mode", "SLURM_OPEN_MODE"}, {"gpu-freq", "SLURM_GPU_FREQ"},
	} {
		if text := r.gpuText[v.option]; text != "" {
			set(v.name, text)
		}
	}
}

// spread formats how many tasks each node has, as Slurm does: 2(x3), or
// 2,1(x2) if the first nodes have one more.
func spread(tasks, nodes int64) string {
	of := func(n, times int64) string {
		if times > 1 {
			return fmt.Sprintf("%d(x%d)", n, times)
		}
		return fmt.Sprint(n)
	}
	each, more := tasks/nodes, tasks%nodes
	if more == 0 {
		return of(each, nodes)
	}
	return of(each+1, more) + "," + of(each, nodes-more)
}

package sbatch

import "fmt"

// finishEnv says what was asked for as Slurm's jobs are told it; what only the
// node knows is added there.
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
	}
	nodes, times := max(1, r.req.Nodes), ""
	if nodes > 1 {
		times = fmt.Sprintf("(x%d)", nodes)
	}
	set("SLURM_TASKS_PER_NODE", fmt.Sprint(r.tasks)+times)
	if r.tasksSaid {
		num("SLURM_NTASKS", r.tasks*nodes)
		num("SLURM_NPROCS", r.tasks*nodes)
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
		{"dependency", "SLURM_JOB_DEPENDENCY"},
	} {
		if text := r.gpuText[v.option]; text != "" {
			set(v.name, text)
		}
	}
}

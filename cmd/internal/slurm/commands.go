package slurm

// Commands are the names of Slurm's commands that Berth has, and by links to its
// program is.
func Commands() []string {
	return []string{"sbatch", "squeue", "scancel", "sinfo", "scontrol", "sacct", "seff", "sshare", "srun", "salloc",
		"sacctmgr", "sattach", "sbcast", "scrontab", "sdiag", "sgather", "sprio", "sreport", "sstat", "strigger"}
}

package sbatch

// slurmOptions are the options of sbatch 22.05, in alphabetical order.
var slurmOptions = []Option{
	{"account", 'A', NeedsArg}, {"acctg-freq", 0, NeedsArg}, {"array", 'a', NeedsArg},
	{"batch", 0, NeedsArg}, {"bb", 0, NeedsArg}, {"bbf", 0, NeedsArg}, {"begin", 'b', NeedsArg},
	{"chdir", 'D', NeedsArg}, {"cluster", 0, NeedsArg}, {"cluster-constraint", 0, NeedsArg}, {"clusters", 'M', NeedsArg},
	{"comment", 0, NeedsArg}, {"constraint", 'C', NeedsArg}, {"container", 0, NeedsArg}, {"context", 0, NeedsArg},
	{"contiguous", 0, NoArg}, {"core-spec", 'S', NeedsArg}, {"cores-per-socket", 0, NeedsArg}, {"cpu-freq", 0, NeedsArg},
	{"cpus-per-gpu", 0, NeedsArg}, {"cpus-per-task", 'c', NeedsArg},
	{"deadline", 0, NeedsArg}, {"delay-boot", 0, NeedsArg}, {"dependency", 'd', NeedsArg}, {"distribution", 'm', NeedsArg},
	{"error", 'e', NeedsArg}, {"exclude", 'x', NeedsArg}, {"exclusive", 0, MayArg}, {"export", 0, NeedsArg},
	{"export-file", 0, NeedsArg}, {"extra-node-info", 'B', NeedsArg},
	{"get-user-env", 0, MayArg}, {"gid", 0, NeedsArg}, {"gpu-bind", 0, NeedsArg}, {"gpu-freq", 0, NeedsArg},
	{"gpus", 'G', NeedsArg}, {"gpus-per-node", 0, NeedsArg}, {"gpus-per-socket", 0, NeedsArg}, {"gpus-per-task", 0, NeedsArg},
	{"gres", 0, NeedsArg}, {"gres-flags", 0, NeedsArg},
	{"help", 'h', NoArg}, {"hint", 0, NeedsArg}, {"hold", 'H', NoArg},
	{"ignore-pbs", 0, NoArg}, {"input", 'i', NeedsArg}, {"job-name", 'J', NeedsArg}, {"kill-on-invalid-dep", 0, NeedsArg},
	{"licenses", 'L', NeedsArg},
	{"mail-type", 0, NeedsArg}, {"mail-user", 0, NeedsArg}, {"mcs-label", 0, NeedsArg}, {"mem", 0, NeedsArg},
	{"mem-bind", 0, NeedsArg}, {"mem-per-cpu", 0, NeedsArg}, {"mem-per-gpu", 0, NeedsArg}, {"mincpus", 0, NeedsArg},
	{"network", 0, NeedsArg}, {"nice", 0, MayArg}, {"no-kill", 'k', MayArg}, {"no-requeue", 0, NoArg},
	{"nodefile", 'F', NeedsArg}, {"nodelist", 'w', NeedsArg}, {"nodes", 'N', NeedsArg}, {"ntasks", 'n', NeedsArg},
	{"ntasks-per-core", 0, NeedsArg}, {"ntasks-per-gpu", 0, NeedsArg}, {"ntasks-per-node", 0, NeedsArg},
	{"ntasks-per-socket", 0, NeedsArg}, {"ntasks-per-tres", 0, NeedsArg},
	{"open-mode", 0, NeedsArg}, {"output", 'o', NeedsArg}, {"overcommit", 'O', NoArg}, {"oversubscribe", 's', NoArg},
	{"parsable", 0, NoArg}, {"partition", 'p', NeedsArg}, {"power", 0, NeedsArg}, {"prefer", 0, NeedsArg},
	{"priority", 0, NeedsArg}, {"profile", 0, NeedsArg}, {"propagate", 0, MayArg},
	{"qos", 'q', NeedsArg}, {"quiet", 'Q', NoArg}, {"reboot", 0, NoArg}, {"requeue", 0, NoArg}, {"reservation", 0, NeedsArg},
	{"signal", 0, NeedsArg}, {"sockets-per-node", 0, NeedsArg}, {"spread-job", 0, NoArg}, {"switches", 0, NeedsArg},
	{"tasks-per-node", 0, NeedsArg}, {"test-only", 0, NoArg}, {"thread-spec", 0, NeedsArg}, {"threads-per-core", 0, NeedsArg},
	{"time", 't', NeedsArg}, {"time-min", 0, NeedsArg}, {"tmp", 0, NeedsArg},
	{"uid", 0, NeedsArg}, {"usage", 0, NoArg}, {"use-min-nodes", 0, NoArg}, {"verbose", 'v', NoArg}, {"version", 'V', NoArg},
	{"wait", 'W', NoArg}, {"wait-all-nodes", 0, NeedsArg}, {"wckey", 0, NeedsArg}, {"wrap", 0, NeedsArg},
}

// SlurmOptions returns the options of sbatch, for registration elsewhere.
func SlurmOptions() []Option { return append([]Option(nil), slurmOptions...) }

// envOptions are the variables that sbatch reads, and the options they set.
var envOptions = []struct{ variable, option string }{
	{"SBATCH_ACCOUNT", "account"}, {"SBATCH_ACCTG_FREQ", "acctg-freq"}, {"SBATCH_ARRAY_INX", "array"}, {"SBATCH_BATCH", "batch"},
	{"SBATCH_BURST_BUFFER", "bb"}, {"SBATCH_CLUSTERS", "clusters"}, {"SBATCH_CLUSTER_CONSTRAINT", "cluster-constraint"},
	{"SBATCH_CONSTRAINT", "constraint"}, {"SBATCH_CONTAINER", "container"}, {"SBATCH_CORE_SPEC", "core-spec"},
	{"SBATCH_CPUS_PER_GPU", "cpus-per-gpu"}, {"SBATCH_CPU_FREQ_REQ", "cpu-freq"}, {"SBATCH_DEBUG", "verbose"},
	{"SBATCH_DELAY_BOOT", "delay-boot"}, {"SBATCH_DISTRIBUTION", "distribution"}, {"SBATCH_ERROR", "error"},
	{"SBATCH_EXCLUSIVE", "exclusive"}, {"SBATCH_EXPORT", "export"}, {"SBATCH_GET_USER_ENV", "get-user-env"},
	{"SBATCH_GPUS", "gpus"}, {"SBATCH_GPUS_PER_NODE", "gpus-per-node"}, {"SBATCH_GPUS_PER_SOCKET", "gpus-per-socket"},
	{"SBATCH_GPUS_PER_TASK", "gpus-per-task"}, {"SBATCH_GPU_BIND", "gpu-bind"}, {"SBATCH_GPU_FREQ", "gpu-freq"},
	{"SBATCH_GRES", "gres"}, {"SBATCH_GRES_FLAGS", "gres-flags"}, {"SBATCH_HINT", "hint"}, {"SBATCH_IGNORE_PBS", "ignore-pbs"},
	{"SBATCH_INPUT", "input"}, {"SBATCH_JOB_NAME", "job-name"}, {"SBATCH_MEM_BIND", "mem-bind"},
	{"SBATCH_MEM_PER_CPU", "mem-per-cpu"}, {"SBATCH_MEM_PER_GPU", "mem-per-gpu"}, {"SBATCH_MEM_PER_NODE", "mem"},
	{"SBATCH_NETWORK", "network"}, {"SBATCH_NO_KILL", "no-kill"}, {"SBATCH_NO_REQUEUE", "no-requeue"},
	{"SBATCH_OPEN_MODE", "open-mode"}, {"SBATCH_OUTPUT", "output"}, {"SBATCH_OVERCOMMIT", "overcommit"},
	{"SBATCH_PARTITION", "partition"}, {"SBATCH_POWER", "power"}, {"SBATCH_PROFILE", "profile"}, {"SBATCH_QOS", "qos"},
	{"SBATCH_REQUEUE", "requeue"}, {"SBATCH_REQ_SWITCH", "switches"}, {"SBATCH_RESERVATION", "reservation"},
	{"SBATCH_SIGNAL", "signal"}, {"SBATCH_SPREAD_JOB", "spread-job"}, {"SBATCH_THREADS_PER_CORE", "threads-per-core"},
	{"SBATCH_THREAD_SPEC", "thread-spec"}, {"SBATCH_TIMELIMIT", "time"}, {"SBATCH_USE_MIN_NODES", "use-min-nodes"},
	{"SBATCH_WAIT", "wait"}, {"SBATCH_WAIT_ALL_NODES", "wait-all-nodes"}, {"SBATCH_WCKEY", "wckey"},
}

// OptionNames returns the long options of sbatch.
func OptionNames() []string {
	var out []string
	for _, o := range slurmOptions {
		out = append(out, o.Name)
	}
	return out
}

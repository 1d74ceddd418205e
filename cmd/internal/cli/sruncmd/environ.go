package sruncmd

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/berth-scheduler/berth/agent/step"
	"github.com/berth-scheduler/berth/cluster/hostnames"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

// nodeVars are specific to a node, or to this program, and do not travel.
var nodeVars = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(SLURMD_NODENAME|SLURM_(NODEID|PROCID|LOCALID|GTIDS|CPUS_ON_NODE|GPUS_ON_NODE|TOPOLOGY_ADDR.*|TASK_PID|JOB_GPUS)|CUDA_VISIBLE_DEVICES|GPU_DEVICE_ORDINAL|NVIDIA_VISIBLE_DEVICES|CUDA_MPS_.*|BERTH_.*|LD_PRELOAD|LD_AUDIT|HOSTNAME|SSH_.*|DISPLAY|WINDOWID|XAUTHORITY|XDG_(SESSION|SEAT|VTNR|RUNTIME).*|TMUX.*|STY|_|SHLVL|PWD|OLDPWD)$`)
})

// exported returns srun's own environment as --export passes it to another
// node: ALL, NONE, or a list of names and of NAME=value.
func exported(environ []string, export string) []string {
	pass := func(name string) bool { return !nodeVars().MatchString(name) }
	var out []string
	add := func(want func(string) bool) {
		for _, line := range environ {
			if name, _, ok := strings.Cut(line, "="); ok && name != "" && want(name) {
				out = append(out, line)
			}
		}
	}
	export = cmp.Or(export, "ALL")
	for item := range strings.SplitSeq(export, ",") {
		name, _, assigned := strings.Cut(item, "=")
		switch {
		case item == "ALL":
			add(pass)
		case item == "NONE" || name == "":
		case assigned:
			out = append(out, item)
		default:
			add(func(n string) bool { return n == name })
		}
	}
	return out
}

// stepEnv returns the variables of all tasks of a step, as in Slurm 22.05.
func stepEnv(l *layout, j *job, number int, cpus int) []string {
	num, nodes := strconv.Itoa, hostnames.FoldSet(l.nodes())
	env := []string{
		"SLURM_STEP_ID=" + num(number), "SLURM_STEPID=" + num(number),
		"SLURM_STEP_NODELIST=" + nodes, "SLURM_STEP_NUM_NODES=" + num(len(l.places)), "SLURM_STEP_NUM_TASKS=" + num(l.tasks),
		"SLURM_STEP_TASKS_PER_NODE=" + l.perNode(), "SLURM_NTASKS=" + num(l.tasks), "SLURM_NPROCS=" + num(l.tasks),
		"SLURM_NNODES=" + num(len(l.places)), "SLURM_NODELIST=" + nodes, "SLURM_TASKS_PER_NODE=" + l.perNode(),
		fmt.Sprintf("SLURM_UMASK=%04o", umask()), "SLURM_DISTRIBUTION=" + distribution(l),
	}
	if cpus > 0 {
		env = append(env, "SLURM_CPUS_PER_TASK="+num(cpus))
	}
	if l.eachGPUs > 0 {
		env = append(env, "SLURM_GPUS_PER_TASK="+num(l.eachGPUs))
	}
	return env
}

// distribution returns Slurm's name of a step's distribution: one task on
// each node is cyclic.
func distribution(l *layout) string {
	if l.tasks == len(l.places) {
		return "cyclic"
	}
	return "block"
}

// config returns what the node of a place runs.
func config(l *layout, p place, args []string, env []string, gpus []int) *step.Config {
	lines := append(env, "SLURM_NODEID="+strconv.Itoa(p.id), "SLURM_GTIDS="+p.ranks())
	cfg := &step.Config{Node: p.node, Umask: -1, Args: apiconv.Texts[[]byte](args), Env: apiconv.Texts[[]byte](lines)}
	for i := range p.tasks {
		t := step.Task{GPUs: gpus, Env: [][]byte{[]byte("SLURM_PROCID=" + strconv.Itoa(p.first+i)), []byte("SLURM_LOCALID=" + strconv.Itoa(i))}}
		if each := l.eachGPUs; each > 0 && len(gpus) >= (i+1)*each {
			t.GPUs = gpus[i*each : (i+1)*each]
		}
		cfg.Tasks = append(cfg.Tasks, t)
	}
	return cfg
}

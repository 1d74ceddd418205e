package launcher

import (
	"bytes"
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// partitionOfAll is the partition that Slurm's commands show for all nodes of a cluster
// without partitions.
const partitionOfAll = "all"

// slurmEnv returns the variables that scripts written for Slurm read, as far as the node
// knows them, with the names and formats of Slurm 22.05; those known from the request alone
// come with the job. A job's batch step is its task 0.
func (la *Launcher) slurmEnv(as *nodev1.Assignment) []string {
	id, node := strconv.FormatUint(as.Job, 10), string(la.cfg.Node)
	cpus := strconv.FormatInt(max(1, (as.CpuMilli+999)/1000), 10)
	env := []string{
		"SLURM_JOB_ID=" + id, "SLURM_JOBID=" + id, "SLURM_JOB_NAME=" + as.Name,
		"SLURM_JOB_USER=" + as.User, "SLURM_JOB_UID=" + strconv.FormatUint(uint64(as.Uid), 10),
		"SLURM_JOB_GID=" + strconv.FormatUint(uint64(as.Gid), 10),
		"SLURM_JOB_NODELIST=" + node, "SLURM_NODELIST=" + node, "SLURMD_NODENAME=" + node, "SLURM_NODE_ALIASES=(null)",
		"SLURM_JOB_NUM_NODES=1", "SLURM_NNODES=1",
		"SLURM_CPUS_ON_NODE=" + cpus, "SLURM_JOB_CPUS_PER_NODE=" + cpus,
		"SLURM_PROCID=0", "SLURM_LOCALID=0", "SLURM_NODEID=0", "SLURM_GTIDS=0",
		"SLURM_TOPOLOGY_ADDR=" + node, "SLURM_TOPOLOGY_ADDR_PATTERN=node", "SLURM_PRIO_PROCESS=0",
		"ENVIRONMENT=BATCH", "HOSTNAME=" + node,
	}
	if p := as.Partition; p != "" || !sets(as.Env, "SLURM_JOB_PARTITION") {
		env = append(env, "SLURM_JOB_PARTITION="+cmp.Or(p, partitionOfAll))
	}
	if as.Attempt > 1 {
		env = append(env, "SLURM_RESTART_COUNT="+strconv.FormatUint(uint64(as.Attempt-1), 10))
	}
	if as.MemMib > 0 && !sets(as.Env, "SLURM_MEM_PER_CPU") && !sets(as.Env, "SLURM_MEM_PER_GPU") { // srun accepts only one of them
		env = append(env, "SLURM_MEM_PER_NODE="+strconv.FormatInt(as.MemMib, 10))
	}
	if n := len(as.Gpus); n > 0 {
		// The list holds ordinals within the job, which every runtime shows it; other GPUs
		// of the node have no number here.
		index := make([]string, n)
		for i := range index {
			index[i] = strconv.Itoa(i)
		}
		env = append(env, "SLURM_GPUS_ON_NODE="+strconv.Itoa(n), "SLURM_JOB_GPUS="+strings.Join(index, ","))
	}
	return append(env, slurmRanks(as, cpus)...)
}

// sets reports whether an environment has a variable.
func sets(env [][]byte, name string) bool {
	for _, line := range env {
		if bytes.HasPrefix(line, []byte(name+"=")) {
			return true
		}
	}
	return false
}

// slurmRanks returns what slurmEnv adds and changes for an attempt of several processes.
// The batch step of a job on several nodes is one process on the first: the request says
// how many tasks its steps have.
func slurmRanks(as *nodev1.Assignment, cpus string) []string {
	r := as.GetRanks()
	if r == nil {
		return nil
	}
	num := strconv.Itoa
	nodes, tasks, node := len(r.Nodes), int(r.Tasks), int(r.NodeRank)
	list, times := nodeList(r), ""
	if nodes > 1 {
		times = fmt.Sprintf("(x%d)", nodes)
	}
	env := []string{
		"SLURM_JOB_NODELIST=" + list, "SLURM_NODELIST=" + list, "SLURM_JOB_NUM_NODES=" + num(nodes), "SLURM_NNODES=" + num(nodes),
		"SLURM_NODEID=" + num(node), "SLURM_JOB_CPUS_PER_NODE=" + cpus + times,
	}
	if batchStep(as) {
		return append(env, stepTasks(as, nodes)...)
	}
	return append(env, "SLURM_NTASKS="+num(nodes*tasks), "SLURM_NPROCS="+num(nodes*tasks), "SLURM_NTASKS_PER_NODE="+num(tasks),
		"SLURM_TASKS_PER_NODE="+num(tasks)+times, "SLURM_GTIDS="+taskIDs(node*tasks, tasks))
}

// stepTasks returns how many tasks the steps of a batch script have if its request could
// not say, because it left the number of nodes open.
func stepTasks(as *nodev1.Assignment, nodes int) []string {
	if sets(as.Env, "SLURM_TASKS_PER_NODE") {
		return nil
	}
	each, said := 1, false
	for _, line := range as.Env {
		if v, ok := bytes.CutPrefix(line, []byte("SLURM_NTASKS_PER_NODE=")); ok {
			n, err := strconv.Atoi(string(v))
			if err == nil && n > 0 && n <= cluster.MaxTasks {
				each, said = n, true
			}
		}
	}
	times := ""
	if nodes > 1 {
		times = fmt.Sprintf("(x%d)", nodes)
	}
	env := []string{"SLURM_TASKS_PER_NODE=" + strconv.Itoa(each) + times}
	if said {
		all := strconv.Itoa(each * nodes)
		env = append(env, "SLURM_NTASKS="+all, "SLURM_NPROCS="+all)
	}
	return env
}

// batchStep reports whether an attempt on several nodes, or of a job that may have several,
// is a batch script, which runs only on the first of them and starts its tasks on all by
// srun.
func batchStep(as *nodev1.Assignment) bool {
	r := as.GetRanks()
	return len(as.GetScript()) > 0 && len(r.GetNodes()) > 0 && r.GetTasks() < 2
}

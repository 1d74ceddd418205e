package launcher

import (
	"path/filepath"
	"strconv"
	"strings"

	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/agent/ranks"
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/hostnames"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// placeRanks makes l run one process for each rank of this node, if there are several, each
// with the variables that tell it its rank.
func (la *Launcher) placeRanks(l *launch.Launch, as *nodev1.Assignment) {
	r := as.GetRanks()
	if r == nil || r.Tasks < 2 || l.Ranks != nil {
		return
	}
	cfg := launch.Ranks{
		Tasks: int(r.Tasks), First: int(r.NodeRank * r.Tasks), Grace: la.cfg.Grace, Slurm: len(as.Script) > 0,
	}
	if as.Grace != nil {
		cfg.Grace = as.Grace.AsDuration()
	}
	perRank := func(pattern []byte) []byte {
		p := expandPath(string(pattern), as, string(la.cfg.Node), launch.RankMark)
		if as.Image != "" || !strings.Contains(p, launch.RankMark) {
			return nil
		}
		if !filepath.IsAbs(p) {
			p = filepath.Join(l.Dir, p)
		}
		return []byte(p)
	}
	cfg.Stdout, cfg.Stderr = perRank(as.Stdout), perRank(as.Stderr)
	if len(cfg.Stderr) == 0 && len(cfg.Stdout) > 0 && len(as.Stderr) > 0 {
		cfg.Stderr = []byte(l.Stderr)
	}
	l.Ranks = &cfg
}

// rankEnv returns what an attempt of several processes must know about them: the variables
// of torch, MPI and our own. With one process per node they include its rank; with several,
// each gets its own.
func rankEnv(as *nodev1.Assignment) []string {
	r := as.GetRanks()
	if r == nil {
		return nil
	}
	if batchStep(as) {
		// The ranks are those of its steps.
		return []string{"MASTER_ADDR=" + r.MasterAddr, "MASTER_PORT=" + strconv.Itoa(int(r.MasterPort)), "BERTH_NODES=" + strconv.Itoa(len(r.Nodes)), "BERTH_NODELIST=" + nodeList(r)}
	}
	if r.Most > 0 {
		return elasticEnv(as)
	}
	num := func(n int) string { return strconv.Itoa(n) }
	nodes, tasks, node := len(r.Nodes), int(r.Tasks), int(r.NodeRank)
	list := nodeList(r)
	env := []string{
		"MASTER_ADDR=" + r.MasterAddr, "MASTER_PORT=" + num(int(r.MasterPort)),
		"WORLD_SIZE=" + num(nodes*tasks), "LOCAL_WORLD_SIZE=" + num(tasks), "NODE_RANK=" + num(node), "GROUP_RANK=" + num(node),
		"BERTH_NODES=" + num(nodes), "BERTH_NODE_RANK=" + num(node), "BERTH_NODELIST=" + list, "BERTH_TASKS=" + num(tasks),
	}
	if tasks == 1 {
		env = append(env, ranks.Env(node, 0, len(as.Script) > 0)...)
	}
	return env
}

const (
	// lastCall is how many seconds nodes at a rendezvous wait for further ones once the
	// minimum is there: Berth starts them together.
	lastCall = 5
	// maxRestarts is how often workers restart after failures, such as a node that leaves
	// in the middle of a step.
	maxRestarts = 30
)

// elasticEnv tells the program of a job whose nodes come and go where to meet and how many
// nodes there may be: nothing that changes while it runs. torchrun reads its options from
// variables named PET_ and the option.
func elasticEnv(as *nodev1.Assignment) []string {
	r, num := as.GetRanks(), func(n uint32) string { return strconv.FormatUint(uint64(n), 10) }
	at, host := r.MasterAddr+":"+num(r.MasterPort), "0"
	if r.NodeRank == 0 {
		host = "1"
	}
	return []string{
		"MASTER_ADDR=" + r.MasterAddr, "MASTER_PORT=" + num(r.MasterPort),
		"BERTH_NODES=" + strconv.Itoa(len(r.Nodes)), "BERTH_NODELIST=" + nodeList(r), "BERTH_NODES_MIN=" + num(r.Least), "BERTH_NODES_MAX=" + num(r.Most),
		"BERTH_RDZV_ENDPOINT=" + at, "BERTH_RDZV_HOST=" + host,
		"PET_NNODES=" + num(r.Least) + ":" + num(r.Most), "PET_RDZV_BACKEND=c10d", "PET_RDZV_ENDPOINT=" + at,
		"PET_RDZV_ID=berth-" + strconv.FormatUint(as.Job, 10) + "-" + num(as.Attempt), "PET_RDZV_CONF=is_host=" + host + ",last_call_timeout=" + strconv.Itoa(lastCall),
		"PET_MAX_RESTARTS=" + strconv.Itoa(maxRestarts),
	}
}

func nodeList(r *nodev1.Ranks) string {
	ids := make([]cluster.NodeID, len(r.GetNodes()))
	for i, n := range r.GetNodes() {
		ids[i] = cluster.NodeID(n)
	}
	return hostnames.Fold(ids)
}

// taskIDs lists the ranks of a node.
func taskIDs(first, n int) string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = strconv.Itoa(first + i)
	}
	return strings.Join(ids, ",")
}

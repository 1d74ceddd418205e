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

// placeRanks makes l run one process for each rank of this node, if there are
// several, each with what tells it its rank.
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

// rankEnv is what tells an attempt of several processes about them: for torch
// and for MPI by hand, and our own. With one process on each node it holds that
// one's rank, too; with several each gets its own.
func rankEnv(as *nodev1.Assignment) []string {
	r := as.GetRanks()
	if r == nil {
		return nil
	}
	if batchStep(as) {
		// Its ranks are those of its steps.
		return []string{"MASTER_ADDR=" + r.MasterAddr, "MASTER_PORT=" + strconv.Itoa(int(r.MasterPort)), "BERTH_NODES=" + strconv.Itoa(len(r.Nodes)), "BERTH_NODELIST=" + nodeList(r)}
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

package agent

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/berth-scheduler/berth/agent/ranks"
	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// barrier holds back the start of an attempt on several nodes: it says that this
// node is ready, and waits for the word that all are. Saying so again, after a
// restart, changes nothing. It reports wait while the attempt may not start; one
// that is to make room meanwhile has nothing to save and ends.
func (t *task) barrier(ctx context.Context, as *nodev1.Assignment) (wait bool, err error) {
	if as.Ranks == nil || as.Ranks.Go {
		return false, nil
	}
	if as.Preempt != nil {
		return true, t.ended(&nodev1.Report{State: nodev1.AttemptState_ATTEMPT_STATE_CANCELLED})
	}
	if !t.ready {
		t.ready = true
		t.log.Info("ready; waiting for the other nodes")
		t.agent.out.put(&nodev1.Report{
			Job: uint64(t.id.Job), Attempt: t.id.No, Token: uint64(t.token),
			State: nodev1.AttemptState_ATTEMPT_STATE_STARTING, Ready: true,
		})
	}
	t.await(ctx, inspectEvery)
	return true, nil
}

// placeRanks makes l run one process for each rank of this node, if there are
// several, each with what tells it its rank.
func (a *Agent) placeRanks(l *Launch, as *nodev1.Assignment) {
	r := as.GetRanks()
	if r == nil || r.Tasks < 2 {
		return
	}
	cfg := ranks.Config{
		Tasks: int(r.Tasks), First: int(r.NodeRank * r.Tasks), Grace: a.cfg.Grace, Slurm: len(as.Script) > 0,
	}
	if as.Grace != nil {
		cfg.Grace = as.Grace.AsDuration()
	}
	perRank := func(pattern []byte) []byte {
		p := expandPath(string(pattern), as, string(a.cfg.Node), ranks.Mark)
		if as.Image != "" || !strings.Contains(p, ranks.Mark) {
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
	num := func(n int) string { return strconv.Itoa(n) }
	nodes, tasks, node := len(r.Nodes), int(r.Tasks), int(r.NodeRank)
	list := nodeList(r)
	env := []string{
		"MASTER_ADDR=" + r.MasterAddr, "MASTER_PORT=" + num(int(r.MasterPort)),
		"WORLD_SIZE=" + num(nodes*tasks), "LOCAL_WORLD_SIZE=" + num(tasks), "NODE_RANK=" + num(node), "GROUP_RANK=" + num(node),
		"BERTH_NODES=" + num(nodes), "BERTH_NODE_RANK=" + num(node), "BERTH_NODELIST=" + list, "BERTH_TASKS=" + num(tasks),
	}
	slurm := len(as.Script) > 0
	if slurm {
		times := ""
		if nodes > 1 {
			times = fmt.Sprintf("(x%d)", nodes)
		}
		cpus := num(int(max(1, (as.CpuMilli+999)/1000)))
		env = append(env,
			"SLURM_JOB_NODELIST="+list, "SLURM_NODELIST="+list, "SLURM_JOB_NUM_NODES="+num(nodes), "SLURM_NNODES="+num(nodes),
			"SLURM_NODEID="+num(node), "SLURM_NTASKS="+num(nodes*tasks), "SLURM_NPROCS="+num(nodes*tasks),
			"SLURM_NTASKS_PER_NODE="+num(tasks), "SLURM_TASKS_PER_NODE="+num(tasks)+times, "SLURM_JOB_CPUS_PER_NODE="+cpus+times,
			"SLURM_GTIDS="+taskIDs(node*tasks, tasks))
	}
	if tasks == 1 {
		env = append(env, ranks.Env(node, 0, slurm)...)
	}
	return env
}

func nodeList(r *nodev1.Ranks) string {
	ids := make([]cluster.NodeID, len(r.GetNodes()))
	for i, n := range r.GetNodes() {
		ids[i] = cluster.NodeID(n)
	}
	return cluster.FoldNames(ids)
}

// taskIDs lists the ranks of a node.
func taskIDs(first, n int) string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = strconv.Itoa(first + i)
	}
	return strings.Join(ids, ",")
}

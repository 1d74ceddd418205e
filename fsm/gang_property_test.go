package fsm

import (
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// spread lays a start on several nodes, mostly on those that the job asks for.
func (w *world) spread(st *dispatch.Start, j *cluster.Job, gpus []cluster.GPUID, owner map[cluster.GPUID]cluster.NodeID) {
	var all []cluster.Berth
	for _, id := range worldNodes {
		b := cluster.Berth{Node: id, CPUMilli: 16_000, MemMiB: 10_000}
		sh := w.share()
		if j.Spec.Exclusive || j.NeedWhole {
			sh = cluster.Share{MemMiB: 40_000, Milli: cluster.WholeGPU, Exclusive: true}
		}
		for _, g := range gpus {
			if owner[g] == id && len(b.GPUs) < j.Spec.GPUs {
				b.GPUs = append(b.GPUs, cluster.GPUShare{GPU: g, Share: sh})
			}
		}
		all = append(all, b)
	}
	if w.draw("twice", 12) == 0 {
		all[1] = all[0]
	}
	if n := w.draw("skip", 2); len(all)-n >= j.Spec.Nodes {
		all = all[n:]
	}
	if len(all) >= j.Spec.Nodes && w.draw("too many", 12) > 0 {
		all = all[:j.Spec.Nodes]
	}
	st.Berth, st.Rest = all[0], all[1:]
	if w.draw("port", 2) == 0 {
		st.Port = 20_000 + uint16(w.draw("at", 100))
	}
}

// undo gives up a gang, mostly one that waits for its parts.
func (w *world) undo() *logv1.Command {
	j, ok := w.pick(cluster.JobStarting)
	if !ok || w.draw("any", 4) == 0 {
		if j, ok = w.pick(); !ok {
			return undoCmd(99, 1)
		}
	}
	return undoCmd(j.ID, uint32(len(j.Attempts)))
}

func undoCmd(id cluster.JobID, attempt uint32) *logv1.Command {
	return &logv1.Command{Kind: &logv1.Command_UndoGang{UndoGang: &logv1.UndoGang{Job: uint64(id), Attempt: attempt, Why: "n2 was not ready"}}}
}

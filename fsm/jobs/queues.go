// Package jobs is the part of the state machine for jobs: sets of jobs ordered by
// id, the queues of GPUs, arrays and dependencies.
package jobs

import (
	"cmp"
	"slices"
	"sort"

	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/fsm/table"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// waitersPerRecord keeps the records of long queues small.
const waitersPerRecord = 10_000

// Queues holds the waiters of each GPU, ordered by rank and then by job. None is
// empty, and none is ever changed in place: a snapshot may hold it.
type Queues struct {
	byGPU *table.Table[cluster.GPUID, []dispatch.Waiter]
}

// NewQueues returns empty queues.
func NewQueues(h *table.Hash) Queues {
	return Queues{table.New(h, table.Of[cluster.GPUID, []dispatch.Waiter]{
		Kind: table.Queue, Key: table.Text[cluster.GPUID], Compare: cmp.Compare[cluster.GPUID],
		Record: func(gpu cluster.GPUID, q []dispatch.Waiter) proto.Message { return queueRecord(gpu, q) },
	})}
}

// Of returns the waiters of a GPU, in order.
func (q *Queues) Of(gpu cluster.GPUID) []dispatch.Waiter { return q.byGPU.Get(gpu) }

// All returns the queues by GPU. The caller must not modify them.
func (q *Queues) All() map[cluster.GPUID][]dispatch.Waiter { return q.byGPU.Rows() }

// Set replaces the queue of a GPU; the caller must not modify it afterwards.
func (q *Queues) Set(gpu cluster.GPUID, waiters []dispatch.Waiter) {
	if len(waiters) == 0 {
		q.byGPU.Drop(gpu)
		return
	}
	q.byGPU.Put(gpu, waiters)
}

// Leave removes j, which waits, from its queue; the caller stores j.
func (q *Queues) Leave(j *cluster.Job) {
	if j.Queue == "" {
		if j.Promised != nil {
			j.EstStart, j.Promised = 0, nil
		}
		return
	}
	all := q.byGPU.Get(j.Queue)
	switch i := slices.IndexFunc(all, func(w dispatch.Waiter) bool { return w.Job == j.ID }); {
	case i == 0:
		q.Set(j.Queue, all[1:])
	case i > 0:
		// A snapshot may hold the old slice: never change it in place.
		q.Set(j.Queue, slices.Concat(all[:i], all[i+1:]))
	}
	j.State, j.Queue, j.EstStart = cluster.JobPending, "", 0
}

// edit gathers the changes to one queue, so that moving many jobs costs one pass
// over the queue rather than one each.
type edit struct {
	drop map[cluster.JobID]struct{}
	add  []dispatch.Waiter
}

// Edits are the edits of queues by GPU.
type Edits map[cluster.GPUID]*edit

// Drop removes a job from the queue of a GPU.
func (es Edits) Drop(gpu cluster.GPUID, id cluster.JobID) { es.of(gpu).drop[id] = struct{}{} }

// Add adds a waiter to the queue of a GPU.
func (es Edits) Add(gpu cluster.GPUID, w dispatch.Waiter) { es.of(gpu).add = append(es.of(gpu).add, w) }

func (es Edits) of(gpu cluster.GPUID) *edit {
	if es[gpu] == nil {
		es[gpu] = &edit{drop: map[cluster.JobID]struct{}{}}
	}
	return es[gpu]
}

// Commit applies the edits. Each queue is independent of the others.
func (q *Queues) Commit(es Edits) {
	for _, gpu := range table.SortedKeys(es) {
		e, old := es[gpu], q.byGPU.Get(gpu)
		slices.SortFunc(e.add, dispatch.Waiter.Compare)
		next := make([]dispatch.Waiter, 0, len(old)+len(e.add))
		add := e.add
		for _, w := range old {
			if _, gone := e.drop[w.Job]; gone {
				continue
			}
			n := sort.Search(len(add), func(i int) bool { return w.Compare(add[i]) < 0 })
			next = append(append(next, add[:n]...), w)
			add = add[n:]
		}
		q.Set(gpu, append(next, add...))
	}
}

// View returns a copy for writing a snapshot; it does not change.
func (q *Queues) View() Queues { return Queues{q.byGPU.View()} }

// Each sends all records.
func (q *Queues) Each(w *table.Writer) {
	for _, gpu := range q.byGPU.Keys() {
		for part := range slices.Chunk(q.byGPU.Get(gpu), waitersPerRecord) {
			w.Send(&logv1.Record{Kind: &logv1.Record_Queue{Queue: queueRecord(gpu, part)}})
		}
	}
}

// Load restores a record that Each sent: the next part of a GPU's queue.
func (q *Queues) Load(gpu cluster.GPUID, m *logv1.Queue) {
	all := q.byGPU.Get(gpu)
	for _, w := range m.Waiters {
		all = append(all, dispatch.Waiter{Job: cluster.JobID(w.Job), Rank: w.Rank})
	}
	q.Set(gpu, all)
}

func queueRecord(g cluster.GPUID, q []dispatch.Waiter) *logv1.Queue {
	m := &logv1.Queue{Gpu: string(g), Waiters: make([]*logv1.Waiter, 0, len(q))}
	for _, w := range q {
		m.Waiters = append(m.Waiters, &logv1.Waiter{Job: uint64(w.Job), Rank: w.Rank})
	}
	return m
}

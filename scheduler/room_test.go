package scheduler_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/accounting"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler"
)

// full is a small cluster on which nothing is free for a job of a class that
// may end others'.
type full struct {
	nodes   []*cluster.Node
	running []*cluster.Job
	high    *cluster.Job
	now     cluster.Time
}

// classes say that high ends low, and nobody else anybody.
var classes = map[string]*accounting.QOS{
	"high": {Name: "high", Priority: 9, Preempts: []string{"low"}}, "low": {Name: "low"}, "mid": {Name: "mid"},
}

func drawFull(t *rapid.T) full {
	f := full{now: cluster.Time(100 * time.Hour.Microseconds())}
	for i := range rapid.IntRange(1, 3).Draw(t, "nodes") {
		n := &cluster.Node{ID: cluster.NodeID(fmt.Sprintf("n%d", i)), State: cluster.NodeReady, CPUMilli: 8000, MemMiB: 64_000}
		for k := range rapid.IntRange(1, 2).Draw(t, "cards") {
			n.GPUs = append(n.GPUs, cluster.GPU{ID: cluster.GPUID(fmt.Sprintf("n%d-g%d", i, k)), Type: "A", MemMiB: 40_000, SellableMiB: 40_000, MaxShares: 3, CapMode: "sim"})
		}
		f.nodes = append(f.nodes, n)
	}
	led := dispatch.NewLedger(f.nodes)
	for id := range cluster.JobID(rapid.IntRange(1, 7).Draw(t, "running")) {
		n := rapid.SampledFrom(f.nodes).Draw(t, "on")
		g := rapid.SampledFrom(n.GPUs).Draw(t, "card")
		milli := rapid.SampledFrom([]int64{200, 300, 500, 1000}).Draw(t, "milli")
		b := cluster.Berth{
			Node: n.ID, CPUMilli: rapid.SampledFrom([]int64{500, 2000, 4000}).Draw(t, "cores"), MemMiB: 1000,
			GPUs: []cluster.GPUShare{{GPU: g.ID, Share: cluster.Share{MemMiB: 40 * milli, Milli: milli, Exclusive: milli == 1000}}},
		}
		if led.Fits(&b).Code != "" {
			continue
		}
		led.Take(&b)
		j := &cluster.Job{
			ID: id + 1, State: cluster.JobRunning, Spec: &cluster.Spec{GPUs: 1, QOS: rapid.SampledFrom([]string{"low", "low", "low", "mid", ""}).Draw(t, "qos")},
			Attempts: []cluster.Attempt{{No: 1, State: cluster.JobRunning, GPUMilli: milli, Berth: b,
				Started: f.now.Add(-time.Duration(rapid.IntRange(1, 50).Draw(t, "hours")) * time.Hour)}},
		}
		if rapid.IntRange(0, 4).Draw(t, "hook") > 0 {
			j.Spec.Checkpoint = cluster.Checkpoint{Signal: "TERM", Grace: time.Second}
		}
		f.running = append(f.running, j)
	}
	milli := rapid.SampledFrom([]int64{300, 600, 1000}).Draw(t, "asks")
	f.high = &cluster.Job{
		ID: 99, State: cluster.JobPending,
		Spec:      &cluster.Spec{GPUs: 1, QOS: "high", GPUMemMiB: 30 * milli, GPUMilli: milli, CPUMilli: rapid.SampledFrom([]int64{1000, 5000}).Draw(t, "its cores"), MemMiB: 1000},
		Estimates: []cluster.Estimate{{GPUType: "A", GPUMemMiB: 30 * milli, GPUMemP95MiB: 30 * milli, Milli: milli, Duration: time.Hour, ConfidenceMilli: 1000, Source: "declared"}},
	}
	return f
}

func (f *full) snapshot() *dispatch.Snapshot {
	return &dispatch.Snapshot{
		Now: f.now, Nodes: f.nodes, Ledger: f.ledger(nil), Waiting: []*cluster.Job{f.high}, Running: f.running,
		Standing: &accounting.Standing{QOS: classes},
	}
}

// ledger is what is taken when some of those who run are gone.
func (f *full) ledger(gone []cluster.JobID) *dispatch.Ledger {
	led := dispatch.NewLedger(f.nodes)
	for _, j := range f.running {
		if !slices.Contains(gone, j.ID) {
			led.Take(&j.Attempts[0].Berth)
		}
	}
	return led
}

// fitsOn reports whether the job has room on a node when some are gone, by asking the
// ledger about every card.
func (f *full) fitsOn(n *cluster.Node, gone []cluster.JobID) bool {
	led := f.ledger(gone)
	for i := range n.GPUs {
		sh := cluster.Share{MemMiB: f.high.Spec.GPUMemMiB, Milli: f.high.Spec.GPUMilli}
		b := cluster.Berth{Node: n.ID, CPUMilli: f.high.Spec.CPUMilli, MemMiB: f.high.Spec.MemMiB, GPUs: []cluster.GPUShare{{GPU: n.GPUs[i].ID, Share: sh}}}
		if led.Fits(&b).Code == "" {
			return true
		}
	}
	return false
}

// mayEnd are those on a node that make room for the job.
func (f *full) mayEnd(n *cluster.Node) (ids []cluster.JobID) {
	for _, j := range f.running {
		if j.Attempts[0].Berth.Node == n.ID && j.Spec.QOS == "low" && j.Spec.Checkpoint.Set() {
			ids = append(ids, j.ID)
		}
	}
	return ids
}

// lost is what all of them together would lose: how long each ran of how much, and
// something for each besides.
func (f *full) lost(ids []cluster.JobID) (sum int64) {
	for _, j := range f.running {
		if a := &j.Attempts[0]; slices.Contains(ids, j.ID) {
			ran := f.now.Sub(a.Started).Milliseconds()
			sum += ran*(a.GPUMilli+a.Berth.CPUMilli/16) + 60_000*cluster.WholeGPU
		}
	}
	return sum
}

// TestRoomIsMadeWithTheFewest: for a job that fits nowhere those are ended, on one
// node, without whom it fits, each of them needed, and only such as make room for
// it; nobody where it fits already, or would not fit even then; and no single
// one elsewhere would have lost less.
func TestRoomIsMadeWithTheFewest(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := drawFull(t)
		p := scheduler.Schedule(f.snapshot(), scheduler.Default())
		var ended []cluster.JobID
		for _, x := range p.Preempt {
			if x.For != f.high.ID || x.Attempt != 1 {
				t.Fatalf("preemption %+v", x)
			}
			ended = append(ended, x.Job)
		}
		possible := false
		for _, n := range f.nodes {
			if f.fitsOn(n, nil) {
				if len(ended) > 0 || len(p.Starts) != 1 {
					t.Fatalf("it fits on %s: starts %v, ends %v", n.ID, p.Starts, ended)
				}
				return
			}
			possible = possible || f.fitsOn(n, f.mayEnd(n))
		}
		if len(p.Starts) > 0 {
			t.Fatalf("it fits nowhere and starts: %+v", p.Starts[0])
		}
		if possible != (len(ended) > 0) {
			t.Fatalf("room can be made: %t, ends %v", possible, ended)
		}
		if !possible {
			return
		}
		at := slices.IndexFunc(f.nodes, func(n *cluster.Node) bool { return slices.Contains(f.mayEnd(n), ended[0]) })
		if at < 0 {
			t.Fatalf("job %d is ended and makes room for nobody", ended[0])
		}
		n := f.nodes[at]
		for i, id := range ended {
			if !slices.Contains(f.mayEnd(n), id) {
				t.Fatalf("job %d is ended, which makes no room on %s", id, n.ID)
			}
			if without := slices.Concat(ended[:i], ended[i+1:]); f.fitsOn(n, without) {
				t.Fatalf("%v are ended on %s, %v would do", ended, n.ID, without)
			}
		}
		if !f.fitsOn(n, ended) {
			t.Fatalf("%v are ended on %s, and it fits not even then", ended, n.ID)
		}
		for _, other := range f.nodes {
			for _, id := range f.mayEnd(other) {
				if one := []cluster.JobID{id}; f.fitsOn(other, one) && f.lost(one) < f.lost(ended) && other != n {
					t.Fatalf("%v are ended on %s and lose %d, job %d alone on %s would lose %d", ended, n.ID, f.lost(ended), id, other.ID, f.lost(one))
				}
			}
		}
	})
}

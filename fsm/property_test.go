package fsm

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// world draws commands that make sense now and then: about jobs and nodes
// that exist, and plans from a view that may be old.
type world struct {
	t    *rapid.T
	f    *FSM
	seen *dispatch.Snapshot
	rids int
}

// worldKeep is so few finished jobs that most logs forget some.
const worldKeep = 3

var (
	worldNodes = []cluster.NodeID{"n1", "n2", "n3"}
	worldBoots = []string{"boot1", "boot2"}
)

func (w *world) draw(kind string, n int) int { return rapid.IntRange(0, n-1).Draw(w.t, kind) }

func (w *world) spec() *cluster.Spec {
	s := spec(rapid.SampledFrom([]int{0, 1, 1, 1, 2}).Draw(w.t, "gpus"))
	s.RequeueOnLoss = rapid.Bool().Draw(w.t, "requeue")
	s.Signature = rapid.SampledFrom([]string{"", "a", "b"}).Draw(w.t, "signature")
	if s.GPUs > 0 {
		s.Exclusive = w.draw("exclusive", 5) == 0
		s.OrCPU = s.GPUs > 0 && w.draw("or cpu", 3) == 0
		s.GPUMemMiB = rapid.SampledFrom([]int64{0, 0, 10_000}).Draw(w.t, "declared")
		s.GPUType = rapid.SampledFrom([]string{"", "", "A100", "H100"}).Draw(w.t, "type")
	}
	if w.draw("hook", 2) == 0 {
		s.Checkpoint = cluster.Checkpoint{Signal: "USR1", Grace: time.Minute}
	}
	if ps := w.f.Partitions(); len(ps) > 0 && w.draw("partition", 3) > 0 {
		s.Partition = rapid.SampledFrom(append(ps, &cluster.Partition{Name: "none"})).Draw(w.t, "of").Name
	}
	s.Name, s.Mail = rapid.SampledFrom([]string{"x", "y"}).Draw(w.t, "name"), w.mail()
	s.Hold = w.draw("held", 8) == 0
	if w.draw("large", 8) == 0 {
		s.Env = []string{rapid.SampledFrom(worldBulks).Draw(w.t, "of")}
	}
	if w.draw("begins", 8) == 0 {
		s.Begin = w.f.Now().Add(time.Duration(w.draw("in", 600)) * time.Second)
	}
	if w.draw("depends", 3) == 0 {
		for range 1 + w.draw("on", 2) {
			d := cluster.Dependency{Kind: rapid.SampledFrom(cluster.DependKinds()).Draw(w.t, "kind")}
			if d.Kind != cluster.Singleton {
				w.on(&d)
			}
			s.Depends = append(s.Depends, d)
		}
		s.DependAny, s.KillInvalidDepend = rapid.Bool().Draw(w.t, "any"), rapid.Bool().Draw(w.t, "kill")
	}
	if w.draw("array", 3) == 0 {
		s.Array = w.array()
	}
	if w.draw("gang", 3) == 0 {
		s.Nodes, s.OrCPU = 2+w.draw("nodes", 2), false
	}
	if s.Tasks = w.draw("tasks", 3); s.Nodes == 0 && w.draw("pinned", 8) == 0 {
		s.Node = rapid.SampledFrom(worldNodes).Draw(w.t, "node")
	}
	w.inPlace(s)
	return s
}

// partition adds, changes or removes one, most often by what is known of it.
func (w *world) partition() *logv1.Command {
	p := &cluster.Partition{
		Name: rapid.SampledFrom([]string{"a", "b"}).Draw(w.t, "partition"), Default: rapid.Bool().Draw(w.t, "default"), Down: w.draw("down", 3) == 0,
		Nodes: hosts(w.t, rapid.SampledFrom([]string{"ALL", "n1", "n[1-2]", "n3"}).Draw(w.t, "nodes")),
	}
	if w.draw("typed", 3) == 0 {
		p.GPUTypes = []string{"A100"}
	}
	if w.draw("remove", 5) == 0 {
		return removePartitionCmd(p.Name)
	}
	base := uint64(0)
	if old, ok := w.f.Partition(p.Name); ok && w.draw("late", 5) > 0 {
		base = old.Revision
	}
	return partitionCmd(p, base)
}

func (w *world) submit() *logv1.Command {
	rid := fmt.Sprintf("request-%d", w.rids)
	if w.draw("repeat", 6) != 0 || w.rids == 0 {
		w.rids++
		rid = fmt.Sprintf("request-%d", w.rids)
	}
	specs := make([]*cluster.Spec, 1+w.draw("jobs", 3))
	for i := range specs {
		specs[i] = w.spec()
	}
	first := w.f.NextJobID() + cluster.JobID(w.draw("ahead", 3))
	if w.draw("behind", 10) == 0 {
		first = cluster.JobID(w.draw("id", 5))
	}
	return w.naming(submitCmd(first, rid, cluster.UID(1000+w.draw("uid", 3)), specs...))
}

// pick returns a job, mostly one that is there.
func (w *world) pick(states ...cluster.JobState) (*cluster.Job, bool) {
	jobs, _ := w.f.Jobs(Query{States: states})
	if len(jobs) == 0 {
		return nil, false
	}
	return jobs[w.draw("job", len(jobs))], true
}

func (w *world) share() cluster.Share {
	if w.draw("whole", 4) == 0 {
		return cluster.Share{MemMiB: 40_000, Milli: cluster.WholeGPU, Exclusive: true}
	}
	return cluster.Share{
		MemMiB: rapid.SampledFrom([]int64{0, 4000, 10_000, 15_000, 39_999, 50_000, -5, 1 << 62}).Draw(w.t, "mib"),
		Milli:  rapid.SampledFrom([]int64{0, 100, 400, 1000, 1001}).Draw(w.t, "milli"),
	}
}

// plan is what a naive placer makes of a snapshot: anywhere, at random.
func (w *world) plan() *logv1.Command {
	if w.seen == nil || w.draw("fresh", 3) == 0 {
		w.seen = w.f.SchedulerSnapshot()
	}
	snap := w.seen
	var p dispatch.Plan
	var gpus []cluster.GPUID
	owner := map[cluster.GPUID]cluster.NodeID{}
	for _, n := range snap.Nodes {
		for i := range n.GPUs {
			gpus = append(gpus, n.GPUs[i].ID)
			owner[n.GPUs[i].ID] = n.ID
		}
	}
	for _, j := range snap.Waiting {
		switch w.draw("decision", 4) {
		case 0:
			if len(gpus) == 0 {
				continue
			}
			m := dispatch.QueueMove{Job: j.ID, GPU: gpus[w.draw("gpu", len(gpus))], Rank: int64(w.draw("rank", 4)), Reason: cluster.ReasonResources}
			if w.draw("out", 4) == 0 {
				m.GPU = ""
			}
			p.Moves = append(p.Moves, m)
		case 1, 2:
			p.Starts = append(p.Starts, w.start(j, gpus, owner))
		}
	}
	// Parts that no scheduler would plan: of jobs that run or are over.
	if j, ok := w.pick(); ok && len(gpus) > 0 && w.draw("bogus", 2) == 0 {
		p.Starts = append(p.Starts, w.start(j, gpus, owner))
		p.Moves = append(p.Moves, dispatch.QueueMove{Job: j.ID, GPU: gpus[w.draw("gpu", len(gpus))], Rank: -1})
	}
	p.BaseIndex = snap.Index
	return planCmd(p)
}

func (w *world) start(j *cluster.Job, gpus []cluster.GPUID, owner map[cluster.GPUID]cluster.NodeID) dispatch.Start {
	st := dispatch.Start{Job: j.ID, Attempt: uint32(len(j.Attempts)) + 1, Why: "at random"}
	if w.draw("secret", 2) == 0 {
		st.Secret = cluster.Secret("secret of " + j.ID.String())
	}
	st.Berth = cluster.Berth{Node: rapid.SampledFrom(worldNodes).Draw(w.t, "on"), CPUMilli: 16_000, MemMiB: 10_000}
	n := j.Spec.GPUs
	switch w.draw("miscount", 12) {
	case 0:
		n++
	case 1, 2:
		n = 0
	}
	for i, g := range gpus {
		if len(st.Berth.GPUs) < n && (len(gpus)-i <= n || w.draw("take", 2) == 0) {
			sh := w.share()
			if j.Spec.Exclusive || j.NeedWhole {
				sh = cluster.Share{MemMiB: 40_000, Milli: cluster.WholeGPU, Exclusive: true}
			}
			st.Berth.GPUs = append(st.Berth.GPUs, cluster.GPUShare{GPU: g, Share: sh})
			st.Berth.Node = owner[g]
		}
	}
	if j.Spec.Nodes > 1 && w.draw("one node", 8) > 0 {
		w.spread(&st, j, gpus, owner)
	}
	if w.draw("overtakes", 3) == 0 {
		st.Overtook = "shorter than what is before it"
	}
	if w.draw("estimated", 2) == 0 {
		st.Estimate = cluster.Estimate{GPUType: "A100", Source: "none"}
	}
	return st
}

func (w *world) report() *logv1.Command {
	j, ok := w.pick()
	if !ok || len(j.Attempts) == 0 {
		if j, ok = w.pick(cluster.JobStarting, cluster.JobRunning, cluster.JobUnreachable, cluster.JobCompleting); !ok {
			return reportCmd(&logv1.ReportAttempt{Node: "n1", Job: 1, Attempt: 1, State: uint32(cluster.JobRunning)})
		}
	}
	a := j.Attempts[w.draw("attempt", len(j.Attempts))]
	rank := w.draw("rank", a.Nodes())
	on, token := a.BerthAt(rank).Node, uint64(a.TokenOf(rank))
	if a.Gang != nil && w.draw("ready", 3) > 0 {
		return reportCmd(&logv1.ReportAttempt{Node: string(on), Job: uint64(j.ID), Attempt: a.No, Token: token, State: uint32(cluster.JobStarting), Ready: true})
	}
	r := &logv1.ReportAttempt{Node: string(on), Job: uint64(j.ID), Attempt: a.No, Token: token}
	r.State = uint32(rapid.SampledFrom([]cluster.JobState{
		cluster.JobStarting, cluster.JobRunning, cluster.JobRunning, cluster.JobCompleting, cluster.JobCompleted, cluster.JobFailed,
		cluster.JobTimeout, cluster.JobOutOfMemory, cluster.JobOutOfMemory, cluster.JobNodeFail, cluster.JobCancelled,
		cluster.JobPreempted, cluster.JobPreempted, cluster.JobDeadline, cluster.JobUnreachable, cluster.JobPending, cluster.JobQueued, 0, 77,
	}).Draw(w.t, "state"))
	if w.draw("high bits", 12) == 0 {
		r.State += 256 // must not be taken for the state in its low byte
	}
	if w.draw("lies", 8) == 0 {
		r.Token++
	}
	if w.draw("elsewhere", 12) == 0 {
		r.Node = "n2"
	}
	if w.draw("measured", 3) != 0 {
		r.Usage = &logv1.Usage{GpuMemPeakMib: int64(w.draw("peak", 50_000)), Milli: rapid.SampledFrom([]int64{-1, 0, 400, 1000, 1001}).Draw(w.t, "used"),
			PowerW: rapid.SampledFrom([]int64{-1, 0, 300, 1 << 40}).Draw(w.t, "power"), GpuOom: rapid.Bool().Draw(w.t, "oom"), DurationUs: 1 << 40}
		r.Exit = &logv1.Exit{Code: int32(w.draw("code", 300))}
	}
	r.StartedUs = int64(w.f.Now()) + int64(w.draw("clock", 3)-1)*int64(time.Hour/time.Microsecond)
	r.EndedUs = int64(w.draw("ended", 2)) * (int64(w.f.Now()) - 5)
	return reportCmd(r)
}

func (w *world) node() *logv1.Command {
	id := rapid.SampledFrom(worldNodes).Draw(w.t, "node")
	switch w.draw("node command", 10) {
	case 9:
		return drainGPUCmd(id, cluster.GPUID(fmt.Sprintf("%s-g%d", id, w.draw("card", 3))), rapid.Bool().Draw(w.t, "drain card"))
	case 8:
		return fenceCmd(id)
	case 0:
		return silentCmd(id, rapid.SampledFrom(worldBoots).Draw(w.t, "boot"))
	case 1:
		return drainCmd(id, rapid.Bool().Draw(w.t, "drain"))
	case 2:
		if w.draw("remove", 6) == 0 {
			return removeCmd(id)
		}
	}
	n := node(id, rapid.SampledFrom(worldBoots).Draw(w.t, "boot"), 1+w.draw("gpus", 3))
	if w.draw("unshared", 3) == 0 && len(n.GPUs) > 2 {
		n.GPUs[2].CapMode, n.GPUs[2].MaxShares = "none", 1
	}
	if w.draw("scoped", 3) == 0 {
		for i := range n.GPUs {
			n.GPUs[i].Scope = rapid.SampledFrom([]cluster.Scope{cluster.ScopeAnyone, cluster.ScopeSameGroup, cluster.ScopeSameUser, cluster.ScopeNever}).Draw(w.t, "scope")
		}
	}
	if w.draw("unsound", 3) == 0 {
		g := &n.GPUs[w.draw("which", len(n.GPUs))]
		g.State, g.StateReason = rapid.SampledFrom([]cluster.GPUState{cluster.GPUUnknown, cluster.GPUQuarantined, cluster.GPUFailing, cluster.GPULost}).Draw(w.t, "card state"), "Xid 79"
	}
	if w.draw("stolen", 10) == 0 {
		n.GPUs[0].ID = "n1-g0"
	}
	return registerCmd(n)
}

func (w *world) command() *logv1.Command {
	switch w.draw("command", 23) {
	case 19:
		return w.telling()
	case 20, 21, 22:
		return w.changeTasks()
	case 18:
		return w.undo()
	case 16:
		j, ok := w.pick(cluster.JobPending, cluster.JobQueued)
		if !ok || w.draw("any", 4) == 0 {
			if j, ok = w.pick(); !ok {
				return holdCmd(99, 0, false)
			}
		}
		return holdCmd(w.one(j), cluster.UID(w.draw("by", 2)), w.draw("release", 3) > 0)
	case 17:
		j, ok := w.pick(cluster.JobStarting, cluster.JobRunning, cluster.JobUnreachable)
		if !ok || w.draw("any", 4) == 0 {
			if j, ok = w.pick(); !ok {
				return requeueCmd(99, 0, false)
			}
		}
		return requeueCmd(j.ID, cluster.UID(w.draw("by", 2)), w.draw("hold", 2) == 0)
	case 14, 15:
		return w.preempt()
	case 0, 1, 2:
		return w.submit()
	case 3, 4, 5:
		return w.plan()
	case 6, 7, 8, 9:
		return w.report()
	case 10:
		if j, ok := w.pick(); ok {
			return cancelCmd(w.one(j), cluster.UID(w.draw("by", 2)))
		}
		return cancelCmd(99, 0)
	case 11, 12:
		return w.node()
	default:
		return w.rest()
	}
}

func (w *world) rest() *logv1.Command {
	secret := rapid.SampledFrom([]string{"s1", "s2"}).Draw(w.t, "secret")
	switch w.draw("rest", 12) {
	case 11:
		return importCmd(pastRun(w.draw("run", 3)), pastRun(w.draw("run", 3)-w.draw("odd", 2)))
	case 9, 10:
		return w.partition()
	case 8:
		v := w.f.Interference().Version
		return interferenceCmd(v+1-min(v, uint64(w.draw("late", 4)/3)), fmt.Appendf(nil, "%s-%d", secret, v))
	case 5:
		v, _ := w.f.Weights()
		source := rapid.SampledFrom([]string{WeightsLearned, WeightsLearned, WeightsImport, WeightsRollback}).Draw(w.t, "source")
		return installCmd(v+1-uint64(w.draw("late", 4)/3), source, fmt.Appendf(nil, "%s-%d", secret, v))
	case 6:
		v, _ := w.f.Weights()
		return rollbackCmd(v+1-uint64(w.draw("late", 4)/3), uint64(w.draw("to", 12)))
	case 7:
		v, _ := w.f.Weights()
		return pinCmd(v-min(v, uint64(w.draw("late", 4)/3)), rapid.Bool().Draw(w.t, "pin"))
	case 0:
		return tokenCmd(secret, agentRole, "n9", w.f.Now().Add(time.Duration(w.draw("ttl", 3))*time.Minute))
	case 1:
		return useCmd(secret, "n9")
	case 2:
		v, _ := w.f.Weights()
		return weightsCmd(v+uint64(w.draw("version", 2)), []byte(secret))
	case 3:
		deny := denyCmd(agentRole, "n"+secret)
		deny.GetDenyIdentity().Allow = rapid.Bool().Draw(w.t, "allow")
		return deny
	default:
		return initCmd("c1", worldKeep)
	}
}

// TestReplicasAgree: one log on two replicas, of which one goes through a
// snapshot at random entries: after each entry both have one hash, and what
// must hold of any state holds.
func TestReplicasAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := New(Options{Version: "test", Bulk: shelf{}.keep}), New(Options{Version: "test", ChangeRing: 8})
		watch := newWatcher(worldKeep)
		w := &world{t: t, f: a}
		index, term, now := uint64(0), uint64(1), t0
		step := func(cmds ...*logv1.Command) {
			index += 1 + uint64(w.draw("skip", 2))
			now = now.Add(time.Duration(rapid.IntRange(-60, 240).Draw(t, "seconds")) * time.Second)
			entryTerm := term
			if a.st.config != nil && w.draw("deposed", 12) == 0 {
				term++ // the entry is ignored
			}
			data := encode(t, entryTerm, now, cmds...)
			queues := a.SchedulerSnapshot().Queues
			rs, same := applyTo(t, a, index, term, data), applyTo(t, b, index, term, data)
			if plan := cmds[0].GetApplyPlan(); plan != nil && len(cmds) == 1 && rs[0].Plan != nil {
				if err := checkOrder(queues, a, plan, rs[0].Plan); err != nil {
					t.Fatalf("entry %d: %v", index, err)
				}
			}
			if fmt.Sprint(errorsOf(rs)) != fmt.Sprint(errorsOf(same)) {
				t.Fatalf("entry %d: answers differ: %v and %v", index, errorsOf(rs), errorsOf(same))
			}
			for _, r := range rs {
				if err := watch.ack(a, r); err != nil {
					t.Fatalf("entry %d: %v", index, err)
				}
			}
		}
		step(initCmd("c1", worldKeep))
		step(initCmd("c1", worldKeep), registerCmd(node("n1", "boot1", 2)), registerCmd(node("n2", "boot1", 2)))
		for range rapid.IntRange(1, 50).Draw(t, "entries") {
			cmds := make([]*logv1.Command, rapid.SampledFrom([]int{1, 1, 1, 2, 3}).Draw(t, "commands"))
			for i := range cmds {
				cmds[i] = w.command()
				if r := cmds[i].GetRegisterNode(); r != nil {
					watch.noteInventory(a, r)
				}
			}
			step(cmds...)
			if w.draw("reload", 6) == 0 {
				b = restored(t, snapshotOf(t, b))
			}
			if err := watch.check(a); err != nil {
				t.Fatalf("entry %d: %v", index, err)
			}
			if err := errors.Join(checkDerived(a.st), checkDerived(b.st), sameInside(a.st, b.st)); err != nil {
				t.Fatalf("entry %d: %v", index, err)
			}
			if !bytes.Equal(a.Hash(), b.Hash()) {
				t.Fatalf("entry %d: replicas differ\n%s\n%s", index, contents(t, a), contents(t, b))
			}
		}
		if x, y := snapshotOf(t, a), snapshotOf(t, b); !bytes.Equal(x, y) {
			t.Fatalf("equal states have different snapshots: %d and %d bytes", len(x), len(y))
		}
	})
}

// noteInventory remembers that a node may come back with fewer GPUs than its
// jobs lie on; the accounts of those have no capacity then. A card that is
// shared may come back as one that is not to be, and stays so until its jobs end.
func (w *watcher) noteInventory(f *FSM, r *logv1.RegisterNode) {
	if old, ok := f.Node(cluster.NodeID(r.Node.Id)); ok && len(old.GPUs) > len(r.Node.Gpus) || r.Node.Gpus[0].Id == "n1-g0" {
		w.shrunk[cluster.NodeID(r.Node.Id)] = true
	}
	for _, g := range r.Node.Gpus {
		w.unshared[cluster.GPUID(g.Id)] = true // may be: whether this entry shares it before is not told here
	}
}

func errorsOf(rs []Result) []string {
	var out []string
	for _, r := range rs {
		s := "ok"
		if r.Err != nil {
			s = r.Err.Error()
		}
		rejected := 0
		if r.Plan != nil {
			rejected = len(r.Plan.Rejected)
		}
		out = append(out, fmt.Sprint(s, r.Index, r.Jobs, r.Existing, r.Cancel, r.Released, rejected))
	}
	return out
}

// TestLogIsAFunction: the same log gives the same bytes again and again,
// whatever the order of maps, and whichever rules it was written by.
func TestLogIsAFunction(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := New(Options{})
		upgrade := rapid.IntRange(0, 40).Draw(t, "upgrade") // entries before are of version 1
		w := &world{t: t, f: a}
		var log [][]byte
		for i := range rapid.IntRange(1, 40).Draw(t, "entries") {
			cmds := []*logv1.Command{w.command()}
			if i == 0 {
				cmds = []*logv1.Command{registerCmd(node("n1", "boot1", 2)), registerCmd(node("n2", "boot1", 3))}
			}
			version := uint32(EntryVersion)
			if i < upgrade {
				version = 1
			}
			if NeedsVersion(cmds[0]) > version {
				continue
			}
			data, err := EncodeEntry(version, 1, t0.Add(time.Duration(i)*time.Minute), cmds)
			if err != nil {
				t.Fatal(err)
			}
			log = append(log, data)
			applyTo(t, a, uint64(len(log)), 1, data)
			if a.EntryVersion() != version {
				t.Fatalf("entry version %d after one of %d", a.EntryVersion(), version)
			}
			if b := restored(t, snapshotOf(t, a)); !bytes.Equal(b.Hash(), a.Hash()) || b.EntryVersion() != version {
				t.Fatalf("entry %d: restored differs", i)
			}
		}
		want := snapshotOf(t, a)
		for range 2 {
			b := New(Options{})
			for i, data := range log {
				applyTo(t, b, uint64(i)+1, 1, data)
			}
			if !bytes.Equal(snapshotOf(t, b), want) {
				t.Fatalf("the same log made another state:\n%s\n%s", contents(t, a), contents(t, b))
			}
		}
	})
}

package fsm

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/command"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// wholeWorld draws commands of every kind that there is: those of siteWorld, and
// what leaders propose beside plans.
type wholeWorld struct{ siteWorld }

func newWholeWorld(t *rapid.T, f *FSM) wholeWorld {
	return wholeWorld{siteWorld{standingWorld{&world{t: t, f: f}}}}
}

// command draws one of any kind, each as often as another, or what befalls a
// cluster most.
func (w wholeWorld) command() *logv1.Command {
	c := w.siteWorld.command()
	switch of := w.draw("any kind", 10); {
	case of == 9:
		return w.rewait()
	case of < 5:
		kind := rapid.SampledFrom(kinds()).Draw(w.t, "kind")
		// One that is drawn seldom is drawn again.
		for try := 0; kindOf(c) != kind; try++ {
			of := w.source(kind)
			if of == nil || try == 100 {
				w.t.Fatalf("no command of kind %s is drawn here: add how, so that it is known to survive a restore", kind)
			}
			c = of()
		}
	}
	for _, j := range c.GetSubmitJob().GetJobs() {
		if w.draw("promised", 4) == 0 && !j.Spec.Hold {
			j.Spec.DeadlineUs = int64(w.f.Now().Add(time.Duration(w.draw("due", 3)) * time.Hour))
		}
	}
	if p := c.GetSetPartition().GetPartition(); p != nil && w.draw("idle policy", 2) == 0 {
		p.Idle = cluster.IdlePolicy{BelowMilli: 50, Window: time.Minute, Shrink: time.Hour, End: 2 * time.Hour}.String()
	}
	return c
}

// source draws commands of a kind, and maybe of others beside.
func (w wholeWorld) source(kind string) func() *logv1.Command {
	secret := func() string { return rapid.SampledFrom([]string{"s1", "s2"}).Draw(w.t, "secret") }
	aNode := func() cluster.NodeID { return rapid.SampledFrom(worldNodes).Draw(w.t, "node") }
	weights, _ := w.f.Weights()
	return map[string]func() *logv1.Command{
		"submit_job": w.submit, "apply_plan": w.plan, "report_attempt": w.report, "change_tasks": w.changeTasks, "preempt_attempt": w.preempt,
		"undo_gang": w.undo, "set_partition": w.partition, "remove_partition": func() *logv1.Command { return removePartitionCmd("a") },
		"set_reservation": w.reservation, "remove_reservation": w.reservation, "idle_attempt": w.idle, "resize_attempt": w.resize, "grow_attempt": w.grow, "shrink_attempt": w.shrink, "note_progress": w.progress, "note_loads": w.loads, "expire_jobs": w.expire,
		"update_job": w.rewait, "put_bulk": w.part,
		"cancel_job": func() *logv1.Command {
			return cancelCmd(cluster.JobID(w.draw("job", 20)), cluster.UID(w.draw("by", 2)))
		},
		"hold_job": func() *logv1.Command {
			return holdCmd(w.some(), cluster.UID(w.draw("by", 2)), w.draw("release", 2) == 0)
		},
		"requeue_job": func() *logv1.Command {
			return requeueCmd(w.some(cluster.JobRunning), cluster.UID(w.draw("by", 2)), w.draw("hold", 2) == 0)
		},
		"register_node":  w.node,
		"set_node_state": func() *logv1.Command { return silentCmd(aNode(), rapid.SampledFrom(worldBoots).Draw(w.t, "boot")) },
		"drain_node":     func() *logv1.Command { return drainCmd(aNode(), w.draw("drain", 2) == 0) },
		"drain_gpu":      func() *logv1.Command { return drainGPUCmd(aNode(), "n1-g0", w.draw("drain", 2) == 0) },
		"set_sharing":    w.sharing,
		"estimate_jobs":  w.estimates,
		"fence_node":     func() *logv1.Command { return fenceCmd(aNode()) },
		"power_node":     w.power,
		"remove_node":    func() *logv1.Command { return removeCmd(aNode()) },
		"create_token":   func() *logv1.Command { return tokenCmd(secret(), agentRole, "n9", w.f.Now().Add(time.Hour)) },
		"use_token":      func() *logv1.Command { return useCmd(secret(), "n9") }, "deny_identity": func() *logv1.Command { return denyCmd(agentRole, secret()) },
		"publish_weights":      func() *logv1.Command { return weightsCmd(weights+1, []byte(secret())) },
		"install_weights":      func() *logv1.Command { return installCmd(weights+1, WeightsImport, []byte(secret())) },
		"rollback_weights":     func() *logv1.Command { return rollbackCmd(weights+1, uint64(w.draw("to", 5))) },
		"pin_weights":          func() *logv1.Command { return pinCmd(weights, w.draw("pin", 2) == 0) },
		"install_interference": func() *logv1.Command { return interferenceCmd(w.f.Interference().Version+1, []byte(secret())) },
		"import_runs":          func() *logv1.Command { return importCmd(pastRun(w.draw("run", 3))) },
		"checkpoint":           func() *logv1.Command { return checkpointCmd(w.f.Index(), w.f.Hash()) },
		"init_cluster":         func() *logv1.Command { return initCmd("c1", worldKeep) },
		"set_standing":         func() *logv1.Command { return setCmd(w.ruling(), 0) },
		"add_webhook":          w.telling, "remove_webhook": w.telling, "settle_notices": w.telling, "mark_attempt": w.telling,
	}[kind]
}

// sharing switches sharing off somewhere, or on.
func (w wholeWorld) sharing() *logv1.Command {
	o := rapid.SampledFrom([]*logv1.SharingOff{{}, {Node: "n1"}, {Node: "n2"}, {Gpu: "n1-g0"}, {Partition: "a"}, {Partition: "b"}, {Node: "n1", Partition: "a"}}).Draw(w.t, "place")
	return sharingCmd(o, w.draw("off", 3) > 0)
}

// power is what a leader or an administrator makes of the power of a node, or could.
func (w wholeWorld) power() *logv1.Command {
	to := cluster.PowerState(w.draw("to", int(cluster.PowerFailed)+2))
	id := rapid.SampledFrom(worldNodes).Draw(w.t, "node")
	return powerCmd(id, to, w.draw("asked", 2) == 0, func(c *logv1.PowerNode) {
		if c.Why = rapid.SampledFrom([]string{"", "exit status 1"}).Draw(w.t, "why"); to == cluster.PowerUp {
			c.NotBeforeUs = int64(w.f.Now().Add(time.Duration(w.draw("pause", 2)) * time.Hour))
		}
	})
}

// estimates are new ones of jobs that wait, run, or are not there.
func (w wholeWorld) estimates() *logv1.Command {
	c := &logv1.EstimateJobs{}
	jobs, _ := w.f.Jobs(Query{})
	for range 1 + w.draw("groups", 2) {
		var ids []cluster.JobID
		for range w.draw("estimated", 3) {
			id := cluster.JobID(99)
			if len(jobs) > 0 {
				id = jobs[w.draw("which", len(jobs))].ID
			}
			ids = append(ids, id)
		}
		e := cluster.Estimate{GPUType: "T4", GPUMemMiB: int64(w.draw("mem", 5)) * 1000, Milli: 300, Duration: time.Minute, Source: "history"}
		c.Groups = append(c.Groups, estimated([]cluster.Estimate{e}, ids...))
	}
	return &logv1.Command{Kind: &logv1.Command_EstimateJobs{EstimateJobs: c}}
}

// some is a job that is in one of some states, or of none such.
func (w wholeWorld) some(states ...cluster.JobState) cluster.JobID {
	if j, ok := w.pick(states...); ok {
		return w.one(j)
	}
	return 99
}

// expire ends what was promised a time, when that is over.
func (w wholeWorld) expire() *logv1.Command {
	ids := []cluster.JobID{77}
	for _, j := range w.f.st.roll.Unended() {
		if j.Spec.Deadline > 0 && w.draw("expires", 2) == 0 {
			ids = append(ids, j.ID)
		}
	}
	return expireCmd(ids...)
}

// rewait changes what a job waits for, most often to nothing.
func (w wholeWorld) rewait() *logv1.Command {
	alone := func(j *cluster.Job) bool { return j.State.Waiting() && !j.InArray() }
	jobs, _ := w.f.Jobs(Query{Keep: func(j *cluster.Job) bool { return alone(j) && len(j.Depends) > 0 }})
	least := 0
	if len(jobs) == 0 {
		jobs, _ = w.f.Jobs(Query{Keep: alone})
		least = 1
	}
	j := &cluster.Job{ID: 99, Spec: spec(1)}
	if len(jobs) > 0 {
		j = jobs[w.draw("who waits", len(jobs))]
	}
	return updateCmd(j, func(s *cluster.Spec) {
		s.Depends, s.DependAny = nil, w.draw("any of them", 2) == 0
		for range least + w.draw("for", 2) {
			d := cluster.Dependency{Kind: rapid.SampledFrom([]cluster.DependKind{cluster.After, cluster.AfterOK, cluster.AfterAny, cluster.Singleton}).Draw(w.t, "kind")}
			if d.Kind != cluster.Singleton {
				w.on(&d)
			}
			s.Depends = append(s.Depends, d)
		}
	})
}

// idle takes an attempt to some stage of an idle policy.
func (w wholeWorld) idle() *logv1.Command {
	j, ok := w.pick(cluster.JobRunning)
	if !ok {
		return idleCmd(99, cluster.IdleWarned)
	}
	c := idleCmd(j.ID, cluster.IdleStage(w.draw("stage", int(cluster.IdleEnded)+1))).GetIdleAttempt()
	a := j.Last()
	if c.Attempt = a.No; c.Stage == uint32(cluster.IdleShrunk) && w.draw("cut", 3) > 0 {
		b := a.Berth
		b.GPUs = slices.Clone(b.GPUs)
		for i := range b.GPUs {
			b.GPUs[i].Share = cluster.Share{MemMiB: b.GPUs[i].Share.MemMiB/2 + 1, Milli: b.GPUs[i].Share.Milli/2 + 1}
		}
		c.Berth = conv.BerthToLog(&b)
	}
	return &logv1.Command{Kind: &logv1.Command_IdleAttempt{IdleAttempt: c}}
}

// resize cuts the shares of an attempt, or has them grow again.
func (w wholeWorld) resize() *logv1.Command {
	j, ok := w.pick(cluster.JobRunning)
	if !ok {
		return resizeCmd(99)
	}
	a := j.Last()
	to := slices.Clone(a.Berth.GPUs)
	grow := w.draw("grow", 2)
	for i := range to {
		s := to[i].Share
		to[i].Share = cluster.Share{MemMiB: s.MemMiB/2 + 1 + s.MemMiB*int64(grow), Milli: max(1, s.Milli)}
		if grow > 0 {
			to[i].Share.MemMiB = min(to[i].Share.MemMiB, a.Granted(i))
		}
	}
	return conv.Resize(cluster.AttemptID{Job: j.ID, No: a.No}, to)
}

// progress is what jobs say that run, wait or are not there.
func (w wholeWorld) progress() *logv1.Command {
	c := &logv1.NoteProgress{}
	jobs, _ := w.f.Jobs(Query{})
	for range 1 + w.draw("tell", 3) {
		id := cluster.AttemptID{Job: 99, No: 1}
		if len(jobs) > 0 {
			j := jobs[w.draw("who", len(jobs))]
			id = cluster.AttemptID{Job: j.ID, No: uint32(len(j.Attempts))}
		}
		p := &cluster.Progress{At: w.f.Now().Add(time.Duration(w.draw("at", 3)-1) * time.Hour), Step: int64(w.draw("step", 5)), Total: int64(w.draw("total", 5)), StepTime: time.Second}
		n := conv.NoteProgress(id, p)
		if j, ok := w.f.Job(id.Job); ok && j.State == cluster.JobStarting && w.f.EntryVersion() >= 15 {
			n = conv.NotePull(id, &cluster.Pull{Layers: uint32(p.Step), Bytes: p.Total << 20})
		}
		c.Attempts = append(c.Attempts, n)
	}
	return &logv1.Command{Kind: &logv1.Command_NoteProgress{NoteProgress: c}}
}

// loads are what services had to do, of those that are there and of others, or no loads.
func (w wholeWorld) loads() *logv1.Command {
	c := &logv1.ServiceLoad{Array: 99, Slot: 1000 + int64(w.draw("slot", 3))*700, Load: rapid.SampledFrom([]float64{0, 1, 2.5, 1e300, -1, math.NaN()}).Draw(w.t, "load"), Each: float64(w.draw("each", 2))}
	all := w.f.Services()
	if n := len(all); n > 0 {
		if c.Array = uint64(all[w.draw("which", n)].ID); w.draw("take over", 3) == 0 {
			c.From = uint64(all[w.draw("from", n)].ID)
		}
	}
	return loadsCmd(c)
}

// kindOf is the name of a command's kind in the log.
func kindOf(c *logv1.Command) string {
	m := c.ProtoReflect()
	return string(m.WhichOneof(m.Descriptor().Oneofs().ByName("kind")).Name())
}

// kinds are the names of every kind of command.
func kinds() (names []string) {
	fields := new(logv1.Command).ProtoReflect().Descriptor().Oneofs().ByName("kind").Fields()
	for i := range fields.Len() {
		names = append(names, string(fields.Get(i).Name()))
	}
	return names
}

// answer is all that a result says, for comparison.
func answer(r Result) string {
	text := fmt.Sprintf("%d %v %v %v %v %v %v %v %v %v", r.Index, r.Jobs, r.Existing, r.Cancel, r.Released, r.Absurd, r.Webhook, r.Lost, r.Requeued, r.Tasks)
	if r.Err != nil {
		text += fmt.Sprint(" ", r.Err.Code, r.Err)
	}
	if r.Plan != nil {
		text += fmt.Sprintf(" %+v", *r.Plan)
	}
	if r.Token != nil {
		text += fmt.Sprintf(" %+v", *r.Token)
	}
	return text
}

// TestEveryCommandSurvivesARestore: after each command of a log a replica is
// written and read again; it has the hash of one that was not, holds inside what
// that one holds, and gives the same answers to whatever comes. No kind of
// command is left out.
func TestEveryCommandSurvivesARestore(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := New(Options{Version: "test"}), New(Options{Version: "test"})
		w := newWholeWorld(t, a)
		index, now := uint64(0), t0
		step := func(version uint32, cmd *logv1.Command) {
			index++
			now = now.Add(time.Duration(w.draw("pause", 300)) * time.Second)
			data, err := EncodeEntry(version, testTerm, now, []*logv1.Command{cmd})
			if err != nil {
				t.Fatal(err)
			}
			before, hash := contents(t, a), entitiesHash(a)
			pure := a.EntryVersion() == EntryVersion // by rules of before a refusal may forget, and the first entry by these mends
			x, y := applyTo(t, a, index, testTerm, data)[0], applyTo(t, b, index, testTerm, data)[0]
			what := fmt.Sprintf("entry %d, %s", index, kindOf(cmd))
			if want, got := answer(x), answer(y); want != got {
				t.Fatalf("%s: answered %s, after a restore %s", what, want, got)
			}
			if after := contents(t, a); x.Err != nil && pure && after != before {
				t.Fatalf("%s: was refused (%v) and changed the state: %s", what, x.Err, cmp.Diff(before, after))
			}
			if x.Err != nil && pure && hash != entitiesHash(a) {
				t.Fatalf("%s: was refused (%v) and changed the hash", what, x.Err)
			}
			b = restored(t, snapshotOf(t, b))
			if !bytes.Equal(a.Hash(), b.Hash()) {
				t.Fatalf("%s: a restored replica has another hash\n%s", what, cmp.Diff(contents(t, a), contents(t, b)))
			}
			if err := errors.Join(checkDerived(a.st), checkDerived(b.st), sameInside(a.st, b.st)); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
		version := uint32(command.ChangeVersion - 1)
		step(version, initCmd("c1", worldKeep))
		step(version, registerCmd(node("n1", "boot1", 2)))
		step(version, registerCmd(node("n2", "boot1", 2)))
		for i := range rapid.IntRange(10, 60).Draw(t, "entries") {
			if i == 20 {
				version = EntryVersion // a leader whose members were all upgraded
			}
			cmd := w.command()
			if NeedsVersion(cmd) <= version {
				step(version, cmd)
			}
		}
	})
}

// waitsForNobody is a cluster with a job that was told to wait for nobody any
// more, all by entries of a version, and the job that it waited for.
func waitsForNobody(t *testing.T, version uint32) (m *machine, id, on cluster.JobID) {
	t.Helper()
	m = newMachine(t)
	do := func(cmd *logv1.Command) Result {
		m.index++
		data, err := EncodeEntry(version, testTerm, m.now, []*logv1.Command{cmd})
		if err != nil {
			t.Fatal(err)
		}
		r := applyTo(t, m.f, m.index, testTerm, data)[0]
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		return r
	}
	do(initCmd("c1", 100))
	do(registerCmd(node("n1", "boot1", 2)))
	on = do(submitCmd(1, "request-1", 1000, spec(1))).Jobs[0]
	id = do(submitCmd(2, "request-2", 1000, &cluster.Spec{Name: "after", Command: []string{"true"}, Depends: []cluster.Dependency{{Kind: cluster.AfterOK, Job: on}}})).Jobs[0]
	do(updateCmd(m.job(id), func(s *cluster.Spec) { s.Depends = nil }))
	return m, id, on
}

// TestJobThatWaitsForNobodyAnyMore: a job that is told to wait for nobody may
// start, and its state is read back.
func TestJobThatWaitsForNobodyAnyMore(t *testing.T) {
	t.Parallel()
	m, id, _ := waitsForNobody(t, EntryVersion)
	m.f = restored(t, snapshotOf(t, m.f))
	if j := m.job(id); len(j.Depends) != 0 || j.Reason.Code == cluster.ReasonDependency {
		t.Errorf("it stands with %v, %s", j.Depends, j.Reason)
	}
	m.start(id)
}

// TestStaleDependenciesOfOldLogs: entries of before leave what a job waited for;
// such a state is written and read as it is, whatever then becomes of the job, and
// the first entry of a later version lets the job go.
func TestStaleDependenciesOfOldLogs(t *testing.T) {
	t.Parallel()
	m, id, on := waitsForNobody(t, command.ChangeVersion-1)
	f := restored(t, snapshotOf(t, m.f))
	if !bytes.Equal(f.Hash(), m.f.Hash()) || len(m.job(id).Depends) != 1 {
		t.Fatalf("read back as %v", m.job(id).Depends)
	}
	m.f = f
	m.wantState(id, cluster.JobPending)
	m.must(cancelCmd(on, 0)) // of the present version
	m.wantState(id, cluster.JobPending)
	if j := m.job(id); len(j.Depends) != 0 || j.Barred(m.now).Code != "" {
		t.Errorf("it stands with %v, %s", j.Depends, j.Reason)
	}
	m.start(id)
	restored(t, snapshotOf(t, m.f))
}

// TestChangedDependencyForgetsTheDelay: what a job waited for before does not
// keep it when it is changed to wait for something else.
func TestChangedDependencyForgetsTheDelay(t *testing.T) {
	t.Parallel()
	m := lab(t)
	on := m.submit(spec(0))
	m.start(on)
	late := &cluster.Spec{Name: "late", Command: []string{"true"}, Depends: []cluster.Dependency{{Kind: cluster.After, Job: on, Delay: time.Hour}}}
	id := m.submit(late)
	if m.job(id).DependAt == 0 {
		t.Fatal("it does not wait an hour")
	}
	m.must(updateCmd(m.job(id), func(s *cluster.Spec) { s.Depends = []cluster.Dependency{{Kind: cluster.After, Job: on}} }))
	if j := m.job(id); j.DependAt != 0 || j.Barred(m.now).Code != "" {
		t.Errorf("it waits until %d, %s", j.DependAt, j.Reason)
	}
}

// TestRunningJobKeepsWhatItWaitedFor: an entry that would change it is refused,
// as is one that makes a job an array.
func TestRunningJobKeepsWhatItWaitedFor(t *testing.T) {
	t.Parallel()
	m := lab(t)
	id := running(m, spec(1), 8000)
	m.refused(cluster.CodeConflict, updateCmd(m.job(id), func(s *cluster.Spec) { s.Depends = []cluster.Dependency{{Kind: cluster.Singleton}} }))
	m.must(updateCmd(m.job(id), func(s *cluster.Spec) { s.Comment = "longer" }))
	tasks, err := cluster.ParseArray("0-3")
	if err != nil {
		t.Fatal(err)
	}
	waits := m.submit(spec(1))
	m.refused(cluster.CodeInvalid, updateCmd(m.job(waits), func(s *cluster.Spec) { s.Array = tasks }))
}

// TestEveryKindIsApplied: a command of each kind that there is, however empty, is
// answered, and one of a kind that is not known stops the replica.
func TestEveryKindIsApplied(t *testing.T) {
	t.Parallel()
	fields := new(logv1.Command).ProtoReflect().Descriptor().Oneofs().ByName("kind").Fields()
	for i := range fields.Len() {
		cmd := &logv1.Command{}
		cmd.ProtoReflect().Mutable(fields.Get(i))
		m := everything(t)
		if r := m.f.st.apply(cmd); r.Index != m.index {
			t.Errorf("%s: answered %+v", kindOf(cmd), r)
		}
	}
	defer func() {
		if r := fmt.Sprint(recover()); !strings.Contains(r, "does not know") {
			t.Errorf("an unknown command: %s", r)
		}
	}()
	newState().apply(&logv1.Command{})
}

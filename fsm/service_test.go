package fsm

import (
	"bytes"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/service"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// serves is a spec of a service of up to three replicas.
func serves(throttle int) *cluster.Spec {
	s := spec(1)
	s.Array, _ = cluster.ParseArray("0-2")
	s.Array.Throttle = throttle
	s.Service = &service.Service{Name: "web", Replicas: 1, Min: 1, Max: 3, Port: "http", Health: "/h", Every: time.Second, Fails: 3, StartWithin: time.Minute, Drain: time.Second, Scale: service.Scale{On: "gpu", Target: 0.5}}
	return s
}

func stands(job cluster.JobID, no uint32, state service.State, why string) *logv1.Command {
	return &logv1.Command{Kind: &logv1.Command_NoteProgress{NoteProgress: &logv1.NoteProgress{
		Attempts: []*logv1.AttemptProgress{conv.NoteServing(cluster.AttemptID{Job: job, No: no}, cluster.Serving{State: state, Why: why})},
	}}}
}

// TestHowReplicasStand is kept with the attempt that runs, over snapshots, at the log's time
// and bounded; of a state that is none and of other jobs nothing is.
func TestHowReplicasStand(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.must(registerCmd(node("n1", "b1", 3)))
	id := m.submit(serves(2))
	m.start(id, share1("n1-g0", 8000, 300))
	early := stands(id, 1, service.Ready, "")
	if need := NeedsVersion(early); need != 15 {
		t.Errorf("needs version %d", need)
	}
	m.must(early)
	if m.job(id).Last().Serving != nil {
		t.Error("one that has not begun takes requests")
	}
	m.report(id, cluster.JobRunning)
	for _, none := range []*logv1.Command{stands(id, 1, service.Starting, ""), stands(id, 1, service.Draining+1, ""), stands(id, 2, service.Ready, ""), stands(id+1, 1, service.Ready, "")} {
		m.must(none)
		if m.job(id).Last().Serving != nil {
			t.Errorf("%v: %+v", none, m.job(id).Last().Serving)
		}
	}
	m.must(stands(id, 1, service.Unhealthy, strings.Repeat("é", 200)))
	at := m.f.Now()
	got := m.job(id).Last().Serving
	if got == nil || got.State != service.Unhealthy || got.Since != at || len(got.Why) > service.MaxWhy || !strings.HasPrefix(got.Why, "éé") {
		t.Errorf("it stands as %+v", got)
	}
	again := restored(t, snapshotOf(t, m.f))
	if !bytes.Equal(again.Hash(), m.f.Hash()) {
		t.Error("a restore has another hash")
	}
	all := again.Services()
	if len(all) != 1 || all[0].ID != id || all[0].Throttle != 2 || len(all[0].Jobs) != 2 || all[0].Owner.UID != m.job(id).Owner.UID || all[0].Jobs[0].Last().Serving.State != service.Unhealthy {
		t.Fatalf("services after a restore: %+v", all)
	}
	plain := m.running(spec(1), "n1-g1")
	m.must(stands(plain, 1, service.Ready, ""))
	if m.job(plain).Last().Serving != nil {
		t.Error("a job of no service takes requests")
	}
}

// TestReplicasRunOn: whatever way one ends it runs again, and one that somebody ends does
// not; those that stand by take nobody's place.
func TestReplicasRunOn(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.must(registerCmd(node("n1", "b1", 3)))
	id := m.submit(serves(1))
	barred := func(j cluster.JobID) cluster.ReasonCode { return m.f.Barred(m.job(j), m.f.Now()).Code }
	for i, end := range []cluster.JobState{cluster.JobCompleted, cluster.JobFailed, cluster.JobTimeout} {
		m.start(id, share1("n1-g0", 8000, 300))
		m.report(id, cluster.JobRunning)
		if barred(id+1) != cluster.ReasonStandby {
			t.Errorf("the second waits for %s", barred(id+1))
		}
		m.report(id, end)
		j := m.job(id)
		if j.State != cluster.JobPending || barred(id) != cluster.ReasonBeginTime || j.DependAt.Sub(m.f.Now()) != time.Second<<i || barred(id+1) != cluster.ReasonStandby {
			t.Fatalf("after %v it is %v until %v (now %v): %s; the second waits for %s", end, j.State, j.DependAt, m.f.Now(), barred(id), barred(id+1))
		}
		m.now = m.now.Add(time.Second << i)
	}
	m.start(id, share1("n1-g0", 8000, 300))
	m.report(id, cluster.JobRunning)
	m.must(&logv1.Command{Kind: &logv1.Command_RequeueJob{RequeueJob: &logv1.RequeueJob{Job: uint64(id), Admin: true, Why: "unhealthy"}}})
	if p := m.job(id).Last().Preempt; p == nil || p.Why != "unhealthy" {
		t.Errorf("requeued: %+v", p)
	}
	m.report(id, cluster.JobPreempted)
	if j := m.job(id); j.State != cluster.JobPending || barred(id) != "" {
		t.Errorf("one that its service ended is %v: %s", j.State, barred(id))
	}
	m.start(id, share1("n1-g0", 8000, 300))
	m.report(id, cluster.JobRunning)
	m.must(&logv1.Command{Kind: &logv1.Command_CancelJob{CancelJob: &logv1.CancelJob{Job: uint64(id), Admin: true, Why: "replaced"}}})
	m.report(id, cluster.JobCancelled)
	if j := m.job(id); j.State != cluster.JobCancelled || j.Reason.Code != cluster.ReasonReplaced || j.Reason.Detail != "replaced" {
		t.Errorf("one that was ended is %v: %v", j.State, j.Reason)
	}
	if barred(id+1) != "" {
		t.Errorf("the second takes no place that is free: %s", barred(id+1))
	}
	m.must(&logv1.Command{Kind: &logv1.Command_ChangeTasks{ChangeTasks: &logv1.ChangeTasks{Array: uint64(id), Change: logv1.TaskChange_TASK_CHANGE_CANCEL, Admin: true, Why: "all of it"}}})
	if j := m.job(id + 2); j.State != cluster.JobCancelled || j.Reason.Detail != "all of it" {
		t.Errorf("one that waits is %v: %v", j.State, j.Reason)
	}
	if all := m.f.Services(); len(all) != 0 {
		t.Errorf("services are left: %+v", all)
	}
	long := &logv1.Command{Kind: &logv1.Command_ChangeTasks{ChangeTasks: &logv1.ChangeTasks{Array: uint64(id), Change: logv1.TaskChange_TASK_CHANGE_CANCEL, Why: strings.Repeat("x", 1025)}}}
	m.refused(cluster.CodeInvalid, long)
}

// TestReplicasBeyondTheWanted stand by although fewer run than should: the next in
// turn wait for something else. One that is held gives its turn to the one after it.
func TestReplicasBeyondTheWanted(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.must(registerCmd(node("n1", "b1", 3)))
	id := m.submit(serves(2))
	barred := func(j cluster.JobID) cluster.ReasonCode { return m.f.Barred(m.job(j), m.f.Now()).Code }
	if got := barred(id + 2); got != "" {
		t.Errorf("all are one job, some of which may start: %q", got)
	}
	m.start(id, share1("n1-g0", 8000, 300))
	m.must(holdCmd(id+1, 1, false))
	m.must(holdCmd(id+1, 1, true))
	if next, last := barred(id+1), barred(id+2); next != "" || last != cluster.ReasonStandby {
		t.Errorf("the next replica: %q, want none; the one after it: %q, want Standby", next, last)
	}
	m.must(holdCmd(id+1, 1, false))
	if next, last := barred(id+1), barred(id+2); next != cluster.ReasonHeldUser || last != "" {
		t.Errorf("the next replica, held: %q; the one after it: %q, want none", next, last)
	}
}

// TestWhatServicesHadToDo is kept with the newest revision, over snapshots and a change of the
// revision, and with nothing else; what is no load changes nothing.
func TestWhatServicesHadToDo(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.must(registerCmd(node("n1", "b1", 3)))
	id := m.submit(serves(2))
	plain := spec(1)
	plain.Array, _ = cluster.ParseArray("0-2")
	other := m.submit(plain)
	first := loadsCmd(&logv1.ServiceLoad{Array: uint64(id), Slot: 1000, Load: 2.5, Each: 3}, &logv1.ServiceLoad{Array: uint64(other), Slot: 1000, Load: 2.5}, &logv1.ServiceLoad{Array: 999, Slot: 1, Load: 1}, &logv1.ServiceLoad{Array: uint64(id + 1), Slot: 1, Load: 1})
	if need := NeedsVersion(first); need != 15 {
		t.Errorf("needs version %d", need)
	}
	m.must(first)
	for _, load := range []float64{math.NaN(), math.Inf(1), -1, 1e300} {
		m.must(loadsCmd(&logv1.ServiceLoad{Array: uint64(id), Slot: 1001, Load: load}))
	}
	m.must(loadsCmd(&logv1.ServiceLoad{Array: uint64(id), Slot: 1002, Load: 1}))
	want := &service.History{First: 1000, Loads: []float32{2.5, -1, 1}, Each: 3}
	if got := m.f.Services()[0].Load; !reflect.DeepEqual(got, want) {
		t.Errorf("known is %+v, want %+v", got, want)
	}
	before := m.f.Hash()
	m.must(loadsCmd(&logv1.ServiceLoad{Array: uint64(id), Slot: 1002, Load: 4}))
	if bytes.Equal(before, m.f.Hash()) {
		t.Error("another load is no other state")
	}
	next := m.submit(serves(1))
	over := loadsCmd(&logv1.ServiceLoad{Array: uint64(next), From: uint64(id)}, &logv1.ServiceLoad{Array: uint64(next), From: 999})
	m.must(over)
	m.must(loadsCmd(&logv1.ServiceLoad{Array: uint64(id), Slot: 1003, Load: 9}))
	m.must(over) // it has one already
	again := restored(t, snapshotOf(t, m.f))
	want = &service.History{First: 1000, Loads: []float32{2.5, -1, 4}, Each: 3}
	if got := again.Services()[1].Load; !reflect.DeepEqual(got, want) || !bytes.Equal(again.Hash(), m.f.Hash()) {
		t.Errorf("the next revision knows %+v, want %+v", got, want)
	}
	m.must(&logv1.Command{Kind: &logv1.Command_ChangeTasks{ChangeTasks: &logv1.ChangeTasks{Array: uint64(id), Change: logv1.TaskChange_TASK_CHANGE_CANCEL, Admin: true}}})
	if all := m.f.Services(); len(all) != 1 || len(all[0].Load.Loads) != 3 {
		t.Errorf("services are left: %+v", all)
	}
}

func loadsCmd(of ...*logv1.ServiceLoad) *logv1.Command {
	return &logv1.Command{Kind: &logv1.Command_NoteLoads{NoteLoads: &logv1.NoteLoads{Services: of}}}
}

// TestServicesByOwner finds the arrays of services that have not ended by whose they are,
// over snapshots, and keeps none that was forgotten.
func TestServicesByOwner(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.must(initCmd("c1", 2)) // of those that ended two are kept
	first := m.submit(serves(1))
	m.must(submitCmd(m.f.NextJobID(), "another", 1001, serves(1), serves(2)))
	plain := spec(1)
	plain.Array, _ = cluster.ParseArray("0-2")
	m.submit(plain)
	check := func(when string, f *FSM, want map[cluster.UID]int) {
		t.Helper()
		if err := checkArrayIndexes(f.st); err != nil {
			t.Errorf("%s: %v", when, err)
		}
		for uid, n := range want {
			all := f.ServicesWhere(func(owner cluster.UID, _ string, s *cluster.Spec) bool {
				return owner == uid && s.Service.Name == "web"
			})
			if f.UserServices(uid) != n || len(all) != n {
				t.Errorf("%s: user %d has %d services, %d of them found, want %d", when, uid, f.UserServices(uid), len(all), n)
			}
			for _, r := range all {
				if r.Owner.UID != uid || len(r.Jobs) == 0 {
					t.Errorf("%s: service %d of %v, %d jobs", when, r.ID, r.Owner, len(r.Jobs))
				}
			}
		}
	}
	both := map[cluster.UID]int{1000: 1, 1001: 2, 1002: 0}
	check("at first", m.f, both)
	check("after a restart", restored(t, snapshotOf(t, m.f)), both)
	m.must(tasksCmd(changeCmd(first, "", logv1.TaskChange_TASK_CHANGE_CANCEL)))
	one := map[cluster.UID]int{1000: 0, 1001: 2}
	check("when one was cancelled", m.f, one)
	for range 3 { // which are cancelled and push it out
		m.must(cancelCmd(m.submit(spec(1)), 1000))
	}
	if _, known := m.f.Array(first); known {
		t.Fatal("what ended long ago is not forgotten")
	}
	check("when it was forgotten", m.f, one)
	check("and after a restart", restored(t, snapshotOf(t, m.f)), one)
}

// TestWhatAServiceIsScaledTo is kept over snapshots, whatever a roll lets run
// meanwhile; of another array it is what may run.
func TestWhatAServiceIsScaledTo(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	id := m.submit(serves(1))
	to := func(n uint32, scales bool) *logv1.Command {
		c := changeCmd(id, "", logv1.TaskChange_TASK_CHANGE_THROTTLE)
		c.Throttle, c.Scales = n, scales
		return &logv1.Command{Kind: &logv1.Command_ChangeTasks{ChangeTasks: c}}
	}
	if need := NeedsVersion(to(3, true)); need != 15 {
		t.Errorf("needs version %d", need)
	}
	m.must(to(2, false))
	if s := m.f.Services()[0]; s.Throttle != 2 || s.Wanted != 1 {
		t.Errorf("by a roll: %d may run, %d are wanted", s.Throttle, s.Wanted)
	}
	m.must(to(0, true))
	m.must(to(3, true))
	m.must(to(1, false))
	again := restored(t, snapshotOf(t, m.f))
	if s := again.Services()[0]; s.Throttle != 1 || s.Wanted != 3 || again.Throttle(id) != 3 || !bytes.Equal(again.Hash(), m.f.Hash()) {
		t.Errorf("after a restore %d may run, %d are wanted", s.Throttle, s.Wanted)
	}
}

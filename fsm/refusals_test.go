package fsm

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/accounting"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// scene is a machine with something of everything that a command can be wrong about.
type scene struct {
	*machine
	waits, runs, over, heldByAdmin, promised, queued cluster.JobID
	array, gang, making, requeued, cancelled         cluster.JobID
}

// stage makes one.
func stage(t *testing.T) *scene {
	t.Helper()
	s := &scene{machine: accounted(t)}
	s.must(registerCmd(node("n3", "boot1", 3)))
	s.must(registerCmd(node("n4", "boot1", 8)))
	s.must(partitionCmd(&cluster.Partition{Name: "gpu", Nodes: hosts(t, "ALL")}, 0))
	s.must(reservationCmd(&dispatch.Reservation{Name: "later", Start: s.now.Add(48 * time.Hour), Duration: time.Hour, Nodes: hosts(t, "n3"), Users: []string{"1000"}}, 0))
	s.must(tokenCmd("open", agentRole, "n8", s.now.Add(time.Hour)))
	s.must(denyCmd(agentRole, "n7"))
	s.must(weightsCmd(1, []byte("one")))
	s.must(installCmd(2, WeightsImport, []byte("two")))
	s.must(interferenceCmd(1, []byte("one")))
	s.must(hookCmd(1000, false, cluster.MailEnd))
	s.over = running(s.machine, spec(1), 8000)
	s.report(s.over, cluster.JobCompleted)
	s.waits = s.submit(inPartition("gpu"))
	at := func(card cluster.GPUID, sp *cluster.Spec) cluster.JobID {
		id := s.submit(sp)
		s.start(id, share1(card, 8000, 300))
		s.report(id, cluster.JobRunning)
		return id
	}
	s.runs = at("n4-g0", spec(1))
	s.making = at("n4-g1", hooked())
	s.must(preemptCmd(dispatch.Preemption{Job: s.making, Attempt: 1, For: s.waits, Why: "it is larger"}))
	s.requeued = at("n4-g2", spec(1))
	s.must(requeueCmd(s.requeued, 0, false))
	s.cancelled = at("n4-g3", hooked())
	s.must(cancelCmd(s.cancelled, 0))
	s.heldByAdmin = s.submit(spec(1))
	s.must(holdCmd(s.heldByAdmin, 0, false))
	due := spec(1)
	due.Deadline = s.now.Add(time.Hour)
	s.promised = s.submit(due)
	s.queued = s.submit(spec(1))
	s.enqueue(s.queued, "n4-g4", 1)
	tasks := spec(1)
	tasks.Array, _ = cluster.ParseArray("1-4")
	s.array = s.submit(tasks)
	s.gang = s.gangOn(spec(1), "n1-g0", "n2-g0")
	s.machine.runs(s.gang)
	return s
}

// rejects applies a command that is to be refused, and holds that nothing moved: no
// record, no hash, no queue, no account, and no change that watchers would see.
func (s *scene) rejects(name string, code cluster.Code, words string, cmd *logv1.Command) {
	s.t.Helper()
	before, hash, ledger := contents(s.t, s.f), entitiesHash(s.f), s.f.st.fleet.Ledger().Clone()
	index := s.f.Index()
	r := s.do(cmd)[0]
	seen, _, _ := s.f.Changes(index)
	switch {
	case r.Err == nil || r.Err.Code != code || !strings.Contains(r.Err.Msg, words):
		s.t.Fatalf("%s: %v, want %s with %q", name, r.Err, code, words)
	case before != contents(s.t, s.f) || hash != entitiesHash(s.f):
		s.t.Fatalf("%s: was refused and changed the state", name)
	case !ledger.Equal(s.f.st.fleet.Ledger()):
		s.t.Fatalf("%s: was refused and changed the ledger", name)
	case len(seen) > 0:
		s.t.Fatalf("%s: was refused and watchers are told of %+v", name, seen)
	}
}

// refusalOf is one row of a table of them.
type refusalOf struct {
	name  string
	code  cluster.Code
	words string
	cmd   *logv1.Command
}

func (s *scene) table(rows []refusalOf) {
	s.t.Helper()
	for _, r := range rows {
		s.rejects(r.name, r.code, r.words, r.cmd)
	}
	if err := checkDerived(s.f.st); err != nil {
		s.t.Fatalf("after all of them: %v", err)
	}
	if b := restored(s.t, snapshotOf(s.t, s.f)); !bytes.Equal(b.Hash(), s.f.Hash()) {
		s.t.Fatalf("after all of them a restored replica has another hash")
	}
}

// submitWith is a submit of which something is changed.
func (s *scene) submitWith(change func(*logv1.SubmitJob), specs ...*cluster.Spec) *logv1.Command {
	c := submitCmd(s.f.NextJobID(), "a new request", 1000, specs...)
	change(c.GetSubmitJob())
	return c
}

// TestRefusedSubmits: every reason for which jobs are not taken.
func TestRefusedSubmits(t *testing.T) {
	t.Parallel()
	s := stage(t)
	as := func(change func(*cluster.Spec)) *logv1.Command {
		sp := spec(1)
		change(sp)
		return s.submitWith(func(*logv1.SubmitJob) {}, spec(0), sp) // the first one alone would be taken
	}
	on := func(d cluster.Dependency) *logv1.Command {
		return as(func(sp *cluster.Spec) { sp.Depends = []cluster.Dependency{d} })
	}
	s.must(submitCmd(s.f.NextJobID(), "an old request", 1000, spec(1)))
	s.table([]refusalOf{
		{"without a request id", cluster.CodeInvalid, "request id: is missing", s.submitWith(func(c *logv1.SubmitJob) { c.RequestId = "" }, spec(1))},
		{"with half a hash", cluster.CodeInvalid, "the hash of the request has 5 bytes", s.submitWith(func(c *logv1.SubmitJob) { c.BodyHash = c.BodyHash[:5] }, spec(1))},
		{"another body under a known id", cluster.CodeAlreadyExists, `"an old request" was used for another request`, submitCmd(s.f.NextJobID(), "an old request", 1000, spec(2))},
		{"an id that was given", cluster.CodeConflict, "job id 3 was given before", s.submitWith(func(c *logv1.SubmitJob) { c.FirstJob = 3 }, spec(1))},
		{"the id before the next", cluster.CodeConflict, "was given before", s.submitWith(func(c *logv1.SubmitJob) { c.FirstJob-- }, spec(1))},
		{"an id beyond all", cluster.CodeConflict, "was given before", s.submitWith(func(c *logv1.SubmitJob) { c.FirstJob = 1<<62 + 1 }, spec(1))},
		{"no jobs", cluster.CodeInvalid, "there are none in the request", s.submitWith(func(*logv1.SubmitJob) {})},
		{"a partition that is not", cluster.CodeInvalid, `partition "cpu" is not known`, as(func(sp *cluster.Spec) { sp.Partition = "cpu" })},
		{"an account that is not", cluster.CodeInvalid, `account "x" is not known`, as(func(sp *cluster.Spec) { sp.Account = "x" })},
		{"a QOS that is not", cluster.CodeInvalid, `"x" is not known`, as(func(sp *cluster.Spec) { sp.QOS = "x" })},
		{"after a job that never was", cluster.CodeInvalid, "job 999 is not known", on(cluster.Dependency{Kind: cluster.After, Job: 999})},
		{"after a task that never was", cluster.CodeInvalid, "has no task 9; its tasks are 1-4", on(cluster.Dependency{Kind: cluster.AfterAny, Job: s.array, OneTask: true, Task: 9})},
		{"after a task of no array", cluster.CodeInvalid, "is not known", on(cluster.Dependency{Kind: cluster.AfterAny, Job: s.waits, OneTask: true, Task: 1})},
		{"after itself", cluster.CodeInvalid, "is not known", on(cluster.Dependency{Kind: cluster.After, Job: s.f.NextJobID() + 1})},
	})
	s.must(setCmd(quota(accounting.Subject{Each: true}, accounting.Limits{Jobs: 1}), 0))
	s.rejects("more than a quota has room for", cluster.CodeExhausted, "user ada may have 1 job waiting or running", s.submitWith(func(*logv1.SubmitJob) {}, spec(1)))
}

// TestRefusedOfJobs: every reason for which a job is not changed.
func TestRefusedOfJobs(t *testing.T) {
	t.Parallel()
	s := stage(t)
	update := func(id cluster.JobID, change func(*cluster.Spec)) *logv1.Command { return updateCmd(s.job(id), change) }
	nothing := func(*cluster.Spec) {}
	stale := update(s.waits, nothing)
	stale.GetUpdateJob().Base--
	gone := update(s.waits, nothing)
	gone.GetUpdateJob().Job = 999
	tasks, _ := cluster.ParseArray("0-3")
	s.table([]refusalOf{
		{"hold of none", cluster.CodeNotFound, "job 999 is not known", holdCmd(999, 0, false)},
		{"hold of what is over", cluster.CodeConflict, "has ended as COMPLETED", holdCmd(s.over, 0, false)},
		{"hold of what was promised a time", cluster.CodeConflict, "was promised its deadline", holdCmd(s.promised, 0, false)},
		{"release of what an administrator holds", cluster.CodeDenied, "was held by an administrator", holdCmd(s.heldByAdmin, 1000, true)},
		{"requeue of none", cluster.CodeNotFound, "job 999 is not known", requeueCmd(999, 0, false)},
		{"requeue of what waits", cluster.CodeConflict, "it waits already", requeueCmd(s.waits, 0, true)},
		{"requeue of what is over", cluster.CodeConflict, "it has ended as COMPLETED", requeueCmd(s.over, 0, false)},
		{"requeue of what is requeued", cluster.CodeConflict, "it is being requeued", requeueCmd(s.requeued, 0, true)},
		{"requeue of what is cancelled", cluster.CodeConflict, "it is being cancelled", requeueCmd(s.cancelled, 0, false)},
		{"preemption of none", cluster.CodeNotFound, "job 999 is gone", preemptCmd(dispatch.Preemption{Job: 999, Attempt: 1})},
		{"preemption of another attempt", cluster.CodeConflict, "attempt 2 of job", preemptCmd(dispatch.Preemption{Job: s.runs, Attempt: 2})},
		{"preemption of what waits", cluster.CodeConflict, "is not the live one", preemptCmd(dispatch.Preemption{Job: s.waits, Attempt: 1})},
		{"preemption without a hook", cluster.CodeConflict, "it has no checkpoint hook", preemptCmd(dispatch.Preemption{Job: s.runs, Attempt: 1})},
		{"preemption of what makes room", cluster.CodeConflict, "it is being preempted", preemptCmd(dispatch.Preemption{Job: s.making, Attempt: 1})},
		{"preemption of what is cancelled", cluster.CodeConflict, "it is being cancelled", preemptCmd(dispatch.Preemption{Job: s.cancelled, Attempt: 1})},
		{"update of none", cluster.CodeNotFound, "job 999 is not known", gone},
		{"update of another revision", cluster.CodeConflict, "changed meanwhile", stale},
		{"update of what is over", cluster.CodeConflict, "has ended as COMPLETED", update(s.over, nothing)},
		{"update of a task", cluster.CodeConflict, "is of an array", update(s.array+1, nothing)},
		{"update to an array", cluster.CodeInvalid, "cannot become an array", update(s.waits, func(sp *cluster.Spec) { sp.Array = tasks })},
		{"update to a partition that is not", cluster.CodeInvalid, `partition "cpu" is not known`, update(s.waits, func(sp *cluster.Spec) { sp.Partition = "cpu" })},
		{"update to wait for none", cluster.CodeInvalid, "job 999 is not known", update(s.waits, func(sp *cluster.Spec) { sp.Depends = []cluster.Dependency{{Kind: cluster.AfterAny, Job: 999}} })},
		{"update of what a job that runs waits for", cluster.CodeConflict, "can be changed when it waits again", update(s.runs, func(sp *cluster.Spec) { sp.Depends = []cluster.Dependency{{Kind: cluster.AfterAny, Job: s.waits}} })},
		{"tasks of none", cluster.CodeNotFound, "job array 999 is not known", tasksCmd(changeCmd(999, "", logv1.TaskChange_TASK_CHANGE_CANCEL))},
		{"tasks of what is no array", cluster.CodeNotFound, "is not known", tasksCmd(changeCmd(s.waits, "", logv1.TaskChange_TASK_CHANGE_CANCEL))},
		{"tasks of the second task", cluster.CodeNotFound, "is not known", tasksCmd(changeCmd(s.array+1, "", logv1.TaskChange_TASK_CHANGE_CANCEL))},
		{"tasks that are not", cluster.CodeNotFound, "has none of the tasks 7-9; its tasks are 1-4", tasksCmd(changeCmd(s.array, "7-9", logv1.TaskChange_TASK_CHANGE_HOLD))},
		{"mark of none", cluster.CodeNotFound, "job 999 is gone", markCmd(999, 1, cluster.MailTimeLimit50)},
		{"mark of another attempt", cluster.CodeConflict, "is not the one that runs", markCmd(s.runs, 2, cluster.MailTimeLimit50)},
		{"mark of what waits", cluster.CodeConflict, "is not the one that runs", markCmd(s.waits, 1, cluster.MailTimeLimit50)},
		{"idle of none", cluster.CodeNotFound, "job 999 is gone", idleCmd(999, cluster.IdleWarned)},
		{"idle of what waits", cluster.CodeConflict, "is not one that runs on GPUs", idleCmd(s.waits, cluster.IdleWarned)},
		{"idle of what makes room", cluster.CodeConflict, "is on its way out", idleCmd(s.making, cluster.IdleWarned)},
		{"idle of what is cancelled", cluster.CodeConflict, "is on its way out", idleCmd(s.cancelled, cluster.IdleWarned)},
		{"idle without a policy", cluster.CodeConflict, "has no idle policy", idleCmd(s.runs, cluster.IdleWarned)},
		{"undo of none", cluster.CodeNotFound, "job 999 is not known", undoCmd(999, 1)},
		{"undo of one node", cluster.CodeConflict, "is not a live one on several nodes", undoCmd(s.runs, 1)},
		{"undo of another attempt", cluster.CodeConflict, "is not a live one", undoCmd(s.gang, 2)},
		{"undo of what has started", cluster.CodeConflict, "has started", undoCmd(s.gang, 1)},
	})
	throttle := changeCmd(s.array, "", logv1.TaskChange_TASK_CHANGE_THROTTLE)
	throttle.Throttle = cluster.MaxThrottle + 1
	s.rejects("a throttle above all", cluster.CodeInvalid, "is outside 0 to", tasksCmd(throttle))
	s.must(tasksCmd(changeCmd(s.array, "", logv1.TaskChange_TASK_CHANGE_CANCEL)))
	throttle.Throttle = 1
	s.rejects("a throttle of what is over", cluster.CodeConflict, "has ended", tasksCmd(throttle))
}

// TestRefusedReports: every reason for which an agent is not believed.
func TestRefusedReports(t *testing.T) {
	t.Parallel()
	s := stage(t)
	says := func(change func(*logv1.ReportAttempt)) *logv1.Command {
		r := s.reportOf(s.runs, cluster.JobFailed)
		change(r)
		return reportCmd(r)
	}
	rows := []refusalOf{
		{"from another node", cluster.CodeDenied, "is not on node n2", says(func(r *logv1.ReportAttempt) { r.Node = "n2" })},
		{"from a node that is not", cluster.CodeDenied, `is not on node n99`, says(func(r *logv1.ReportAttempt) { r.Node = "n99" })},
		{"from nobody", cluster.CodeDenied, "is not on node", says(func(r *logv1.ReportAttempt) { r.Node = "" })},
		{"of an attempt to come", cluster.CodeDenied, "attempt 2 of job", says(func(r *logv1.ReportAttempt) { r.Attempt = 2 })},
		{"of no attempt", cluster.CodeDenied, "attempt 0 of job", says(func(r *logv1.ReportAttempt) { r.Attempt = 0 })},
		{"with the token before", cluster.CodeDenied, "has another token", says(func(r *logv1.ReportAttempt) { r.Token-- })},
		{"with the token after", cluster.CodeDenied, "has another token", says(func(r *logv1.ReportAttempt) { r.Token++ })},
		{"without a token", cluster.CodeDenied, "has another token", says(func(r *logv1.ReportAttempt) { r.Token = 0 })},
		{"an exit code above all", cluster.CodeInvalid, "exit code 256", says(func(r *logv1.ReportAttempt) { r.Exit = &logv1.Exit{Code: 256} })},
		{"an exit code below all", cluster.CodeInvalid, "exit code -1", says(func(r *logv1.ReportAttempt) { r.Exit = &logv1.Exit{Code: -1} })},
		{"a signal above all", cluster.CodeInvalid, "signal 65", says(func(r *logv1.ReportAttempt) { r.Exit = &logv1.Exit{Signal: 65} })},
		{"a signal below all", cluster.CodeInvalid, "signal -9", says(func(r *logv1.ReportAttempt) { r.Exit = &logv1.Exit{Signal: -9} })},
	}
	for _, st := range []uint32{0, uint32(cluster.JobPending), uint32(cluster.JobQueued), uint32(cluster.JobUnreachable), uint32(cluster.JobDeadline) + 1, 255, 256 + uint32(cluster.JobCompleted), 1 << 31} {
		rows = append(rows, refusalOf{"a state that no attempt has", cluster.CodeInvalid, "an attempt cannot be in state", says(func(r *logv1.ReportAttempt) { r.State = st })})
	}
	s.table(rows)
	s.wantState(s.runs, cluster.JobRunning)
}

// TestRefusedOfTheSite: every reason for which nodes, partitions, reservations,
// tokens, weights and the rest are not changed.
func TestRefusedOfTheSite(t *testing.T) {
	t.Parallel()
	s := stage(t)
	stolen := node("n9", "boot1", 1)
	stolen.GPUs[0].ID = "n4-g7"
	ready := silentCmd("n1", "boot1")
	ready.GetSetNodeState().State = uint32(cluster.NodeReady)
	allow := denyCmd(agentRole, "n6")
	allow.GetDenyIdentity().Allow = true
	sha := installCmd(3, WeightsImport, []byte("three"))
	sha.GetInstallWeights().Sha256[0]++
	minus := installCmd(3, WeightsImport, []byte("three"))
	minus.GetInstallWeights().Origin.ChampionErrPpm = -1
	chatty := installCmd(3, WeightsImport, []byte("three"))
	chatty.GetInstallWeights().Origin.Reason = strings.Repeat("x", MaxWeightsReason+1)
	short := tokenCmd("x", agentRole, "n8", s.now.Add(time.Hour))
	short.GetCreateToken().Token.Hash = []byte("x")
	hook := func(change func(*logv1.Webhook)) *logv1.Command {
		c := hookCmd(1000, false, cluster.MailEnd)
		change(c.GetAddWebhook().Webhook)
		return c
	}
	later := s.f.st.Reservations().Get("later")
	s.table([]refusalOf{
		{"a node that was removed", cluster.CodeDenied, "node n7 was removed", registerCmd(node("n7", "boot1", 1))},
		{"a node with another's card", cluster.CodeConflict, "GPU n4-g7 is registered by node n4", registerCmd(stolen)},
		{"a node without a name", cluster.CodeInvalid, "is malformed", registerCmd(node("", "boot1", 0))},
		{"a node with too long a name", cluster.CodeInvalid, "at most 255 bytes together", registerCmd(node(cluster.NodeID(strings.Repeat("n", 251)), "boot1", 0))},
		{"silence of none", cluster.CodeNotFound, `node "n9" is not known`, silentCmd("n9", "boot1")},
		{"a node that is said to be ready", cluster.CodeInvalid, "a node comes back by registering", ready},
		{"drain of none", cluster.CodeNotFound, `node "n9" is not known`, drainCmd("n9", true)},
		{"drain of a card of none", cluster.CodeNotFound, `node "n9" is not known`, drainGPUCmd("n9", "g", true)},
		{"drain of another's card", cluster.CodeNotFound, `node n1 has no GPU "n2-g0"`, drainGPUCmd("n1", "n2-g0", true)},
		{"fence of none", cluster.CodeNotFound, `node "n9" is not known`, fenceCmd("n9")},
		{"fence of what answers", cluster.CodeConflict, "node n1 answers", fenceCmd("n1")},
		{"removal of none", cluster.CodeNotFound, `node "n9" is not known`, removeCmd("n9")},
		{"removal with jobs", cluster.CodeConflict, "node n1 has 1 live jobs", removeCmd("n1")},
		{"sharing on two places", cluster.CodeInvalid, "name only one of", sharingCmd(&logv1.SharingOff{Node: "n1", Gpu: "n1-g0"}, true)},
		{"sharing of no node", cluster.CodeNotFound, `node "n9" is not known`, sharingCmd(&logv1.SharingOff{Node: "n9"}, true)},
		{"sharing of no card", cluster.CodeNotFound, `GPU "g" is not known`, sharingCmd(&logv1.SharingOff{Gpu: "g"}, true)},
		{"sharing of no partition", cluster.CodeNotFound, `partition "cpu" is not known`, sharingCmd(&logv1.SharingOff{Partition: "cpu"}, true)},
		{"a partition that is gone", cluster.CodeConflict, "partition cpu was removed meanwhile", partitionCmd(&cluster.Partition{Name: "cpu", Nodes: hosts(t, "n1")}, 5)},
		{"a partition that was changed", cluster.CodeConflict, "partition gpu was changed meanwhile", partitionCmd(&cluster.Partition{Name: "gpu", Nodes: hosts(t, "n1")}, 0)},
		{"removal of no partition", cluster.CodeNotFound, `partition "cpu" is not known`, removePartitionCmd("cpu")},
		{"removal of one with jobs", cluster.CodeConflict, "partition gpu has 1 jobs that wait and 0 that run", removePartitionCmd("gpu")},
		{"a reservation that is gone", cluster.CodeConflict, "reservation gone was removed meanwhile", reservationCmd(&dispatch.Reservation{Name: "gone", Start: t0, Duration: time.Hour, Nodes: hosts(t, "n1")}, 5)},
		{"a reservation that was changed", cluster.CodeConflict, "reservation later was changed meanwhile", reservationCmd(later, later.Revision-1)},
		{"removal of no reservation", cluster.CodeNotFound, `reservation "gone" is not known`, &logv1.Command{Kind: &logv1.Command_RemoveReservation{RemoveReservation: &logv1.RemoveReservation{Name: "gone"}}}},
		{"a token of half a hash", cluster.CodeInvalid, "token hash has 1 bytes", short},
		{"a token for nobody", cluster.CodeInvalid, "each must be given", tokenCmd("x", agentRole, "", s.now.Add(time.Hour))},
		{"a token for a role with a slash", cluster.CodeInvalid, "role without '/'", tokenCmd("x", "a/b", "n8", s.now.Add(time.Hour))},
		{"a token for who was removed", cluster.CodeDenied, "agent n7 was removed", tokenCmd("x", agentRole, "n7", s.now.Add(time.Hour))},
		{"a token twice", cluster.CodeConflict, "the token exists already", tokenCmd("open", agentRole, "n8", s.now.Add(time.Hour))},
		{"a wrong token", cluster.CodeUnauthenticated, "wrong, used, expired, or for another name", useCmd("wrong", "n8")},
		{"a token for another name", cluster.CodeUnauthenticated, "wrong, used, expired, or for another name", useCmd("open", "n9")},
		{"denial of nobody", cluster.CodeInvalid, "each must be given", denyCmd(agentRole, "")},
		{"who is not denied is allowed", cluster.CodeNotFound, "agent n6 is not denied", allow},
		{"weights of the version in use", cluster.CodeConflict, "weights of version 2 cannot follow version 2", weightsCmd(2, []byte("x"))},
		{"weights of the version after the next", cluster.CodeConflict, "weights of version 4 cannot follow version 2", weightsCmd(4, []byte("x"))},
		{"no weights", cluster.CodeInvalid, "weights of 0 bytes", weightsCmd(3, nil)},
		{"weights that are too large", cluster.CodeInvalid, "1 to 262144 are allowed", weightsCmd(3, make([]byte, 262145))},
		{"weights that do not match", cluster.CodeInvalid, "do not match their checksum", sha},
		{"weights with an error below 0", cluster.CodeInvalid, "a negative error", minus},
		{"weights with too long a reason", cluster.CodeInvalid, "a reason of 257 bytes", chatty},
		{"weights of another source", cluster.CodeInvalid, "must be learned or import", installCmd(3, WeightsRollback, []byte("x"))},
		{"a rollback to what is in use", cluster.CodeConflict, "version 2 is in use already", rollbackCmd(3, 2)},
		{"a rollback to what is not kept", cluster.CodeNotFound, "version 7 is not kept", rollbackCmd(3, 7)},
		{"a rollback that comes late", cluster.CodeConflict, "version 2 is in use by now", rollbackCmd(2, 1)},
		{"a pin of another version", cluster.CodeConflict, "version 2 is in use by now, and not 1", pinCmd(1, true)},
		{"what was learned of sharing twice", cluster.CodeConflict, "interference of version 1 cannot follow version 1", interferenceCmd(1, []byte("x"))},
		{"nothing learned of sharing", cluster.CodeInvalid, "interference of 0 bytes", interferenceCmd(2, nil)},
		{"too much learned of sharing", cluster.CodeInvalid, "1 to 65536 are allowed", interferenceCmd(2, make([]byte, 65537))},
		{"no runs", cluster.CodeInvalid, "0 runs, want 1 to 1024", importCmd()},
		{"a run that cannot be", cluster.CodeInvalid, "run 2: no run can have these figures", importCmd(pastRun(1), &logv1.Sample{Signature: "s", GpuType: "T4", Milli: 1001})},
		{"a webhook to nowhere", cluster.CodeInvalid, "url: 0 bytes", hook(func(w *logv1.Webhook) { w.Url = "" })},
		{"a webhook with too long a URL", cluster.CodeInvalid, "must have 1 to 2048", hook(func(w *logv1.Webhook) { w.Url = strings.Repeat("u", 2049) })},
		{"a webhook with a short secret", cluster.CodeInvalid, "secret: 15 bytes", hook(func(w *logv1.Webhook) { w.Secret = w.Secret[:15] })},
		{"a webhook of no events", cluster.CodeInvalid, "events: there are none", hook(func(w *logv1.Webhook) { w.Events = 0 })},
		{"removal of no webhook", cluster.CodeNotFound, "webhook 9 is not known", unhookCmd(9)},
		{"a cluster without an id", cluster.CodeInvalid, "the cluster id is missing", initCmd("", 100)},
		{"another cluster", cluster.CodeConflict, `the cluster is "c1" already`, initCmd("c2", 100)},
		{"a cluster that keeps too much", cluster.CodeInvalid, "keep_finished: 10000001", initCmd("c1", 10_000_001)},
	})
	s.must(pinCmd(2, true))
	s.table([]refusalOf{
		{"what is learned under a pin", cluster.CodeDenied, "version 2 is pinned", installCmd(3, WeightsLearned, []byte("x"))},
		{"what is learned of sharing under a pin", cluster.CodeDenied, "version 2 of the weights is pinned", interferenceCmd(2, []byte("x"))},
	})
	for range maxHooksOfUser - 1 {
		s.must(hookCmd(1000, false, cluster.MailEnd))
	}
	s.rejects("one webhook too many", cluster.CodeExhausted, "uid 1000 has 8 webhooks", hookCmd(1000, false, cluster.MailEnd))
	s.must(hookCmd(1001, false, cluster.MailEnd)) // of another user
	inside := spec(1)
	inside.Where = &cluster.Where{Reservation: "later"}
	s.submit(inside)
	s.rejects("removal of a reservation that somebody asks for", cluster.CodeConflict, "jobs that have not ended ask for it, 1 in all", &logv1.Command{Kind: &logv1.Command_RemoveReservation{RemoveReservation: &logv1.RemoveReservation{Name: "later"}}})
	broken := partitionCmd(&cluster.Partition{Name: "bad", Nodes: hosts(t, "n1")}, 0)
	broken.GetSetPartition().Partition.Nodes = "n[1-"
	s.rejects("a partition of a list that cannot be read", cluster.CodeInvalid, "", broken)
	badWhen := &logv1.SetReservation{Reservation: conv.ReservationToLog(later), Base: later.Revision}
	badWhen.Reservation.Nodes = "n[1-"
	s.rejects("a reservation of a list that cannot be read", cluster.CodeInvalid, "", &logv1.Command{Kind: &logv1.Command_SetReservation{SetReservation: badWhen}})
}

package fsm

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/fsm/table"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

const (
	testTerm = 3
	t0       = cluster.Time(1_700_000_000_000_000)
)

const agentRole = "agent"

// How often a job is tried, how many attempts that never began do not count, and how
// often it runs again for what others on its GPU did.
const (
	maxAttempts   = 100
	maxNeverBegan = 20
	maxDisturbed  = 3
)

// isTry reports whether an attempt counts: those that made room do not.
func isTry(a cluster.Attempt) bool { return a.State != cluster.JobPreempted || a.Preempt == nil }

// reported applies a report as an entry of a version does.
func (m *machine) reported(version uint32, r *logv1.ReportAttempt) {
	m.f.st.at.Version = version
	m.f.st.steward.Apply(&logv1.Command{Kind: &logv1.Command_ReportAttempt{ReportAttempt: r}})
}

// tb is what testing.TB and *rapid.T have in common.
type tb interface {
	Helper()
	Fatalf(format string, args ...any)
}

// machine feeds an FSM a log, one second an entry.
type machine struct {
	t     tb
	f     *FSM
	index uint64
	now   cluster.Time
}

func newMachine(t tb) *machine { return &machine{t: t, f: New(Options{Version: "test"}), now: t0} }

// do applies commands in one entry.
func (m *machine) do(cmds ...*logv1.Command) []Result {
	m.t.Helper()
	m.index++
	m.now = m.now.Add(time.Second)
	return m.apply(testTerm, testTerm, cmds...)
}

func (m *machine) apply(entryTerm, logTerm uint64, cmds ...*logv1.Command) []Result {
	m.t.Helper()
	rs := applyTo(m.t, m.f, m.index, logTerm, encode(m.t, entryTerm, m.now, cmds...))
	if len(rs) != len(cmds) {
		m.t.Fatalf("%d results for %d commands", len(rs), len(cmds))
	}
	return rs
}

func encode(t tb, term uint64, now cluster.Time, cmds ...*logv1.Command) []byte {
	t.Helper()
	data, err := EncodeEntry(EntryVersion, term, now, cmds)
	if err != nil {
		t.Fatalf("encode: %v", err)
	}
	return data
}

func applyTo(t tb, f *FSM, index, term uint64, data []byte) []Result {
	t.Helper()
	rs, ok := f.Apply(&raft.Log{Index: index, Term: term, Data: data}).([]Result)
	if !ok {
		t.Fatalf("Apply answered something else than []Result")
	}
	return rs
}

// must applies one command and fails when it is refused.
func (m *machine) must(cmd *logv1.Command) Result {
	m.t.Helper()
	r := m.do(cmd)[0]
	if r.Err != nil {
		m.t.Fatalf("entry %d: refused: %v", m.index, r.Err)
	}
	return r
}

// refused applies one command and fails unless it is refused with the code
// and nothing but time goes on.
func (m *machine) refused(want cluster.Code, cmd *logv1.Command) *cluster.Error {
	m.t.Helper()
	before := contents(m.t, m.f)
	r := m.do(cmd)[0]
	if r.Err == nil || r.Err.Code != want {
		m.t.Fatalf("entry %d: err %v, want code %q", m.index, r.Err, want)
	}
	if after := contents(m.t, m.f); before != after {
		m.t.Fatalf("entry %d: was refused and changed the state:\n%s\n%s", m.index, before, after)
	}
	return r.Err
}

// contents prints all records but the one that counts entries.
func contents(t tb, f *FSM) string {
	t.Helper()
	var b bytes.Buffer
	err := f.st.each(table.NewWriter(func(r *logv1.Record) error {
		if r.GetMeta() == nil {
			fmt.Fprintln(&b, r.String())
		}
		return nil
	}))
	if err != nil {
		t.Fatalf("records: %v", err)
	}
	return b.String()
}

func (m *machine) job(id cluster.JobID) *cluster.Job {
	m.t.Helper()
	j, ok := m.f.Job(id)
	if !ok {
		m.t.Fatalf("job %d is gone", id)
	}
	return j
}

func (m *machine) wantState(id cluster.JobID, want cluster.JobState) *cluster.Job {
	m.t.Helper()
	j := m.job(id)
	if j.State != want {
		m.t.Fatalf("job %d is %s (%s), want %s", id, j.State, j.Reason, want)
	}
	return j
}

// submit adds a job with its own request id and returns its id.
func (m *machine) submit(spec *cluster.Spec) cluster.JobID {
	m.t.Helper()
	r := m.must(submitCmd(m.f.NextJobID(), fmt.Sprintf("request-%d", m.index), 1000, spec))
	return r.Jobs[0]
}

// start places a job and fails when the plan is rejected.
func (m *machine) start(id cluster.JobID, shares ...cluster.GPUShare) cluster.AttemptID {
	m.t.Helper()
	r := m.must(planCmd(dispatch.Plan{Starts: []dispatch.Start{m.startOf(id, shares...)}}))
	if len(r.Plan.Started) != 1 {
		m.t.Fatalf("start of job %d was rejected: %v", id, r.Plan.Rejected)
	}
	return r.Plan.Started[0]
}

// startOf is a start of job id on the node of its first share, or n1.
func (m *machine) startOf(id cluster.JobID, shares ...cluster.GPUShare) dispatch.Start {
	node := cluster.NodeID("n1")
	if len(shares) > 0 {
		node = m.f.st.fleet.NodeOf(shares[0].GPU)
	}
	j := m.job(id)
	return dispatch.Start{
		Job: id, Attempt: uint32(len(j.Attempts)) + 1, Why: "first fit",
		Berth:    cluster.Berth{Node: node, GPUs: shares, CPUMilli: 1000, MemMiB: 1024},
		Estimate: cluster.Estimate{GPUType: "A100", GPUMemMiB: 8000, Milli: 300, Source: "declared"},
	}
}

func (m *machine) enqueue(id cluster.JobID, gpu cluster.GPUID, rank int64) {
	m.t.Helper()
	r := m.must(planCmd(dispatch.Plan{Moves: []dispatch.QueueMove{{Job: id, GPU: gpu, Rank: rank, Reason: cluster.ReasonResources}}}))
	if r.Plan.Moved != 1 {
		m.t.Fatalf("move of job %d was rejected: %v", id, r.Plan.Rejected)
	}
}

// reportOf is a report about the last attempt of a job.
func (m *machine) reportOf(id cluster.JobID, state cluster.JobState) *logv1.ReportAttempt {
	m.t.Helper()
	a := m.job(id).Last()
	return &logv1.ReportAttempt{Node: string(a.Berth.Node), Job: uint64(id), Attempt: a.No, Token: uint64(a.Token), State: uint32(state)}
}

func (m *machine) report(id cluster.JobID, state cluster.JobState) Result {
	m.t.Helper()
	return m.must(reportCmd(m.reportOf(id, state)))
}

// oom reports an out-of-memory on the GPU.
func (m *machine) oom(id cluster.JobID, peak int64) {
	m.t.Helper()
	r := m.reportOf(id, cluster.JobOutOfMemory)
	r.Usage = &logv1.Usage{GpuMemPeakMib: peak, GpuOom: true}
	m.must(reportCmd(r))
}

func share1(gpu cluster.GPUID, mib, milli int64) cluster.GPUShare {
	return cluster.GPUShare{GPU: gpu, Share: cluster.Share{MemMiB: mib, Milli: milli}}
}

func whole(gpu cluster.GPUID) cluster.GPUShare {
	return cluster.GPUShare{GPU: gpu, Share: cluster.Share{MemMiB: 40_000, Milli: cluster.WholeGPU, Exclusive: true}}
}

func spec(gpus int) *cluster.Spec {
	return &cluster.Spec{
		Name: "train", Command: []string{"/usr/bin/python3", "train.py"}, Env: []string{"HOME=/home/ada", "PATH=/usr/bin:/bin"},
		Dir: "/home/ada", GPUs: gpus, Signature: "sig-1", Stdout: "/home/ada/%j.out",
	}
}

// node has GPUs named <id>-g0, <id>-g1, …, each of 40,000 sellable MiB.
func node(id cluster.NodeID, boot string, gpus int) *cluster.Node {
	n := &cluster.Node{ID: id, BootID: boot, State: cluster.NodeReady, CPUMilli: 64_000, MemMiB: 256 << 10, Address: string(id) + ":1", Runtimes: []string{"host"}}
	for i := range gpus {
		n.GPUs = append(n.GPUs, cluster.GPU{
			ID: cluster.GPUID(fmt.Sprintf("%s-g%d", id, i)), Index: i, Type: "A100", MemMiB: 40_960, SellableMiB: 40_000, MaxShares: 3, CapMode: "sim",
		})
	}
	return n
}

func submitCmd(first cluster.JobID, rid string, uid cluster.UID, specs ...*cluster.Spec) *logv1.Command {
	body := sha256.New()
	c := &logv1.SubmitJob{FirstJob: uint64(first), RequestId: rid, Owner: conv.OwnerToLog(cluster.Owner{UID: uid, GID: 100, Name: "ada"})}
	text := ""
	for i, s := range specs {
		if i == 0 || s != specs[i-1] {
			// The committed files were written before specs had scripts.
			text, _, _ = strings.Cut(fmt.Sprintf("%+v", *s), " Script:")
		}
		fmt.Fprint(body, text, "}")
		c.Jobs = append(c.Jobs, &logv1.NewJob{Spec: conv.SpecToLog(s), Estimates: conv.EstimatesToLog([]cluster.Estimate{
			{GPUType: "A100", GPUMemMiB: 8000, GPUMemP95MiB: 9000, Milli: 300, Duration: time.Hour, ConfidenceMilli: 500, Source: "declared"},
		})})
	}
	c.BodyHash = body.Sum(nil)
	return &logv1.Command{Kind: &logv1.Command_SubmitJob{SubmitJob: c}}
}

func planCmd(p dispatch.Plan) *logv1.Command {
	return &logv1.Command{Kind: &logv1.Command_ApplyPlan{ApplyPlan: conv.PlanToLog(&p)}}
}

func cancelCmd(id cluster.JobID, by cluster.UID) *logv1.Command {
	return &logv1.Command{Kind: &logv1.Command_CancelJob{CancelJob: &logv1.CancelJob{Job: uint64(id), By: uint32(by), Admin: by == 0}}}
}

func reportCmd(r *logv1.ReportAttempt) *logv1.Command {
	return &logv1.Command{Kind: &logv1.Command_ReportAttempt{ReportAttempt: r}}
}

func registerCmd(n *cluster.Node) *logv1.Command {
	return &logv1.Command{Kind: &logv1.Command_RegisterNode{RegisterNode: &logv1.RegisterNode{Node: conv.NodeToLog(n)}}}
}

func silentCmd(id cluster.NodeID, boot string) *logv1.Command {
	return &logv1.Command{Kind: &logv1.Command_SetNodeState{SetNodeState: &logv1.SetNodeState{
		Node: string(id), State: uint32(cluster.NodeUnreachable), BootId: boot,
	}}}
}

func drainCmd(id cluster.NodeID, drain bool) *logv1.Command {
	return &logv1.Command{Kind: &logv1.Command_DrainNode{DrainNode: &logv1.DrainNode{Node: string(id), Drain: drain, Reason: "new fans"}}}
}

func removeCmd(id cluster.NodeID) *logv1.Command {
	return &logv1.Command{Kind: &logv1.Command_RemoveNode{RemoveNode: &logv1.RemoveNode{Node: string(id)}}}
}

func tokenCmd(secret, role, id string, expires cluster.Time) *logv1.Command {
	h := sha256.Sum256([]byte(secret))
	return &logv1.Command{Kind: &logv1.Command_CreateToken{CreateToken: &logv1.CreateToken{Token: &logv1.Token{
		Hash: h[:], Role: role, Id: id, ExpiresUs: int64(expires), CreatedBy: 1,
	}}}}
}

func useCmd(secret, id string) *logv1.Command {
	h := sha256.Sum256([]byte(secret))
	return &logv1.Command{Kind: &logv1.Command_UseToken{UseToken: &logv1.UseToken{Hash: h[:], Id: id}}}
}

func denyCmd(role, id string) *logv1.Command {
	return &logv1.Command{Kind: &logv1.Command_DenyIdentity{DenyIdentity: &logv1.DenyIdentity{Role: role, Id: id}}}
}

func weightsCmd(version uint64, blob []byte) *logv1.Command {
	h := sha256.Sum256(blob)
	return &logv1.Command{Kind: &logv1.Command_PublishWeights{PublishWeights: &logv1.PublishWeights{Version: version, Blob: blob, Sha256: h[:]}}}
}

func installCmd(version uint64, source string, blob []byte) *logv1.Command {
	h := sha256.Sum256(blob)
	return &logv1.Command{Kind: &logv1.Command_InstallWeights{InstallWeights: &logv1.InstallWeights{
		Version: version, Blob: blob, Sha256: h[:], Origin: &logv1.WeightsOrigin{
			Source: source, By: 7, Trained: 400, Tested: 100, ChampionErrPpm: 81_000, ChallengerErrPpm: 42_000, Reason: "half the error", SampleSeq: 9,
		},
	}}}
}

func rollbackCmd(version, to uint64) *logv1.Command {
	return &logv1.Command{Kind: &logv1.Command_RollbackWeights{RollbackWeights: &logv1.RollbackWeights{Version: version, To: to, By: 8}}}
}

func pinCmd(version uint64, pinned bool) *logv1.Command {
	return &logv1.Command{Kind: &logv1.Command_PinWeights{PinWeights: &logv1.PinWeights{Version: version, Pinned: pinned, By: 9}}}
}

func interferenceCmd(version uint64, blob []byte) *logv1.Command {
	h := sha256.Sum256(blob)
	return &logv1.Command{Kind: &logv1.Command_InstallInterference{InstallInterference: &logv1.InstallInterference{
		Version: version, Blob: blob, Sha256: h[:], Observations: 12, SampleSeq: 9,
	}}}
}

func fenceCmd(id cluster.NodeID) *logv1.Command {
	return &logv1.Command{Kind: &logv1.Command_FenceNode{FenceNode: &logv1.FenceNode{Node: string(id), By: 1}}}
}

func powerCmd(id cluster.NodeID, to cluster.PowerState, asked bool, more func(*logv1.PowerNode)) *logv1.Command {
	c := &logv1.PowerNode{Node: string(id), To: uint32(to), Asked: asked}
	if asked {
		c.By = 3
	}
	if more != nil {
		more(c)
	}
	return &logv1.Command{Kind: &logv1.Command_PowerNode{PowerNode: c}}
}

func initCmd(id string, keep uint32) *logv1.Command {
	return &logv1.Command{Kind: &logv1.Command_InitCluster{InitCluster: &logv1.InitCluster{Config: &logv1.Config{ClusterId: id, Name: "lab", KeepFinished: keep}}}}
}

func checkpointCmd(index uint64, hash []byte) *logv1.Command {
	return &logv1.Command{Kind: &logv1.Command_Checkpoint{Checkpoint: &logv1.Checkpoint{Index: index, Hash: hash}}}
}

// sink holds a snapshot in memory.
type sink struct {
	bytes.Buffer
	closed, cancelled bool
	fail              error
}

func (s *sink) ID() string { return "test" }

func (s *sink) Write(p []byte) (int, error) {
	if s.fail != nil {
		return 0, s.fail
	}
	return s.Buffer.Write(p)
}

func (s *sink) Close() error { s.closed = true; return nil }

func (s *sink) Cancel() error { s.cancelled = true; return nil }

func snapshotOf(t tb, f *FSM) []byte {
	t.Helper()
	snap, err := f.Snapshot()
	if err != nil {
		t.Fatalf("snapshot: %v", err)
	}
	defer snap.Release()
	var s sink
	if err := snap.Persist(&s); err != nil || !s.closed || s.cancelled {
		t.Fatalf("persist: %v, closed %t, cancelled %t", err, s.closed, s.cancelled)
	}
	return s.Bytes()
}

func restored(t tb, snap []byte) *FSM {
	t.Helper()
	f := New(Options{Version: "test"})
	if err := f.Restore(io.NopCloser(bytes.NewReader(snap))); err != nil {
		t.Fatalf("restore: %v", err)
	}
	return f
}

// lab is a machine with nodes n1 and n2 of two GPUs each.
func lab(t testing.TB) *machine {
	t.Helper()
	m := newMachine(t)
	m.must(initCmd("c1", 100))
	m.must(registerCmd(node("n1", "boot1", 2)))
	m.must(registerCmd(node("n2", "boot1", 2)))
	return m
}

// cardsOf are the nodes of all cards that are registered.
func cardsOf(s *State) map[cluster.GPUID]cluster.NodeID {
	out := map[cluster.GPUID]cluster.NodeID{}
	for _, gpu := range testCards(s) {
		if id := s.fleet.NodeOf(gpu); id != "" {
			out[gpu] = id
		}
	}
	return out
}

// onCards are the jobs that lie on each card.
func onCards(s *State) map[cluster.GPUID][]cluster.JobID {
	out := map[cluster.GPUID][]cluster.JobID{}
	for _, gpu := range testCards(s) {
		if on := s.fleet.On(gpu); len(on) > 0 {
			out[gpu] = on
		}
	}
	return out
}

// testCards are the cards that there are, or that some job was ever placed on.
func testCards(s *State) (out []cluster.GPUID) {
	for _, n := range s.fleet.Nodes() {
		for i := range n.GPUs {
			out = append(out, n.GPUs[i].ID)
		}
	}
	for _, j := range s.roll.Jobs.List() {
		for i := range j.Attempts {
			for _, b := range j.Attempts[i].Berths() {
				for _, g := range b.GPUs {
					out = append(out, g.GPU)
				}
			}
		}
	}
	return out
}

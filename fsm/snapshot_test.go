package fsm

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protodelim"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/accounting"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/cluster/service"
	"github.com/berth-scheduler/berth/fsm/table"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// everything is a state with an entity of each kind.
func everything(t testing.TB) *machine {
	m := lab(t)
	s := spec(1)
	s.RequeueOnLoss, s.Features, s.Image = true, []byte{1, 0, 255}, "registry.example/train:1"
	done := running(m, s, 8000)
	beside := running(m, spec(1), 9000)
	r := m.reportOf(done, cluster.JobFailed)
	r.Exit, r.Usage, r.Reason = exit(3), usage(7000, false), &logv1.Reason{Code: "NonZeroExitCode", Detail: "exit code 3"}
	m.must(reportCmd(r))
	m.oom(running(m, spec(1), 4000), 4100)
	m.report(running(m, spec(1), 1000), cluster.JobCompleting)
	m.must(cancelCmd(beside, 0))
	m.enqueue(m.submit(spec(2)), "n1-g1", 1)
	m.enqueue(m.submit(spec(1)), "n1-g1", -3)
	m.start(m.submit(spec(1)), whole("n2-g0"))
	m.must(submitCmd(m.f.NextJobID(), "array", 1001, spec(0), spec(0)))
	m.must(tokenCmd("s", agentRole, "n7", t0.Add(time.Hour)))
	m.must(denyCmd("gate", "x/y"))
	m.must(weightsCmd(1, []byte("weights")))
	m.must(installCmd(2, WeightsImport, []byte("second")))
	m.must(rollbackCmd(3, 1))
	m.must(interferenceCmd(1, []byte("company")))
	m.must(pinCmd(3, true))
	taught := running(m, s, 2000)
	r = m.reportOf(taught, cluster.JobCompleted)
	r.Usage = usage(1500, false)
	m.must(reportCmd(r))
	m.must(drainCmd("n2", true))
	m.must(silentCmd("n2", "boot1"))
	m.must(fenceCmd("n2"))
	m.must(silentCmd("n2", "boot1"))
	m.must(registerCmd(node("n3", "boot9", 0)))
	moved := m.up(hooked(), "n1-g0")
	m.room(moved)
	m.report(moved, cluster.JobPreempted)
	m.must(partitionCmd(&cluster.Partition{Name: "a", Nodes: hosts(t, "n[1-2]"), GPUTypes: []string{"A100"}, Default: true, MaxTime: time.Hour, DefaultTime: time.Minute}, 0))
	held := m.submit(&cluster.Spec{Name: "held", Command: []string{"true"}, Hold: true, Begin: t0.Add(1000 * time.Hour)})
	m.must(holdCmd(held, 0, false))
	m.submit(after(cluster.AfterOK, held))
	m.submit(after(cluster.AfterOK, done))
	again := m.up(spec(1), "n1-g0")
	m.must(requeueCmd(again, 1000, true))
	m.report(again, cluster.JobPreempted)
	m.must(partitionCmd(&cluster.Partition{Name: "b", Nodes: hosts(t, "n1"), Networks: []cluster.Network{cluster.NetNone, cluster.NetHost}}, 0))
	m.submit(contained())
	m.must(registerCmd(node("n4", "boot1", 2)))
	m.must(registerCmd(node("n5", "boot1", 2)))
	waits := m.gang("n4-g0", "n5-g0")
	m.must(reportCmd(m.partOf(waits, 1, cluster.JobStarting, true)))
	lame := m.gang("n4-g1", "n5-g1")
	r = m.partOf(lame, 0, cluster.JobFailed, false)
	r.Exit, r.Usage = exit(7), usage(100, false)
	m.must(reportCmd(r))
	m.sick()
	m.must(registerCmd(node("n24", "boot1", 1)))
	m.must(registerCmd(node("n25", "boot1", 1)))
	m.must(registerCmd(node("n26", "boot1", 1)))
	wide := m.spans(spanning(1, 3), "n24-g0")
	m.must(m.growCmd(wide, "n25-g0", "n26-g0"))
	m.must(m.shrinkCmd(wide, "n26"))
	return m
}

func TestSnapshotAndRestore(t *testing.T) {
	t.Parallel()
	m := everything(t)
	data := snapshotOf(t, m.f)
	f := restored(t, data)
	if !bytes.Equal(f.Hash(), m.f.Hash()) {
		t.Fatalf("restored state differs:\n%s", cmp.Diff(contents(t, m.f), contents(t, f)))
	}
	if !bytes.Equal(snapshotOf(t, f), data) {
		t.Error("a snapshot of the restored state has other bytes")
	}
	if !f.st.fleet.Ledger().Equal(m.f.st.fleet.Ledger()) {
		t.Error("the ledgers differ")
	}
	if f.Index() != m.f.Index() || f.Term() != testTerm || f.NextJobID() != m.f.NextJobID() || f.Now() != m.f.Now() {
		t.Error("counters differ")
	}
	again := m.must(submitCmd(m.f.NextJobID(), "array", 1001, spec(0), spec(0)))
	if !again.Existing {
		t.Error("the request is forgotten")
	}
}

// TestRestoreReplacesAll: nothing of the state before is left.
func TestRestoreReplacesAll(t *testing.T) {
	t.Parallel()
	m, empty := everything(t), New(Options{Version: "test"})
	if err := m.f.Restore(io.NopCloser(bytes.NewReader(snapshotOf(t, empty)))); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(m.f.Hash(), empty.Hash()) || m.f.Index() != 0 || len(m.f.Counts()) != 0 || len(m.f.NodeJobs("n1")) != 0 {
		t.Error("something is left")
	}
}

func TestSnapshotIsOfTheMomentItWasTaken(t *testing.T) {
	t.Parallel()
	m := everything(t)
	want := snapshotOf(t, m.f)
	snap, err := m.f.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		m.enqueue(m.submit(spec(1)), "n1-g1", 0)
		m.must(registerCmd(node("n1", "boot1", 2)))
		m.must(cancelCmd(m.f.NextJobID()-1, 0))
	}
	m.must(useCmd("s", "n7"))
	m.must(registerCmd(node("n1", "boot2", 2)))
	m.enqueue(m.submit(spec(1)), "n1-g0", 0)
	var s sink
	if err := snap.Persist(&s); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(s.Bytes(), want) {
		t.Error("what came after is in it")
	}
}

func TestPersistFails(t *testing.T) {
	t.Parallel()
	snap, err := everything(t).f.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	full := errors.New("no space left on device")
	s := sink{fail: full}
	if err := snap.Persist(&s); !errors.Is(err, full) || !s.cancelled || s.closed {
		t.Errorf("err %v, cancelled %t, closed %t", err, s.cancelled, s.closed)
	}
}

// reframe reads the messages of a snapshot and writes what edit makes of them.
func reframe(t *testing.T, data []byte, edit func(i int, r *logv1.Record) bool) []byte {
	t.Helper()
	br := bufio.NewReader(bytes.NewReader(data))
	out := &framer{w: bufio.NewWriter(nil)}
	var buf bytes.Buffer
	out.w.Reset(&buf)
	head := new(logv1.SnapshotHeader)
	if err := protodelim.UnmarshalFrom(br, head); err != nil {
		t.Fatal(err)
	}
	if err := out.put(head); err != nil {
		t.Fatal(err)
	}
	for i := 0; ; i++ {
		r := new(logv1.Record)
		err := protodelim.UnmarshalFrom(br, r)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if edit(i, r) {
			if err := out.put(r); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := out.w.Flush(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func TestDamagedSnapshotsAreRefused(t *testing.T) {
	t.Parallel()
	m := everything(t)
	good := snapshotOf(t, m.f)
	edit := func(f func(r *logv1.Record)) []byte {
		return reframe(t, good, func(_ int, r *logv1.Record) bool { f(r); return true })
	}
	drop := func(match func(r *logv1.Record) bool) []byte {
		return reframe(t, good, func(_ int, r *logv1.Record) bool { return !match(r) })
	}
	var newer bytes.Buffer
	if _, err := protodelim.MarshalTo(&newer, &logv1.SnapshotHeader{Format: 2, WrittenBy: "9.1"}); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, want string
		data       []byte
	}{
		{"empty", "header", nil},
		{"newer format", `format 2 was written by berth "9.1", this one reads format 1; upgrade it`, newer.Bytes()},
		{"cut in the middle", "record", good[:len(good)/2]},
		{"without its end", "record", drop(func(r *logv1.Record) bool { return r.GetEnd() != nil })},
		{"a huge length", "record 0", append(bytes.Clone(good[:20]), 0xff, 0xff, 0xff, 0xff, 0x7f)},
		{"a job is missing", "were written", drop(func(r *logv1.Record) bool { return r.GetJob().GetId() == 1 })},
		{"a job is changed", "hash", edit(func(r *logv1.Record) {
			if j := r.GetJob(); j.GetId() == 1 {
				j.Revision++
			}
		})},
		{"a node is missing", "record", drop(func(r *logv1.Record) bool { return r.GetNode().GetId() == "n1" })},
		{"a job without a spec", "spec is missing", edit(func(r *logv1.Record) {
			if j := r.GetJob(); j != nil {
				j.Spec = nil
			}
		})},
		{"a job in no state", "state", edit(func(r *logv1.Record) {
			if j := r.GetJob(); j != nil {
				j.State = 200
			}
		})},
		{"a job twice", "twice", edit(func(r *logv1.Record) {
			if j := r.GetJob(); j != nil {
				j.Id = 1
			}
		})},
		{"someone in a queue who is not queued", "does not belong", edit(func(r *logv1.Record) {
			if q := r.GetQueue(); q != nil {
				q.Waiters[0].Job = 1
			}
		})},
		{"a queue is missing", "queued", reframe(t, good, func(_ int, r *logv1.Record) bool {
			if e := r.GetEnd(); e != nil {
				e.Records--
			}
			return r.GetQueue() == nil
		})},
		{"an id that is yet to be given", "below the next id", edit(func(r *logv1.Record) {
			if m := r.GetMeta(); m != nil {
				m.NextJob = 2
			}
		})},
		{"a request without a key", "malformed", edit(func(r *logv1.Record) {
			if q := r.GetRequest(); q != nil {
				q.Key = nil
			}
		})},
		{"old weights out of order", "out of order", edit(func(r *logv1.Record) {
			if w := r.GetKeptWeights(); w != nil {
				w.Version = 7
			}
		})},
		{"an unknown record", "unknown kind", edit(func(r *logv1.Record) {
			if r.GetConfig() != nil {
				r.Kind = nil
			}
		})},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := everything(t)
			was := m.f.Hash()
			err := m.f.Restore(io.NopCloser(bytes.NewReader(tc.data)))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("err %v, want %q in it", err, tc.want)
			}
			if !bytes.Equal(m.f.Hash(), was) {
				t.Error("a failed restore changed the state")
			}
		})
	}
}

// TestEveryFlippedBitIsSeen: no single-byte damage is ever served.
func TestEveryFlippedBitIsSeen(t *testing.T) {
	t.Parallel()
	m := everything(t)
	good := snapshotOf(t, m.f)
	want := m.f.Hash()
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 1 << (i % 8)
		st, err := readSnapshot(bytes.NewReader(bad), Options{})
		// The header's words for people are not part of the state.
		if err == nil && !bytes.Equal(st.hashNow(), want) {
			t.Fatalf("byte %d: damage was served", i)
		}
	}
}

func TestLongQueuesAreWrittenInParts(t *testing.T) {
	t.Parallel()
	m := lab(t)
	specs := make([]*cluster.Spec, 10_000+7)
	p := dispatch.Plan{}
	for i := range specs {
		specs[i] = spec(1)
		p.Moves = append(p.Moves, dispatch.QueueMove{Job: cluster.JobID(i) + 1, GPU: "n1-g0", Rank: int64(i % 5)})
	}
	m.must(submitCmd(1, "r1", 1000, specs...))
	if r := m.must(planCmd(p)); r.Plan.Moved != len(specs) {
		t.Fatalf("moved %d", r.Plan.Moved)
	}
	f := restored(t, snapshotOf(t, m.f))
	if d := cmp.Diff(m.f.Queue("n1-g0"), f.Queue("n1-g0")); d != "" {
		t.Error(d)
	}
}

// TestAlikeJobsAreWrittenTogether: what jobs share that stand one behind the other is
// encoded once in each of the parts that are written at once; all of them are restored
// as they were, and the bytes are those of a state in which nothing is shared.
func TestAlikeJobsAreWrittenTogether(t *testing.T) {
	t.Parallel()
	m := lab(t)
	other := spec(1)
	other.Command = []string{"other"}
	m.must(submitCmd(1, "r1", 1000, spec(1), spec(1), spec(1), other, spec(1), spec(1), spec(1), spec(1), spec(1)))
	m.must(estimateCmd(estimated([]cluster.Estimate{{GPUType: "T4", GPUMemMiB: 700}}, 7)))
	s := spec(1)
	s.Array, _ = cluster.ParseArray("0-2")
	array := m.submit(s)
	m.must(holdCmd(array+1, 1000, false)) // one by itself
	shared := map[int]int{}
	err := m.f.st.each(table.InParts(func(rs *table.Records) error {
		out := &framer{w: bufio.NewWriter(io.Discard)}
		if one := rs.Shared; one != nil {
			rs.Shared = func(i int) *logv1.Record {
				shared[i]++
				return one(i)
			}
		}
		return out.many(rs)
	}))
	// Jobs 1 to 5, of which 4 differs, and in the other lane 6 to 9, of which 7 has other
	// estimates, with the array's two. An array is no job: its record has one part.
	if want := map[int]int{0: 1, 3: 1, 4: 1, 5: 1, 6: 1, 7: 1, 9: 1}; err != nil || !maps.Equal(shared, want) {
		t.Errorf("shared parts were encoded of the records %v, want %v; %v", shared, want, err)
	}
	together := snapshotOf(t, m.f)
	for id := range cluster.JobID(9) {
		j := m.job(id + 1).Clone()
		j.Spec = new(*j.Spec)
		m.f.st.roll.Jobs.Put(j)
	}
	if !bytes.Equal(snapshotOf(t, m.f), together) {
		t.Error("the snapshot depends on what is shared in memory")
	}
	for _, together := range []table.Together{nil, atOnce} {
		m.f.opts.Together = together
		f := restored(t, snapshotOf(t, m.f))
		for id := cluster.JobID(1); id < m.f.NextJobID(); id++ {
			if d := cmp.Diff(m.job(id), (&machine{t: t, f: f}).job(id), alike); d != "" {
				t.Errorf("job %d: %s", id, d)
			}
		}
	}
}

// TestGolden holds the bytes of entries and snapshots: what was written once
// must be read for ever. A file is only ever added; one that is there changes
// with -update before the first release, and never after.
func TestGolden(t *testing.T) {
	t.Parallel()
	entry := encode(t, testTerm, t0,
		initCmd("c1", 100), registerCmd(node("n1", "boot1", 2)), submitCmd(1, "request-1", 1000, spec(1), spec(2)),
		planCmd(dispatch.Plan{BaseIndex: 9, Starts: []dispatch.Start{{Job: 1, Attempt: 1, Why: "first fit", Overtook: "shorter",
			Berth: cluster.Berth{Node: "n1", GPUs: []cluster.GPUShare{share1("n1-g0", 8000, 300)}, CPUMilli: 1000, MemMiB: 512}}},
			Moves: []dispatch.QueueMove{{Job: 2, GPU: "n1-g1", Rank: -4, EstStart: t0, Reason: cluster.ReasonResources}}}),
		reportCmd(&logv1.ReportAttempt{Node: "n1", Job: 1, Attempt: 1, Token: 1, State: uint32(cluster.JobFailed), Exit: exit(3), Usage: profiled(usage(5000, true))}),
		cancelCmd(2, 0), silentCmd("n1", "boot1"), drainCmd("n1", true), removeCmd("n9"),
		tokenCmd("s", agentRole, "n2", t0), useCmd("s", "n2"), denyCmd("gate", "x"), weightsCmd(1, []byte("w")), checkpointCmd(1000, []byte{1, 2}),
		installCmd(2, WeightsLearned, []byte("x")), rollbackCmd(3, 1), interferenceCmd(1, []byte("y")), pinCmd(3, true), fenceCmd("n1"), expireCmd(1, 2),
		submitCmd(3, "request-3", 1000, hooked()), preemptCmd(dispatch.Preemption{Job: 3, Attempt: 1, For: 2, Why: "las: shorter"}),
		partitionCmd(&cluster.Partition{Name: "a", Nodes: hosts(t, "n1"), Down: true}, 0), removePartitionCmd("a"),
		submitCmd(4, "request-4", 1000, &cluster.Spec{Name: "b", Hold: true, Begin: t0, Depends: []cluster.Dependency{{Kind: cluster.AfterOK, Job: 3}, {Kind: cluster.Singleton}}, DependAny: true, KillInvalidDepend: true}),
		holdCmd(4, 0, false), holdCmd(4, 0, true), requeueCmd(3, 1000, true),
		submitCmd(5, "request-5", 1000, contained()),
		submitCmd(6, "request-6", 1000, &cluster.Spec{Name: "c", Nodes: 2, Tasks: 4}), undoCmd(6, 1),
		planCmd(dispatch.Plan{Starts: []dispatch.Start{{Job: 6, Attempt: 1, Port: 20_001, Secret: "0123456789abcdef", Berth: cluster.Berth{Node: "n1", MemMiB: 1}, Rest: []cluster.Berth{{Node: "n2", CPUMilli: 2}}}}}),
		reportCmd(&logv1.ReportAttempt{Node: "n2", Job: 6, Attempt: 1, Token: 1, State: uint32(cluster.JobStarting), Ready: true}),
		registerCmd(unsoundNode("n1", "boot1")), drainGPUCmd("n1", "n1-g0", true),
		submitCmd(7, "request-7", 1000, &cluster.Spec{Name: "d", Account: "bio", QOS: "high", Nice: -5}),
		setCmd(&accounting.QOS{Name: "high", Priority: 7, Grace: time.Minute, Cancel: true, Default: true}, 0), setCmd(&accounting.Account{Name: "bio", Shares: 3, QOS: []string{"high"}, DefaultQOS: "high"}, 0),
		setCmd(&accounting.Member{Account: "bio", UID: 1000, Name: "ada", Shares: 2, Default: true, Coordinator: true}, 0), setCmd(quota(accounting.Subject{Account: "bio", Each: true}, accounting.Limits{GPUMilli: 1, Running: 2, Jobs: 3, GPUTime: 4, Period: accounting.Weekly, MaxTime: time.Hour, MaxGPUs: 5}), 0),
		setCmd(&accounting.AccountPolicy{HalfLife: time.Hour, CoreMicro: 9, Require: true, GPUWeights: []accounting.GPUWeight{{GPUType: "T4", Milli: 200}}}, 0), unsetCmd(&accounting.AccountPolicy{}),
		// They are refused, since the least that is taken would make this file ten times as long.
		&logv1.Command{Kind: &logv1.Command_PutBulk{PutBulk: &logv1.PutBulk{Sum: make([]byte, 32), Size: 1 << 16, Part: 1, Data: []byte("part"), Uid: 1000}}},
		&logv1.Command{Kind: &logv1.Command_SubmitJob{SubmitJob: &logv1.SubmitJob{FirstJob: 8, RequestId: "request-8", BodyHash: make([]byte, 32), Owner: &logv1.Owner{Uid: 1000}, Jobs: []*logv1.NewJob{{Spec: &logv1.Spec{Name: "e", Bulk: make([]byte, 32)}}}}}},
		estimateCmd(estimated([]cluster.Estimate{{GPUType: "A100", GPUMemMiB: 900, HostConfidenceMilli: 400}, {GPUType: "T4", GPUMemMiB: 800, Source: "history"}}, 2, 9)),
		partitionCmd(&cluster.Partition{Name: "b", Nodes: hosts(t, "n1"), Host: cluster.HostTerms{MemPerGPUMiB: 16_000, CPUPerGPUMilli: 4000, LeastMemMiB: 1024, LeastCPUMilli: 500}, Resize: cluster.ResizeEager, MaxGPUs: 8, Preempt: cluster.PreemptOff}, 0), submitCmd(9, "request-9", 1000, &cluster.Spec{Name: "f", NoResize: true}), resizeCmd(1, share1("n1-g0", 100, 200)),
		submitCmd(10, "request-10", 1000, &cluster.Spec{Name: "g", GPUs: 1, GPURange: cluster.GPURange{Min: 1, Max: 4}}),
		submitCmd(11, "request-11", 1000, &cluster.Spec{Name: "h", GPUs: 1, GPURange: cluster.GPURange{Min: 1, Max: 4}, BatchScaling: cluster.BatchSqrt, Retry: cluster.Retry{Times: 3, On: "75,NODE_FAIL"}}),
		&logv1.Command{Kind: &logv1.Command_SubmitJob{SubmitJob: &logv1.SubmitJob{FirstJob: 12, RequestId: "request-12", BodyHash: make([]byte, 32), Owner: &logv1.Owner{Uid: 1000}, Jobs: []*logv1.NewJob{{Spec: &logv1.Spec{
			Name: "i", Array: &logv1.Array{Runs: []uint32{0, 2, 1}}, Study: &logv1.Study{Metric: "loss", Maximize: true, Rule: "median", First: 10, Eta: 3, Grid: true, Seed: 5, BudgetUs: 60e6, Space: []*logv1.Axis{{Name: "n", Kind: "int", Low: 1, High: 3}, {Name: "w", Kind: "values", Values: []string{"1"}}}},
		}}}}}},
		says(1, 1, 12, 0.5), &logv1.Command{Kind: &logv1.Command_CancelJob{CancelJob: &logv1.CancelJob{Job: 12, Admin: true, Why: "worse than others"}}},
		submitCmd(15, "request-15", 1000, &cluster.Spec{Name: "j", GPUs: 1, Exclusive: true, Power: cluster.GPUPower{Cap: "250W", Freq: "1200"}}),
		partitionCmd(&cluster.Partition{Name: "c", Nodes: hosts(t, "n1"), Power: cluster.GPUPower{Cap: "70%", Freq: "highm1"}}, 0),
		registerCmd(node("n3", "boot3", 1)),
		planCmd(dispatch.Plan{Starts: []dispatch.Start{{Job: 15, Attempt: 1, Berth: cluster.Berth{Node: "n3", GPUs: []cluster.GPUShare{whole("n3-g0")}, CPUMilli: 1000, MemMiB: 512}}}}),
		reportCmd(&logv1.ReportAttempt{Node: "n3", Job: 15, Attempt: 1, Token: 1, State: uint32(cluster.JobRunning), Power: []*logv1.CardPower{{Gpu: "n3-g0", CapW: 250, ClockMhz: 1200, Why: "w"}}}),
		registerCmd(node("n4", "boot4", 1)), powerCmd("n4", cluster.PoweringDown, false, nil),
		powerCmd("n4", cluster.PowerUp, false, func(c *logv1.PowerNode) { c.Why, c.NotBeforeUs = "exit status 1", int64(t0.Add(time.Hour)) }),
		powerCmd("n4", cluster.PoweringDown, true, func(c *logv1.PowerNode) { c.Why = "moves" }), silentCmd("n4", "boot4"),
		powerCmd("n4", cluster.PoweringUp, true, nil), powerCmd("n4", cluster.PowerFailed, false, func(c *logv1.PowerNode) { c.Why = "did not come back" }),
		&logv1.Command{Kind: &logv1.Command_SubmitJob{SubmitJob: &logv1.SubmitJob{FirstJob: 16, RequestId: "request-16", BodyHash: make([]byte, 32), Owner: &logv1.Owner{Uid: 1000}, Jobs: []*logv1.NewJob{{Spec: &logv1.Spec{
			Name: "k", Gpus: 1, Array: &logv1.Array{Runs: []uint32{0, 1, 1}, Throttle: 1}, Service: &logv1.Service{Name: "web", Replicas: 1, Least: 1, Most: 2, Port: "http", Health: "/h", EveryUs: 2e6, Fails: 3, StartWithinUs: 60e6, DrainUs: 1e6, ScaleOn: "gpu", ScaleTarget: 0.5},
		}}}}}},
		registerCmd(node("n5", "boot5", 1)),
		planCmd(dispatch.Plan{Starts: []dispatch.Start{{Job: 16, Attempt: 1, Port: 20_002, Berth: cluster.Berth{Node: "n5", GPUs: []cluster.GPUShare{share1("n5-g0", 8000, 300)}, CPUMilli: 1000, MemMiB: 512}}}}),
		reportCmd(&logv1.ReportAttempt{Node: "n5", Job: 16, Attempt: 1, Token: 68, State: uint32(cluster.JobRunning)}), stands(16, 1, service.Unhealthy, "GET /h: 503"),
		&logv1.Command{Kind: &logv1.Command_RequeueJob{RequeueJob: &logv1.RequeueJob{Job: 16, Admin: true, Why: "unhealthy"}}},
		&logv1.Command{Kind: &logv1.Command_ChangeTasks{ChangeTasks: &logv1.ChangeTasks{Array: 16, Runs: []uint32{1, 1, 1}, Change: logv1.TaskChange_TASK_CHANGE_CANCEL, Admin: true, Why: "replaced"}}},
		submitCmd(18, "request-18", 1000, &cluster.Spec{Name: "l", GPUs: 1, Nodes: 1, NodeRange: cluster.NodeRange{Min: 1, Max: 3}}),
		submitCmd(19, "request-19", 1000, &cluster.Spec{Name: "l", GPUs: 1, Partition: "c"}),
		partitionCmd(&cluster.Partition{Name: "d", Nodes: hosts(t, "n6"), Lend: cluster.Lending{To: []string{"c"}, Short: time.Minute}}, 0), registerCmd(node("n6", "boot6", 1)),
		planCmd(dispatch.Plan{Starts: []dispatch.Start{{Job: 19, Attempt: 1, Loan: "d", Berth: cluster.Berth{Node: "n6", GPUs: []cluster.GPUShare{share1("n6-g0", 8000, 300)}, CPUMilli: 1000, MemMiB: 512}}}}),
		reportCmd(&logv1.ReportAttempt{Node: "n3", Job: 15, Attempt: 1, Token: 1, State: uint32(cluster.JobRunning), Search: &logv1.CapSearch{DefaultW: 400, CapW: 340, StepsBefore: 10, JoulesBefore: 40, StepsAfter: 9.6, JoulesAfter: 35.5}}),
		submitCmd(20, "request-20", 1000, &cluster.Spec{Name: "m", Begin: t0.Add(time.Hour), Defer: 12 * time.Hour}),
		registerCmd(node("n7", "boot7", 1)), registerCmd(node("n8", "boot8", 1)), submitCmd(21, "request-21", 1000, spanning(1, 3)),
		planCmd(dispatch.Plan{Starts: []dispatch.Start{{Job: 21, Attempt: 1, Port: 20_003, Berth: cluster.Berth{Node: "n7", GPUs: []cluster.GPUShare{whole("n7-g0")}, CPUMilli: 1000, MemMiB: 512}}}}),
		reportCmd(&logv1.ReportAttempt{Node: "n7", Job: 21, Attempt: 1, Token: 83, State: uint32(cluster.JobStarting), Ready: true}),
		reportCmd(&logv1.ReportAttempt{Node: "n7", Job: 21, Attempt: 1, Token: 83, State: uint32(cluster.JobRunning)}),
		conv.Grow(cluster.AttemptID{Job: 21, No: 1}, []cluster.Berth{{Node: "n8", GPUs: []cluster.GPUShare{whole("n8-g0")}, CPUMilli: 1000, MemMiB: 512}}, "idle"),
		reportCmd(&logv1.ReportAttempt{Node: "n8", Job: 21, Attempt: 1, Token: 86, State: uint32(cluster.JobRunning)}),
		conv.Shrink(cluster.AttemptID{Job: 21, No: 1}, []cluster.NodeID{"n8"}, 20, "job 20 waits"),
		reportCmd(&logv1.ReportAttempt{Node: "n8", Job: 21, Attempt: 1, Token: 86, State: uint32(cluster.JobPreempted)}),
		loadsCmd(&logv1.ServiceLoad{Array: 16, Slot: 6_000_000, Load: 12.3, Each: 7.5}, &logv1.ServiceLoad{Array: 16, Slot: 6_000_002, Load: 1}, &logv1.ServiceLoad{Array: 99, Slot: 1, Load: 1}),
		&logv1.Command{Kind: &logv1.Command_RequeueJob{RequeueJob: &logv1.RequeueJob{Job: 13, Admin: true, Why: "worse", Copy: &logv1.TrialCopy{From: 1, Generation: 2, FromGeneration: 1, Values: []string{"1", "2"}}}}},
	)
	for name, got := range map[string][]byte{"entry.v15.hex": entry, "snapshot.v15.hex": snapshotOf(t, everything(t).f)} {
		path := filepath.Join("testdata", name)
		text := hex.Dump(got)
		if *update {
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(want), text); d != "" {
			t.Errorf("%s: %s", path, d)
		}
	}
	if _, err := DecodeEntry(entry); err != nil {
		t.Error(err)
	}
	rs := applyTo(t, New(Options{}), 1, testTerm, entry)
	if d := cmp.Diff([]cluster.JobID{1, 2}, rs[2].Jobs); d != "" || len(rs[3].Plan.Started) != 1 || rs[3].Plan.Moved != 1 {
		t.Errorf("plan %+v, jobs %s", rs[3].Plan, d)
	}
}

// unhex reads what hex.Dump wrote.
func unhex(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	var out []byte
	for line := range strings.Lines(string(text)) {
		digits, _, _ := strings.Cut(line[10:], "|")
		data, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(digits), " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, data...)
	}
	return out
}

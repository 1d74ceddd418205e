package conv

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/cluster/draws"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

var _ = draws.Fixed()

func genSpec(t *rapid.T) *cluster.Spec {
	text := func(label string) string {
		return rapid.StringMatching(`[ -~]{0,20}`).Draw(t, label)
	}
	arg := rapid.Map(rapid.SliceOfN(rapid.ByteRange(1, 255), 1, 12), func(b []byte) string { return string(b) })
	s := &cluster.Spec{
		Name:    rapid.StringMatching(`[a-z][a-z0-9é._-]{0,20}`).Draw(t, "name"),
		Command: rapid.SliceOfN(arg, 1, 6).Draw(t, "command"),
		Env:     rapid.SliceOfN(rapid.Map(arg, func(v string) string { return "K=" + v }), 0, 4).Draw(t, "env"),
		Dir:     "/" + rapid.StringMatching(`[a-c]{1,5}/[d-f]{1,5}`).Draw(t, "dir"),
		Image:   text("image"), GPUs: rapid.IntRange(1, cluster.MaxGPUsPerJob).Draw(t, "gpus"),
		Exclusive: rapid.Bool().Draw(t, "exclusive"), GPUType: text("type"),
		GPUMemMiB:     rapid.Int64Range(0, cluster.MaxMemMiB).Draw(t, "mem"),
		GPUMilli:      rapid.Int64Range(0, cluster.WholeGPU).Draw(t, "milli"),
		Duration:      time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "expected")),
		MemMiB:        rapid.Int64Range(0, cluster.MaxMemMiB).Draw(t, "hostmem"),
		CPUMilli:      rapid.Int64Range(0, 64000).Draw(t, "cpu"),
		TimeLimit:     time.Second + time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "limit")),
		Stdin:         text("stdin"),
		Stdout:        text("stdout"),
		Stderr:        text("stderr"),
		RequeueOnLoss: rapid.Bool().Draw(t, "requeue"),
		Comment:       text("comment"),
	}
	switch rapid.IntRange(0, 2).Draw(t, "deadline") {
	case 0:
		s.Hold, s.Begin = rapid.Bool().Draw(t, "hold"), cluster.Time(rapid.Int64Range(0, 1<<52).Draw(t, "begin"))
		s.Depends = rapid.SliceOfN(rapid.SampledFrom([]cluster.Dependency{{Kind: cluster.Singleton}, {Kind: cluster.AfterOK, Job: 3}}), 1, 3).Draw(t, "depends")
		s.DependAny, s.KillInvalidDepend = rapid.Bool().Draw(t, "any"), rapid.Bool().Draw(t, "kill")
	case 1:
		s.Deadline = cluster.Time(rapid.Int64Range(1, 1<<52).Draw(t, "due"))
	case 2:
		s.DeadlineIn = time.Second + time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "due in"))
	}
	s.Objective = rapid.SampledFrom(append(cluster.Objectives(), "")).Draw(t, "objective")
	s.MaxPowerW, s.MaxCostMilli = rapid.Int64Range(0, 9000).Draw(t, "power"), rapid.Int64Range(0, 9000).Draw(t, "cost")
	s.OrCPU = s.GPUs > 0 && rapid.Bool().Draw(t, "or cpu")
	if rapid.Bool().Draw(t, "hasNode") {
		s.Node = "n1"
	}
	genContainer(t, s)
	s.Mail = cluster.Mail{Events: cluster.MailEvents(rapid.Uint16Range(0, 1<<11-1).Draw(t, "mail")), To: rapid.SampledFrom([]string{"", "ann", "a.b@example.org,c"}).Draw(t, "to")}
	s.NoResize = rapid.Bool().Draw(t, "no resize")
	s.IdleOK = time.Duration(rapid.Int64Range(0, 3600).Draw(t, "idle")) * time.Second
	if f := rapid.SliceOfN(rapid.Byte(), 0, 30).Draw(t, "features"); len(f) > 0 {
		s.Features = f
	}
	if b := rapid.SliceOfN(rapid.Byte(), 0, 30).Draw(t, "script"); len(b) > 0 {
		s.Script = b
	}
	if len(s.Env) == 0 {
		s.Env = nil
	}
	if s.Deadline == 0 && s.DeadlineIn == 0 && rapid.Bool().Draw(t, "has array") {
		s.Array = new(genArray(t))
	}
	if s.NodeRange = (cluster.NodeRange{Min: max(1, s.Nodes), Max: s.Nodes + 3}); s.Check() != nil || rapid.Bool().Draw(t, "of as many nodes") {
		s.NodeRange = cluster.NodeRange{}
	} else {
		s.Checkpoint, s.InPlace = cluster.Checkpoint{Signal: "TERM", Grace: time.Minute}, true
		s.InPlace = s.Check() == nil
	}
	if s.GPURange = (cluster.GPURange{Min: max(1, s.GPUs), Max: s.GPUs + 3}); s.Check() != nil || rapid.Bool().Draw(t, "of fixed size") {
		s.GPURange = cluster.GPURange{}
	} else {
		s.BatchScaling = rapid.SampledFrom([]cluster.BatchScaling{"", cluster.BatchLinear, cluster.BatchSqrt}).Draw(t, "batch")
	}
	if s.Exclusive && rapid.Bool().Draw(t, "capped") {
		s.Power = cluster.GPUPower{Cap: rapid.SampledFrom([]cluster.PowerCap{"", "250W", "70%"}).Draw(t, "cap"), Freq: rapid.SampledFrom([]cluster.GPUFreq{"", "1200", "high"}).Draw(t, "freq")}
	}
	if rapid.Bool().Draw(t, "tried again") {
		s.Retry = cluster.Retry{Times: rapid.IntRange(1, cluster.MaxRetries).Draw(t, "times"), On: rapid.SampledFrom([]string{"", "75,NODE_FAIL"}).Draw(t, "after")}
	}
	return s
}

func genContainer(t *rapid.T, s *cluster.Spec) {
	s.Truncate = rapid.Bool().Draw(t, "truncate")
	s.Container.Network = rapid.SampledFrom(append(cluster.Networks(), "")).Draw(t, "net")
	if rapid.Bool().Draw(t, "warned") && s.TimeLimit > 2*time.Second {
		s.Warning = cluster.Warning{
			Signal: rapid.SampledFrom(cluster.WarningSignals()).Draw(t, "signal"), First: rapid.Bool().Draw(t, "first"),
			Before: min(cluster.MaxWarning, (s.TimeLimit - time.Second).Truncate(time.Second)),
		}
	}
	if s.Image == "" {
		return
	}
	s.Container.ReadOnly = rapid.Bool().Draw(t, "read-only")
	s.Container.TmpMiB = rapid.Int64Range(0, max(s.MemMiB, 1)).Draw(t, "tmp")
	s.Container.Mounts = rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) cluster.Mount {
		return cluster.Mount{Source: "/data", Target: "/" + rapid.StringMatching(`[a-c]{5}`).Draw(t, "target"), ReadOnly: rapid.Bool().Draw(t, "ro")}
	}), -1, 3, func(m cluster.Mount) string { return m.Target }).Draw(t, "mounts")
	if len(s.Container.Mounts) == 0 {
		s.Container.Mounts = nil
	}
}

func TestSpecRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := genSpec(t)
		raw, err := proto.Marshal(apiconv.SpecToAPI(want))
		if err != nil {
			t.Fatal(err)
		}
		var m apiv1.JobSpec
		if err := proto.Unmarshal(raw, &m); err != nil {
			t.Fatal(err)
		}
		got, err := apiconv.SpecFromAPI(&m)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("spec changed on the wire (-want +got):\n%s", d)
		}
	})
}

func TestSpecFromAPIRefuses(t *testing.T) {
	t.Parallel()
	ok := func() *apiv1.JobSpec {
		return &apiv1.JobSpec{Name: "a", Command: [][]byte{[]byte("true")}}
	}
	if _, err := apiconv.SpecFromAPI(ok()); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		m    func() *apiv1.JobSpec
		want string
	}{
		"nil":         {func() *apiv1.JobSpec { return nil }, "job: is missing"},
		"no command":  {func() *apiv1.JobSpec { m := ok(); m.Command = nil; return m }, "command: is missing"},
		"gpus 2^32-1": {func() *apiv1.JobSpec { m := ok(); m.Gpus = 1<<32 - 1; return m }, "gpus: 4294967295 is outside 0 to 16"},
		"bad duration": {func() *apiv1.JobSpec {
			m := ok()
			m.TimeLimit = &durationpb.Duration{Seconds: 1, Nanos: -1}
			return m
		}, "time: is not a valid duration"},
		"huge duration": {func() *apiv1.JobSpec {
			m := ok()
			m.Expected = &durationpb.Duration{Seconds: 315576000000}
			return m
		}, "expect: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := apiconv.SpecFromAPI(tc.m())
			var e *cluster.Error
			if !errors.As(err, &e) || e.Code != cluster.CodeInvalid || !strings.Contains(e.Msg, tc.want) {
				t.Fatalf("got %v, want an invalid-error with %q", err, tc.want)
			}
		})
	}
}

func TestStatusRoundTrip(t *testing.T) {
	t.Parallel()
	for code := cluster.CodeInternal; code <= cluster.CodeOutOfRange; code++ {
		t.Run(code.String(), func(t *testing.T) {
			t.Parallel()
			in := &cluster.Error{Code: code, Msg: "what was wrong", Err: errors.New("secret cause")}
			// Over the wire only the proto of the status goes.
			err := status.FromProto(apiconv.Status(in).Proto()).Err()
			got := apiconv.FromStatus(err)
			want := &cluster.Error{Code: code, Msg: "what was wrong"}
			if code == cluster.CodeInternal {
				want.Msg = "internal error; see the coordinator's log"
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Fatalf("(-want +got):\n%s", d)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Fatalf("the cause left the process: %v", err)
			}
			if status.Code(err) == codes.OK {
				t.Fatal("an error became OK")
			}
		})
	}
	if apiconv.FromStatus(nil) != nil {
		t.Fatal("FromStatus(nil) is not nil")
	}
}

func TestFromStatusOfForeignErrors(t *testing.T) {
	t.Parallel()
	for c, want := range map[codes.Code]cluster.Code{
		codes.Unavailable: cluster.CodeUnknown, codes.DeadlineExceeded: cluster.CodeUnknown,
		codes.Canceled: cluster.CodeUnknown, codes.Unimplemented: cluster.CodeConflict,
		codes.PermissionDenied: cluster.CodeDenied, codes.DataLoss: cluster.CodeInternal,
	} {
		if got := apiconv.FromStatus(status.Error(c, "x")).Code; got != want {
			t.Errorf("%v: got %v, want %v", c, got, want)
		}
	}
	if got := apiconv.FromStatus(errors.New("broken")).Code; got != cluster.CodeUnknown {
		t.Errorf("plain error: got %v, want unknown", got)
	}
}

func testJob() *cluster.Job {
	est := cluster.Estimate{GPUType: "A100", GPUMemMiB: 10, GPUMemP95MiB: 12, Milli: 300, Duration: 90 * time.Second, ConfidenceMilli: 910, Source: "history"}
	other := est
	other.GPUType, other.GPUMemMiB = "H100", 20
	return &cluster.Job{
		ID: 7, Revision: 3, Owner: cluster.Owner{UID: 1000, Name: "ann"}, State: cluster.JobRunning,
		Spec:      &cluster.Spec{Name: "train", Command: []string{"python", "--token=x"}, Env: []string{"A=b"}, GPUs: 1},
		Estimates: []cluster.Estimate{est, other}, Submitted: 5_000_000,
		Attempts: []cluster.Attempt{{
			No: 1, State: cluster.JobRunning, Estimate: other, Neighbours: []cluster.JobID{6},
			Berth: cluster.Berth{Node: "n1", GPUs: []cluster.GPUShare{{GPU: "GPU-a", Share: cluster.Share{MemMiB: 20, Milli: 300}}}},
		}},
	}
}

func lookup(n cluster.NodeID, g cluster.GPUID) (string, int) {
	if g == "GPU-a" {
		return "H100", 2
	}
	return "", 0
}

func TestJobToAPI(t *testing.T) {
	t.Parallel()
	j := testJob()
	m := apiconv.JobToAPI(j, apiconv.JobDetail{GPU: lookup})
	if g := m.GetGpus(); len(g) != 1 || g[0].GetType() != "H100" || g[0].GetIndex() != 2 || g[0].GetShare().GetMemMib() != 20 {
		t.Errorf("gpus: %v", g)
	}
	if m.GetPredicted().GetGpuMemMib() != 20 || m.GetPredicted().GetConfidence() != 0.91 {
		t.Errorf("a running job's prediction is its attempt's: %v", m.GetPredicted())
	}
	if m.ExitCode != nil || m.GetMeasured() != nil {
		t.Errorf("a running job has no exit code and no measurement: %v", m)
	}
	brief := apiconv.JobToAPI(j, apiconv.JobDetail{GPU: lookup, Brief: true})
	if brief.GetSpec() != nil || brief.GetAttempts() != nil || brief.GetPredicted() != nil {
		t.Errorf("brief form holds too much: %v", brief)
	}
	if brief.GetName() != "train" || brief.GetGpusWanted() != 1 || len(brief.GetGpus()) != 1 {
		t.Errorf("brief form lacks what a listing shows: %v", brief)
	}
	j.Spec.Image = "registry.example/secret"
	j.Reason.Detail, j.Last().Reason.Detail = "secret output", "secret output"
	red := apiconv.JobToAPI(j, apiconv.JobDetail{Redact: true})
	if s := red.GetSpec(); s.GetCommand() != nil || s.GetEnv() != nil || s.GetImage() != "" || s.GetContainer() != nil {
		t.Errorf("redacted form tells command, environment, image or mounts: %v", s)
	}
	briefly := apiconv.JobToAPI(j, apiconv.JobDetail{Redact: true, Brief: true})
	if red.GetReasonDetail() != "" || red.GetAttempts()[0].GetReasonDetail() != "" || briefly.GetReasonDetail() != "" {
		t.Errorf("redacted form tells details of reasons: %v", red)
	}
	if j.Reason.Detail == "" || j.Last().Reason.Detail == "" {
		t.Error("redacting took the reasons from the job itself")
	}
	if len(j.Spec.Command) != 2 || len(j.Spec.Env) != 1 {
		t.Error("redacting changed the job itself")
	}
}

// TestRequeuedByItsOwner: the owner is named where the log has its number, also in what the
// job repeats of its attempt; what is not about the owner stays as it is.
func TestRequeuedByItsOwner(t *testing.T) {
	t.Parallel()
	for of, want := range map[cluster.Reason]string{
		{Code: cluster.ReasonRequeued, Detail: "by uid 1000"}:           "by ann",
		{Code: cluster.ReasonRequeued, Detail: "Requeued: by uid 1000"}: "Requeued: by ann",
		{Code: cluster.ReasonRequeued, Detail: "by uid 10001"}:          "by uid 10001",
		{Code: cluster.ReasonRequeued, Detail: "by an administrator"}:   "by an administrator",
		{Code: cluster.ReasonByUser, Detail: "by uid 1000"}:             "by uid 1000",
	} {
		j := testJob()
		j.Reason, j.Last().Reason = of, of
		j.Last().Gang = &cluster.Gang{Parts: []cluster.Part{{Reason: of}}}
		m := apiconv.JobToAPI(j, apiconv.JobDetail{})
		a := m.GetAttempts()[0]
		if m.GetReasonDetail() != want || a.GetReasonDetail() != want || a.GetParts()[0].GetReasonDetail() != want || apiconv.JobToAPI(j, apiconv.JobDetail{Brief: true}).GetReasonDetail() != want {
			t.Errorf("%v: the job says %q, its attempt %q, its part %q, want %q", of, m.GetReasonDetail(), a.GetReasonDetail(), a.GetParts()[0].GetReasonDetail(), want)
		}
	}
	j := testJob()
	j.Owner.Name, j.Reason = "", cluster.Reason{Code: cluster.ReasonRequeued, Detail: "by uid 1000"}
	if got := apiconv.JobToAPI(j, apiconv.JobDetail{}).GetReasonDetail(); got != "by uid 1000" {
		t.Errorf("of an owner without a name: %q", got)
	}
}

func TestWaitingJobPrediction(t *testing.T) {
	t.Parallel()
	j := testJob()
	j.State, j.Attempts, j.Queue = cluster.JobQueued, nil, "GPU-a"
	if got := apiconv.JobToAPI(j, apiconv.JobDetail{GPU: lookup}).GetPredicted().GetGpuType(); got != "H100" {
		t.Errorf("queued on an H100: prediction for %q", got)
	}
	j.Queue = ""
	if got := apiconv.JobToAPI(j, apiconv.JobDetail{}).GetPredicted().GetGpuType(); got != "A100" {
		t.Errorf("no queue: prediction for %q, want the first", got)
	}
	j.Spec.GPUType = "H100"
	if got := apiconv.JobToAPI(j, apiconv.JobDetail{}).GetPredicted().GetGpuType(); got != "H100" {
		t.Errorf("type asked for: prediction for %q", got)
	}
	r := cluster.Reason{Code: cluster.ReasonGPUMem, Detail: "needs 13"}
	if got := apiconv.JobToAPI(j, apiconv.JobDetail{Reason: r}).GetReasonDetail(); got != "needs 13" {
		t.Errorf("reason detail %q", got)
	}
}

func TestNodeToAPI(t *testing.T) {
	t.Parallel()
	n := &cluster.Node{ID: "n1", State: cluster.NodeReady, CPUMilli: 8000, MemMiB: 100,
		GPUs: []cluster.GPU{{ID: "GPU-a", Index: 2, Type: "H100", MemMiB: 80, SellableMiB: 70, MaxShares: 3, CapMode: "sim"}}}
	led := dispatch.NewLedger([]*cluster.Node{n})
	led.Take(&cluster.Berth{Node: "n1", CPUMilli: 1000, MemMiB: 10, GPUs: []cluster.GPUShare{{GPU: "GPU-a", Share: cluster.Share{MemMiB: 20, Milli: 300}}}})
	m := NodeToAPI(n, led)
	g := m.GetGpus()[0]
	if m.GetCpuUsedMilli() != 1000 || m.GetMemUsedMib() != 10 || g.GetLedgerUsedMib() != 20 || g.GetLedgerUsedMilli() != 300 || g.GetShares() != 1 {
		t.Errorf("ledger's figures: %v", m)
	}
	if g.GetMeasuredUsedMib() != -1 || g.GetGossipFreeMib() != -1 {
		t.Errorf("what nobody measured must be -1: %v", g)
	}
	if NodeToAPI(n, nil).GetGpus()[0].GetLedgerUsedMib() != 0 {
		t.Error("without a ledger nothing is taken")
	}
}

// FuzzSpecFromAPI holds for any message of a client: it is refused as invalid,
// or gives a spec that passes its own check and means the same again.
func FuzzSpecFromAPI(f *testing.F) {
	for _, m := range []*apiv1.JobSpec{
		{}, {Name: "a", Command: [][]byte{[]byte("true")}},
		{Name: "a", Command: [][]byte{{0xff}}, Gpus: 17, TimeLimit: &durationpb.Duration{Seconds: -1}, Env: [][]byte{[]byte("=")}},
	} {
		raw, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var m apiv1.JobSpec
		if proto.Unmarshal(raw, &m) != nil {
			return
		}
		s, err := apiconv.SpecFromAPI(&m)
		if err != nil {
			var e *cluster.Error
			if !errors.As(err, &e) || e.Code != cluster.CodeInvalid || e.Msg == "" {
				t.Fatalf("refused with %v", err)
			}
			return
		}
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		again, err := apiconv.SpecFromAPI(apiconv.SpecToAPI(s))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(s, again); d != "" {
			t.Fatal(d)
		}
	})
}

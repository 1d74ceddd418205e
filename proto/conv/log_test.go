package conv

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

// filler sets every field of a value, whatever fields it has, so that one
// that a conversion forgets is found. With sparse set it leaves some alone.
type filler struct {
	t      *rapid.T
	sparse bool
}

func (f filler) fill(v reflect.Value) {
	if v.Type() == reflect.TypeFor[cluster.Array]() {
		v.Set(reflect.ValueOf(genArray(f.t)))
		return
	}
	if f.sparse && rapid.Bool().Draw(f.t, "leave") {
		return
	}
	if v.Type() == reflect.TypeFor[time.Duration]() {
		v.SetInt(rapid.Int64Range(1, 1<<40).Draw(f.t, "span") * int64(time.Microsecond))
		return
	}
	if v.Type() == reflect.TypeFor[*cluster.Where]() {
		v.Set(reflect.ValueOf(genWhere(f.t, !f.sparse)))
		return
	}
	if v.Type() == reflect.TypeFor[cluster.Bulk]() {
		return // the store's, see TestLargePartsAreReadWhereTheyLie
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			f.fill(v.Field(i))
		}
		wholeMilliseconds(v)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem())
	case reflect.Slice:
		n := rapid.IntRange(1, 3).Draw(f.t, "len")
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			f.fill(v.Index(i))
		}
	case reflect.String:
		v.SetString(rapid.StringMatching(`[a-zA-Zäé0-9=/%]{1,12}`).Draw(f.t, "text"))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		v.SetFloat(rapid.Float64Range(1e-9, 1e9).Draw(f.t, "float"))
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(rapid.Int64Range(1, apiconv.MaxStored).Draw(f.t, "int"))
	case reflect.Uint8:
		v.SetUint(1 + uint64(rapid.IntRange(0, 1).Draw(f.t, "state")))
	case reflect.Uint16:
		v.SetUint(uint64(rapid.Uint16Min(1).Draw(f.t, "uint")))
	case reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(rapid.Uint32Min(1).Draw(f.t, "uint")))
	default:
		panic("no value for " + v.Type().String())
	}
}

// wholeMilliseconds makes the times of profiles such as are stored.
func wholeMilliseconds(v reflect.Value) {
	switch p := v.Addr().Interface().(type) {
	case *cluster.Profile:
		p.Sampled, p.Gap = p.Sampled*1000, p.Gap*1000
	case *cluster.NeighbourSpan:
		p.From, p.For = p.From*1000, p.For*1000
	}
}

func fill[T any](t *rapid.T, sparse bool) *T {
	v := new(T)
	filler{t, false}.fill(reflect.ValueOf(v).Elem())
	if sparse {
		*v = *new(T)
		e := reflect.ValueOf(v).Elem()
		for i := range e.NumField() {
			filler{t, true}.fill(e.Field(i))
		}
	}
	return v
}

// missing names the fields of m, or of messages in it, that are not set.
func missing(m protoreflect.Message, path string) []string {
	var out []string
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		at := path + "." + string(fd.Name())
		if !m.Has(fd) {
			if fd.FullName() != "berth.log.v1.Spec.bulk" { // the name of what is stored here, see TestNamedParts
				out = append(out, at)
			}
			continue
		}
		switch {
		case fd.Message() == nil:
		case fd.IsList():
			for k := range m.Get(fd).List().Len() {
				out = append(out, missing(m.Get(fd).List().Get(k).Message(), fmt.Sprintf("%s[%d]", at, k))...)
			}
		default:
			out = append(out, missing(m.Get(fd).Message(), at)...)
		}
	}
	return out
}

// overWire sends m through its wire form.
func overWire[M proto.Message](t *rapid.T, m, into M) M {
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatalf("marshal: %v", err)
	}
	if err := proto.Unmarshal(data, into); err != nil {
		t.Fatalf("unmarshal: %v", err)
	}
	return into
}

// roundTrip checks that a full value sets every stored field and comes back
// the same, and that one with fields left out does too.
func roundTrip[T any, M proto.Message](t *testing.T, fix func(*rapid.T, *T), to func(*T) M, from func(M) (T, error), empty func() M) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) {
		sparse := rapid.Bool().Draw(t, "sparse")
		want := fill[T](t, sparse)
		fix(t, want)
		m := to(want)
		if miss := missing(m.ProtoReflect(), ""); !sparse && len(miss) > 0 {
			t.Fatalf("not stored: %s", strings.Join(miss, ", "))
		}
		got, err := from(overWire(t, m, empty()))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(*want, got); d != "" {
			t.Fatalf("came back other than it went (-want +got):\n%s", d)
		}
	})
}

func asIs[T any](*rapid.T, *T) {}

func sure[M, T any](f func(M) T) func(M) (T, error) {
	return func(m M) (T, error) { return f(m), nil }
}

func deref[M, T any](f func(M) (*T, error)) func(M) (T, error) {
	return func(m M) (T, error) {
		v, err := f(m)
		if err != nil {
			return *new(T), err
		}
		return *v, nil
	}
}

func byValue[T, M any](f func(T) M) func(*T) M { return func(v *T) M { return f(*v) } }

func TestOwnerRoundTrip(t *testing.T) {
	t.Parallel()
	roundTrip(t, asIs, byValue(OwnerToLog), sure(OwnerFromLog), func() *logv1.Owner { return new(logv1.Owner) })
}

func TestStoredSpecRoundTrip(t *testing.T) {
	t.Parallel()
	latin1 := func(t *rapid.T, s *cluster.Spec) { // paths and arguments are bytes
		s.DeadlineIn, s.AllMem = 0, false // in requests only
		if rapid.Bool().Draw(t, "latin1") {
			s.Command, s.Env = append(s.Command, "\xe9"), append(s.Env, "A=\xe9")
			s.Dir, s.Stdin, s.Stdout, s.Stderr = "/\xe9", "/\xe9", "\xe9", "\xe9"
		}
	}
	roundTrip(t, latin1, SpecToLog, deref(specFromLog), func() *logv1.Spec { return new(logv1.Spec) })
}

func TestEstimateRoundTrip(t *testing.T) {
	t.Parallel()
	roundTrip(t, asIs, byValue(EstimateToLog), sure(EstimateFromLog), func() *logv1.Estimate { return new(logv1.Estimate) })
}

func TestBerthRoundTrip(t *testing.T) {
	t.Parallel()
	roundTrip(t, asIs, BerthToLog, sure(BerthFromLog), func() *logv1.Berth { return new(logv1.Berth) })
}

func TestUsageRoundTrip(t *testing.T) {
	t.Parallel()
	roundTrip(t, asIs, byValue(UsageToLog), sure(UsageFromLog), func() *logv1.Usage { return new(logv1.Usage) })
}

func TestPlanRoundTrip(t *testing.T) {
	t.Parallel()
	// Why jobs are left out is not stored, nor whom a policy would preempt, nor what accounts traded.
	placed := func(_ *rapid.T, p *dispatch.Plan) { p.Unplaced, p.Preempt, p.Trades = nil, nil, nil }
	roundTrip(t, placed, PlanToLog, sure(PlanFromLog), func() *logv1.ApplyPlan { return new(logv1.ApplyPlan) })
}

func validJob(t *rapid.T, j *cluster.Job) {
	if j.Spec == nil {
		j.Spec = &cluster.Spec{}
	}
	if j.Estimates == nil {
		j.Estimates = []cluster.Estimate{}
	}
	if j.Spec != nil {
		j.Spec.DeadlineIn, j.Spec.AllMem = 0, false // in requests only
		validWaits(t, j)
	}
	j.ID = cluster.JobID(rapid.Uint64Min(1).Draw(t, "id"))
	validTask(t, j)
	j.State = cluster.JobState(rapid.IntRange(int(cluster.JobPending), int(cluster.JobDeadline)).Draw(t, "state"))
	for i := range j.Attempts {
		a := &j.Attempts[i]
		a.No = uint32(i) + 1
		a.State = cluster.JobState(rapid.IntRange(int(cluster.JobStarting), int(cluster.JobDeadline)).Draw(t, "attempt"))
		if a.Gang != nil {
			validGang(t, a.Gang)
		}
	}
	if !j.InArray() {
		j.OwnLimit = nil
	}
	if j.OwnLimit != nil { // then it is what its spec says, too
		j.Spec.TimeLimit = *j.OwnLimit
	}
}

// validGang has one node at least beside the first, and a part for each.
func validGang(t *rapid.T, g *cluster.Gang) {
	if len(g.Rest) == 0 {
		g.Rest = []cluster.Berth{{Node: "n2"}}
	}
	for len(g.Parts) <= len(g.Rest) {
		g.Parts = append(g.Parts, *fill[cluster.Part](t, false))
	}
	g.Parts = g.Parts[:len(g.Rest)+1]
	for i := range g.Parts {
		g.Parts[i].State = cluster.JobState(rapid.IntRange(int(cluster.JobStarting), int(cluster.JobDeadline)).Draw(t, "part"))
	}
	g.First = rapid.IntRange(1, len(g.Parts)).Draw(t, "first")
}

// validWaits gives each dependency a state that there is.
func validWaits(t *rapid.T, j *cluster.Job) {
	j.Depends = nil
	for range j.Spec.Depends {
		j.Depends = append(j.Depends, cluster.DependState(rapid.IntRange(0, 2).Draw(t, "depends")))
	}
}

func TestJobRoundTrip(t *testing.T) {
	t.Parallel()
	// Spec and estimates of a task are stored with its array.
	to := func(j *cluster.Job) *logv1.Job {
		m := JobToLog(j)
		m.Spec, m.Estimates = SpecToLog(j.Spec), EstimatesToLog(j.Estimates)
		return m
	}
	from := func(m *logv1.Job) (*cluster.Job, error) {
		if m.ArrayJob == 0 {
			return JobFromLog(m)
		}
		spec, err := specFromLog(m.Spec)
		if err != nil {
			return nil, err
		}
		return TaskFromLog(m, spec, EstimatesFromLog(m.Estimates))
	}
	roundTrip(t, validJob, to, deref(from), func() *logv1.Job { return new(logv1.Job) })
}

func validNode(t *rapid.T, n *cluster.Node) {
	if n.ID == "" {
		n.ID = "n1"
	}
	n.State = rapid.SampledFrom([]cluster.NodeState{cluster.NodeReady, cluster.NodeUnreachable}).Draw(t, "state")
	n.Power.State %= cluster.PowerFailed + 1
	for i := range n.GPUs {
		n.GPUs[i].ID = cluster.GPUID(fmt.Sprintf("GPU-%d", i))
		n.GPUs[i].State %= cluster.GPULost + 1
		n.GPUs[i].Unshared = "" // it follows from the switches
	}
	for i := range n.Features {
		n.Features[i] = fmt.Sprintf("feature-%d", i)
	}
	for i := range n.Orders {
		n.Orders[i].GPU = cluster.GPUID(fmt.Sprintf("GPU-%d", i))
	}
}

func TestNodeRoundTrip(t *testing.T) {
	t.Parallel()
	roundTrip(t, validNode, NodeToLog, deref(NodeFromLog), func() *logv1.Node { return new(logv1.Node) })
}

func TestSpecFromLogRefuses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		m    *logv1.Spec
	}{
		{"none", nil},
		{"GPUs that an int may not hold", &logv1.Spec{Gpus: 1 << 31}},
		{"GPU memory", &logv1.Spec{GpuMemMib: -1}},
		{"compute", &logv1.Spec{GpuMilli: -1}},
		{"memory", &logv1.Spec{MemMib: -1}},
		{"cores", &logv1.Spec{CpuMilli: -1}},
		{"duration", &logv1.Spec{DurationUs: -1}},
		{"limit", &logv1.Spec{TimeLimitUs: -1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if s, err := specFromLog(tt.m); err == nil {
				t.Fatalf("read as %+v", s)
			}
		})
	}
}

func TestJobFromLogRefuses(t *testing.T) {
	t.Parallel()
	spec := &logv1.Spec{Name: "x"}
	attempt := func(no, state uint32) []*logv1.Attempt { return []*logv1.Attempt{{No: no, State: state}} }
	running := uint32(cluster.JobRunning)
	for _, tt := range []struct {
		name string
		m    *logv1.Job
	}{
		{"none", nil},
		{"no spec", &logv1.Job{Id: 1, State: 1}},
		{"no id", &logv1.Job{State: 1, Spec: spec}},
		{"no state", &logv1.Job{Id: 1, Spec: spec}},
		{"state of a newer berth", &logv1.Job{Id: 1, Spec: spec, State: uint32(cluster.JobDeadline) + 1}},
		{"state that a byte does not hold", &logv1.Job{Id: 1, Spec: spec, State: 257}},
		{"attempts do not begin at 1", &logv1.Job{Id: 1, Spec: spec, State: running, Attempts: attempt(2, running)}},
		{"attempt that waits", &logv1.Job{Id: 1, Spec: spec, State: running, Attempts: attempt(1, uint32(cluster.JobPending))}},
		{"attempt without state", &logv1.Job{Id: 1, Spec: spec, State: running, Attempts: attempt(1, 0)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if j, err := JobFromLog(tt.m); err == nil {
				t.Fatalf("read as %+v", j)
			}
		})
	}
}

func TestNodeFromLogRefuses(t *testing.T) {
	t.Parallel()
	with := func(gpus ...*logv1.GPU) *logv1.Node { return &logv1.Node{Id: "n1", State: 1, Gpus: gpus} }
	for _, tt := range []struct {
		name string
		m    *logv1.Node
	}{
		{"none", nil},
		{"no name", &logv1.Node{State: 1}},
		{"no state", &logv1.Node{Id: "n1"}},
		{"state of a newer berth", &logv1.Node{Id: "n1", State: 3}},
		{"state that a byte does not hold", &logv1.Node{Id: "n1", State: 257}},
		{"cores", &logv1.Node{Id: "n1", State: 1, CpuMilli: -1}},
		{"memory", &logv1.Node{Id: "n1", State: 1, MemMib: -1}},
		{"GPU without id", with(&logv1.GPU{})},
		{"GPUs out of order", with(&logv1.GPU{Id: "b"}, &logv1.GPU{Id: "a"})},
		{"GPU twice", with(&logv1.GPU{Id: "a"}, &logv1.GPU{Id: "a"})},
		{"GPU memory", with(&logv1.GPU{Id: "a", MemMib: -1})},
		{"sellable memory", with(&logv1.GPU{Id: "a", SellableMib: -1})},
		{"shares", with(&logv1.GPU{Id: "a", MaxShares: apiconv.MaxStored + 1})},
		{"index", with(&logv1.GPU{Id: "a", Index: apiconv.MaxStored + 1})},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if n, err := NodeFromLog(tt.m); err == nil {
				t.Fatalf("read as %+v", n)
			}
		})
	}
}

// What is absent in a stored message is the zero value, not a crash.
func TestFromNothing(t *testing.T) {
	t.Parallel()
	if o := OwnerFromLog(nil); o != (cluster.Owner{}) {
		t.Errorf("owner %+v", o)
	}
	if e := EstimateFromLog(nil); e != (cluster.Estimate{}) {
		t.Errorf("estimate %+v", e)
	}
	if u := UsageFromLog(nil); u != (cluster.Usage{}) {
		t.Errorf("usage %+v", u)
	}
	if r := ReasonFromLog(nil); r != (cluster.Reason{}) {
		t.Errorf("reason %+v", r)
	}
	if b := BerthFromLog(nil); b.Node != "" || b.GPUs != nil {
		t.Errorf("berth %+v", b)
	}
	if p := PlanFromLog(&logv1.ApplyPlan{Starts: []*logv1.Start{{}}}); len(p.Starts) != 1 || p.Starts[0].Berth.Node != "" {
		t.Errorf("plan %+v", p)
	}
}

func FuzzJobFromLog(f *testing.F) {
	full := JobToLog(&cluster.Job{
		ID: 7, State: cluster.JobRunning, Spec: &cluster.Spec{Name: "x", Command: []string{"y"}},
		Attempts: []cluster.Attempt{{No: 1, State: cluster.JobRunning, Exit: &cluster.Exit{Code: 1}}},
	})
	data, err := proto.Marshal(full)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		m := new(logv1.Job)
		if proto.Unmarshal(data, m) != nil {
			return
		}
		j, err := JobFromLog(m)
		if err != nil {
			return
		}
		again, err := JobFromLog(JobToLog(j))
		if err != nil {
			t.Fatalf("what was read cannot be read again: %v", err)
		}
		if d := cmp.Diff(j, again); d != "" {
			t.Fatal(d)
		}
	})
}

// TestLargePartsAreReadWhereTheyLie: for the log, the node and the owner a spec is
// the same whether its environment and script are in it or in a store.
func TestLargePartsAreReadWhereTheyLie(t *testing.T) {
	whole := &cluster.Job{Spec: &cluster.Spec{Name: "n", Partition: "p", Env: []string{"A=1", "SLURM_JOB_PARTITION=q"}, Script: []byte("x")}, Attempts: []cluster.Attempt{{}}}
	spec := *whole.Spec
	spec.Bulk = fakeBulk{env: spec.Env, script: spec.Script}
	spec.Env, spec.Script = nil, nil
	apart := &cluster.Job{Spec: &spec, Attempts: whole.Attempts}
	gpu := func(cluster.NodeID, cluster.GPUID) (string, int) { return "", 0 }
	for name, of := range map[string]func(*cluster.Job) proto.Message{
		"log":        func(j *cluster.Job) proto.Message { return SpecToLog(j.Spec) },
		"assignment": func(j *cluster.Job) proto.Message { return Assignment(j, j.Last(), 0) },
		"owner": func(j *cluster.Job) proto.Message {
			return apiconv.JobToAPI(j, apiconv.JobDetail{GPU: gpu, Whole: true})
		},
		"others": func(j *cluster.Job) proto.Message {
			return apiconv.JobToAPI(j, apiconv.JobDetail{GPU: gpu, Whole: true, Redact: true})
		},
	} {
		if diff := cmp.Diff(of(whole), of(apart), protocmp.Transform()); diff != "" {
			t.Errorf("%s (-in the spec +in a store):\n%s", name, diff)
		}
	}
	if m := apiconv.JobToAPI(apart, apiconv.JobDetail{GPU: gpu}); len(m.GetSpec().GetEnv()) > 0 {
		t.Error("a listing reads every environment")
	}
}

type fakeBulk struct {
	cluster.Bulk
	env    []string
	script []byte
}

func (b fakeBulk) Load() ([]string, []byte) { return b.env, b.script }

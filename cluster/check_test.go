package cluster

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/berth-scheduler/berth/cluster/service"
	"github.com/berth-scheduler/berth/cluster/study"
)

func goodSpec() *Spec {
	return &Spec{
		Name: "train", Command: []string{"python3", "train.py"}, Env: []string{"A=1", "B=", "C=x=y"}, Dir: "/home/ada", Image: "reg/img:1",
		GPUs: 2, GPUType: "A100", Node: "n1", GPUMemMiB: 8000, GPUMilli: 500, Duration: time.Hour, MemMiB: 1024, CPUMilli: 2000,
		TimeLimit: 2 * time.Hour, Stdin: "/dev/null", Stdout: "%j.out", Stderr: "%j.err", Features: []byte{1}, Comment: "ünï",
	}
}

func TestSpecCheck(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", MaxPathLen+1)
	for _, tt := range []struct {
		name  string
		spoil func(*Spec)
		want  string // in the error; "" when the spec is good
	}{
		{"good", func(*Spec) {}, ""},
		{"least", func(s *Spec) { *s = Spec{Name: "x", Command: []string{"x"}} }, ""},
		{"at the bounds", func(s *Spec) {
			s.GPUs, s.GPUMemMiB, s.GPUMilli, s.MemMiB, s.TimeLimit = MaxGPUsPerJob, MaxMemMiB, WholeGPU, MaxMemMiB, MaxTimeDays*24*time.Hour
		}, ""},
		{"no name", func(s *Spec) { s.Name = "" }, "name"},
		{"name with slash", func(s *Spec) { s.Name = "a/b" }, "name"},
		{"no command", func(s *Spec) { s.Command = nil }, "command: is missing"},
		{"empty program", func(s *Spec) { s.Command = []string{"", "x"} }, "command: is missing"},
		{"too many arguments", func(s *Spec) { s.Command = slices.Repeat([]string{"x"}, MaxArgs+1) }, "1025 arguments, at most 1024"},
		{"arguments too long", func(s *Spec) { s.Command = []string{"x", strings.Repeat("y", MaxArgBytes)} }, "bytes of arguments"},
		{"NUL in an argument", func(s *Spec) { s.Command = []string{"x", "a\x00b"} }, "argument 1 holds a NUL"},
		{"too many variables", func(s *Spec) { s.Env = slices.Repeat([]string{"A=1"}, MaxEnv+1) }, "257 variables"},
		{"variable without value", func(s *Spec) { s.Env = []string{"A"} }, "env[0]"},
		{"variable without name", func(s *Spec) { s.Env = []string{"A=1", "=1"} }, "env[1]"},
		{"NUL in a variable", func(s *Spec) { s.Env = []string{"A=\x00"} }, "NUL"},
		{"variable too long", func(s *Spec) { s.Env = []string{"A=" + strings.Repeat("x", MaxEnvLine)} }, "at most 4096"},
		{"our own variable", func(s *Spec) { s.Env = []string{"BERTH_JOB_ID=1"} }, "set by Berth itself"},
		{"relative dir", func(s *Spec) { s.Dir = "home" }, "dir"},
		{"dir with dots", func(s *Spec) { s.Dir = "/home/../etc" }, "dir"},
		{"dir with double slash", func(s *Spec) { s.Dir = "//home" }, "dir"},
		{"dir under proc", func(s *Spec) { s.Dir = "/proc/1" }, "under /proc"},
		{"dir is sys", func(s *Spec) { s.Dir = "/sys" }, "under /sys"},
		{"dir like proc", func(s *Spec) { s.Dir = "/process" }, ""},
		{"dir too long", func(s *Spec) { s.Dir = "/" + long }, "dir"},
		{"stdin too long", func(s *Spec) { s.Stdin = long }, "stdin"},
		{"line break in stdout", func(s *Spec) { s.Stdout = "a\nb" }, "stdout"},
		{"escape in stderr", func(s *Spec) { s.Stderr = "a\x1b[2J" }, "stderr"},
		{"NUL in image", func(s *Spec) { s.Image = "a\x00" }, "image"},
		{"comment too long", func(s *Spec) { s.Comment = strings.Repeat("x", 1025) }, "comment"},
		{"goals", func(s *Spec) { s.Deadline, s.Objective, s.MaxPowerW, s.MaxCostMilli = 1, ObjectiveEnergy, 300, 1500 }, ""},
		{"span to a deadline", func(s *Spec) { s.DeadlineIn = time.Hour }, ""},
		{"two deadlines", func(s *Spec) { s.Deadline, s.DeadlineIn = 1, time.Hour }, "deadline: is given as a time and as a span"},
		{"deadline too near", func(s *Spec) { s.DeadlineIn = time.Second - 1 }, "is outside 1 s"},
		{"deadline too far", func(s *Spec) { s.DeadlineIn = (MaxTimeDays + 1) * 24 * time.Hour }, "is outside 1 s"},
		{"deadline before 1970", func(s *Spec) { s.Deadline = -1 }, "deadline: is before 1970"},
		{"deadline that no span reaches", func(s *Spec) { s.Deadline = LastTime + 1 }, "deadline: is after the year 2199"},
		{"begin that no span reaches", func(s *Spec) { s.Begin = math.MaxInt64 }, "begin: is after the year 2199"},
		{"unknown objective", func(s *Spec) { s.Objective = "speed" }, "must be one of latency, throughput, energy, cost, balanced"},
		{"power below zero", func(s *Spec) { s.MaxPowerW = -1 }, "max_power: -1 W"},
		{"price below zero", func(s *Spec) { s.MaxCostMilli = -1 }, "max_cost: -1"},
		{"GPUs below zero", func(s *Spec) { s.GPUs = -1 }, "gpus: -1 is outside 0 to 16"},
		{"too many GPUs", func(s *Spec) { s.GPUs = MaxGPUsPerJob + 1 }, "gpus: 17"},
		{"GPU memory", func(s *Spec) { s.GPUMemMiB = MaxMemMiB + 1 }, "gpu_mem"},
		{"GPU memory below zero", func(s *Spec) { s.GPUMemMiB = -1 }, "gpu_mem"},
		{"compute", func(s *Spec) { s.GPUMilli = WholeGPU + 1 }, "gpu_util"},
		{"memory", func(s *Spec) { s.MemMiB = MaxMemMiB + 1 }, "mem"},
		{"cores", func(s *Spec) { s.CPUMilli = 4096*1000 + 1 }, "cpus"},
		{"time", func(s *Spec) { s.TimeLimit = (MaxTimeDays*86400 + 1) * time.Second }, "time"},
		{"time below zero", func(s *Spec) { s.TimeLimit = -time.Second }, "time"},
		{"time below a second", func(s *Spec) { s.TimeLimit = time.Millisecond }, "below the minimum"},
		{"expected duration", func(s *Spec) { s.Duration = (MaxTimeDays*86400 + 1) * time.Second }, "expect"},
		{"expected duration just below zero", func(s *Spec) { s.Duration = -time.Millisecond }, "expect"},
		{"features", func(s *Spec) { s.Features = make([]byte, MaxFeatures+1) }, "features"},
		{"features at the bound", func(s *Spec) { s.Features = make([]byte, MaxFeatures) }, ""},
		{"cores in place of no GPU", func(s *Spec) { *s = Spec{Name: "x", Command: []string{"x"}, OrCPU: true} }, "or_cpu and gpus"},
		{"exclusive without GPUs", func(s *Spec) { *s = Spec{Name: "x", Command: []string{"x"}, Exclusive: true} }, "exclusive and gpus"},
		{"GPU memory without GPUs", func(s *Spec) { *s = Spec{Name: "x", Command: []string{"x"}, GPUMemMiB: 1} }, "gpu_mem and gpus"},
		{"compute without GPUs", func(s *Spec) { *s = Spec{Name: "x", Command: []string{"x"}, GPUMilli: 1} }, "gpu_util and gpus"},
		{"GPU type without GPUs", func(s *Spec) { *s = Spec{Name: "x", Command: []string{"x"}, GPUType: "A100"} }, "gpu_type and gpus"},
		{"node", func(s *Spec) { s.Node = "N 1" }, "node"},
		{"name that is not UTF-8", func(s *Spec) { s.Name = "a\xff" }, "UTF-8"},
		{"comment that is not UTF-8", func(s *Spec) { s.Comment = "a\xff" }, "comment"},
		{"image that is not UTF-8", func(s *Spec) { s.Image = "a\xff" }, "image"},
		{"GPU type that is not UTF-8", func(s *Spec) { s.GPUType = "a\xff" }, "gpu_type"},
		{"endless GPU type", func(s *Spec) { s.GPUType = long }, "gpu_type"},
		{"paths in Latin-1", func(s *Spec) { s.Dir, s.Stdout, s.Command[1], s.Env[0] = "/home/\xe9", "\xe9.out", "\xe9", "A=\xe9" }, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := goodSpec()
			tt.spoil(s)
			err := s.Check()
			if tt.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			var e *Error
			if !errors.As(err, &e) || e.Code != CodeInvalid || !strings.Contains(e.Msg, tt.want) {
				t.Fatalf("Check = %v, want CodeInvalid with %q", err, tt.want)
			}
			if len(e.Msg) > 6000 || !utf8.ValidString(e.Msg) {
				t.Fatalf("message of %d bytes: %q", len(e.Msg), e.Msg)
			}
		})
	}
}

func FuzzSpecCheck(f *testing.F) {
	f.Add("train", "python3", "A=1", "/home", "img", "A100", "n1", 1, int64(8000), int64(3600))
	f.Add("", "", "=", "../x", "\x1b", "", "N", -1, int64(-1), int64(-1))
	f.Add("a\xff", "\x00", "BERTH_X=1", "/proc/1", "i", "T", "", 99, int64(1)<<62, int64(1)<<62)
	f.Fuzz(func(t *testing.T, name, arg, env, dir, image, gpuType, node string, gpus int, mem, secs int64) {
		s := &Spec{
			Name: name, Command: []string{arg}, Env: []string{env}, Dir: dir, Image: image, GPUType: gpuType, Node: NodeID(node),
			GPUs: gpus, GPUMemMiB: mem, MemMiB: mem, TimeLimit: time.Duration(secs),
		}
		err := s.Check()
		if err == nil {
			if s.GPUs < 0 || s.GPUMemMiB < 0 || s.TimeLimit < 0 || !utf8.ValidString(name+image+gpuType+node) || strings.Contains(arg+env+dir, "\x00") {
				t.Fatalf("accepted: %+v", s)
			}
			return
		}
		var e *Error
		if !errors.As(err, &e) || e.Code != CodeInvalid || e.Msg == "" {
			t.Fatalf("fault without class: %v", err)
		}
	})
}

// TestStudiesAreBounded: a study needs trials that it has values for, its command names few
// parameters, and what it takes counts among the bytes of its user.
func TestStudiesAreBounded(t *testing.T) {
	t.Parallel()
	search := study.Study{Grid: true, Space: []study.Axis{{Name: "n", Kind: study.KindInt, Low: 1, High: 4}, {Name: "w", Kind: study.KindChoice, Values: []string{strings.Repeat("x", 200)}}}}
	spec := func(array string) *Spec {
		s := &Spec{Name: "a", Command: []string{"true", "{n}"}, Dir: "/", Study: &search}
		s.Array, _ = ParseArray(array)
		return s
	}
	if err := spec("0-3").Check(); err != nil {
		t.Fatal(err)
	}
	many := spec("0-3")
	many.Command = append(many.Command, strings.Repeat("{w}", study.MaxPlaces))
	none := spec("0")
	none.Array = nil
	bad := spec("0")
	bad.Study = &study.Study{}
	costly := spec("0")
	costly.Study = &study.Study{Budget: time.Hour, Grid: true, Space: search.Space}
	for want, s := range map[string]*Spec{
		"budget: is of GPU-hours": costly,
		"numbered up to 4, but a grid of these parameters has 4, from 0 to 3": spec("4"), "trial 10000 is outside 0 to 9999": spec("10000"), "has no trials": none, "space: has no parameter": bad,
		"names parameters 257 times": many,
	} {
		if err := s.Check(); err == nil || !strings.Contains(err.Error(), "study: "+want) && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	with, _ := spec("0").Weight()
	plain := spec("0")
	plain.Study = nil
	if without, _ := plain.Weight(); with-without < 200 {
		t.Errorf("a study of more than 200 bytes weighs %d", with-without)
	}
}

// TestServicesAreToldOfServices: options that make no sense for a service are refused
// in words about services, whose array no user asked for.
func TestServicesAreToldOfServices(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*Spec){
		"":                      func(*Spec) {},
		"service and gpus: ":    func(s *Spec) { s.GPURange = GPURange{1, 2} },
		"service and deadline:": func(s *Spec) { s.DeadlineIn = time.Hour },
		"service and nodes: ":   func(s *Spec) { s.Nodes = 2 },
		"service and retry: ":   func(s *Spec) { s.Retry.Times = 1 },
	} {
		s := &Spec{Name: "web", Command: []string{"x"}, Dir: "/", GPUs: 1, Service: &service.Service{
			Name: "web", Replicas: 1, Min: 1, Max: 3, Port: "http", Every: time.Second, Fails: 3, StartWithin: time.Minute, Drain: time.Second,
		}}
		s.Array, _ = ParseArray("0-2%1")
		change(s)
		if err := s.Check(); (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

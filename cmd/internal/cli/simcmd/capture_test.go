package simcmd_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	"github.com/berth-scheduler/berth/cmd/internal/cli/simcmd"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/scheduler/sim/trace"
)

// busyCluster is one node with two cards, on which four jobs ended.
func busyCluster() *clitest.Fake {
	f := clitest.NewFake()
	f.Nodes = []*apiv1.Node{{Id: "n1", State: "ready", CpuMilli: 16000, MemMib: 65536, Gpus: []*apiv1.GPU{
		{Uuid: "GPU-a", Type: "T4", MemMib: 15360, SellableMib: 14402, MaxShares: 3}, {Uuid: "GPU-b", Index: 1, Type: "T4", MemMib: 15360, SellableMib: 14402, MaxShares: 3},
	}}}
	f.Jobs = nil
	for i := range uint64(4) {
		began := clitest.Now.Add(-10*time.Hour + time.Duration(i)*time.Minute)
		f.Jobs = append(f.Jobs, &apiv1.Job{
			Id: i + 1, Name: "train", User: "ann", State: "COMPLETED", GpusWanted: 1, Gpus: []*apiv1.GPUShare{{Uuid: "GPU-a", Type: "T4"}},
			Submitted: timestamppb.New(began), Started: timestamppb.New(began.Add(time.Minute)), Ended: timestamppb.New(began.Add(time.Hour)),
			Spec:        &apiv1.JobSpec{Command: [][]byte{[]byte("secret")}, Env: [][]byte{[]byte("TOKEN=secret")}, Gpus: 1},
			Predictions: []*apiv1.Prediction{{GpuType: "T4", GpuMemMib: 4000, GpuMemP95Mib: 4200, GpuUtilMilli: 300, Seconds: 3000, Confidence: 0.95, Source: "history"}},
			Measured:    &apiv1.Measured{GpuMemMib: 3900, GpuUtilMilli: 280, Seconds: 3540},
			Attempts:    []*apiv1.Attempt{{No: 1, Started: timestamppb.New(began.Add(time.Minute))}},
		})
	}
	f.Jobs[3].Ended, f.Jobs[3].State, f.Jobs[3].Measured = nil, "RUNNING", nil
	f.Jobs = append(f.Jobs, &apiv1.Job{Id: 5, User: "bob", State: "CANCELLED", GpusWanted: 1, Submitted: timestamppb.New(clitest.Now.Add(-3 * time.Hour)), Ended: timestamppb.New(clitest.Now.Add(-2 * time.Hour))})
	return f
}

// TestSimCapture takes a capture, replays it, and asks for the last days.
func TestSimCapture(t *testing.T) {
	t.Parallel()
	w := clitest.NewWorld(t, simulator)
	w.Serve("/a", busyCluster())
	file := filepath.Join(t.TempDir(), "c.json")
	if code := w.Run("sim", "capture", "-o", file); code != 0 || !strings.Contains(w.Out.String(), "5 jobs, 1 nodes") {
		t.Fatalf("code %d: %s%s", code, w.Out.String(), w.Errs.String())
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(raw), "secret") {
		t.Error("a command or an environment got into the capture")
	}
	for name, c := range map[string]struct {
		args             []string
		jobs, ended, bad int
	}{
		"all of the capture":    {[]string{"--capture", file}, 4, 3, 1},
		"what ended":            {[]string{"--capture", file, "--last", "1d"}, 3, 3, 2},
		"the live cluster":      {[]string{"--last", "14d"}, 3, 3, 2},
		"on another cluster":    {[]string{"--last", "14d", "--cluster", "1x1:T4"}, 3, 3, 2},
		"by another, by policy": {[]string{"--last", "14d", "--policy", "slot+sjf"}, 3, 3, 2},
	} {
		w.Out.Reset()
		w.Errs.Reset()
		if code := w.Run(append([]string{"sim", "run", "-o", "json"}, c.args...)...); code != 0 {
			t.Errorf("%s: %s", name, w.Errs.String())
			continue
		}
		var got simcmd.View
		if err := json.Unmarshal(w.Out.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if r := got.Results[0]; r.Jobs != c.jobs || r.Completed != c.jobs || got.Actual == nil || got.Actual.Jobs != c.ended || len(got.Read.Bad) != c.bad {
			t.Errorf("%s: %d jobs, %d completed, actual %+v, read %+v", name, r.Jobs, r.Completed, got.Actual, got.Read)
		}
		if got.Actual.MeanJCT != 3600 || got.Actual.MeanWait != 60 || got.Actual.Makespan != 3720 {
			t.Errorf("%s: what happened is %+v", name, got.Actual)
		}
	}
}

// TestSimCaptureBad: what is no capture, or of another version, is refused.
func TestSimCaptureBad(t *testing.T) {
	t.Parallel()
	good := trace.Capture{Format: trace.CaptureFormat, Taken: clitest.Now}
	empty, err := json.Marshal(good)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"not there":       {[]string{"run", "--capture", "/nonexistent/c.json"}, "no such file"},
		"not a capture":   {[]string{"run", "--capture", writeFile(t, "a.json", "{}")}, "format"},
		"another version": {[]string{"run", "--capture", writeFile(t, "b.json", `{"format":"berth-capture/9"}`)}, "same version"},
		"unknown key":     {[]string{"run", "--capture", writeFile(t, "c.json", `{"format":"berth-capture/1","x":1}`)}, "unknown field"},
		"nothing in it":   {[]string{"run", "--capture", writeFile(t, "d.json", string(empty))}, "holds 0 jobs"},
		"no time":         {[]string{"run", "--last", "soon"}, "such as 14d"},
		"below 0":         {[]string{"run", "--last", "-3h"}, "such as 14d"},
		"with a trace":    {[]string{"run", "--last", "3h", "--trace", "x"}, "cannot be combined"},
		"no file":         {[]string{"capture"}, "-o is missing"},
	} {
		w := clitest.NewWorld(t, simulator)
		if code := w.Run(append([]string{"sim"}, c.args...)...); code == 0 || !strings.Contains(w.Errs.String(), c.says) {
			t.Errorf("%s: code %d, want %q:\n%s", name, code, c.says, w.Errs.String())
		}
	}
}

func TestDays(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]time.Duration{"14d": 14 * 24 * time.Hour, "36h": 36 * time.Hour, "1d12h": 36 * time.Hour, "d": -1, "x": -1, "0h": -1, "1e9d": -1} {
		got, err := simcmd.Days(s)
		if want < 0 {
			if err == nil {
				t.Errorf("%q: read as %s", s, got)
			}
		} else if got != want || err != nil {
			t.Errorf("%q: %s, %v; want %s", s, got, err, want)
		}
	}
}

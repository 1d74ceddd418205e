package simcmd_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	"github.com/berth-scheduler/berth/cmd/internal/cli/simcmd"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// answers are what a coordinator hands over of busyCluster, whose jobs ended.
func answers(t *testing.T, jobs int) []byte {
	t.Helper()
	f := busyCluster()
	list := &apiv1.ListHistoryResponse{}
	for i := range jobs {
		j := proto.CloneOf(f.Jobs[i%3])
		j.Id = uint64(i + 1)
		j.Attempts[0].Ended = j.Ended
		j.Attempts[0].Gpus = []*apiv1.GPUShare{{Type: "T4", Share: &apiv1.Share{MemMib: 7680, Milli: 500}}}
		j.Attempts[0].Measured = &apiv1.Measured{GpuUtilMilli: 280}
		j.Predictions[0].GpuUtilMilli, j.Predictions[0].GpuMemMib, j.Predictions[0].GpuMemP95Mib = 100, 1000, 1100
		j.Measured.GpuUtilMilli, j.Measured.GpuMemMib = 100, 1000
		list.Jobs = append(list.Jobs, j)
	}
	var b bytes.Buffer
	for _, m := range []proto.Message{&apiv1.GetStatusResponse{Name: "lab", Policy: "ffd", MaxShares: 3}, &apiv1.ListNodesResponse{Nodes: f.Nodes}, list} {
		if _, err := protodelim.MarshalTo(&b, m); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

// TestWhatIf replays what is handed over, and says what happened in the same figures.
func TestWhatIf(t *testing.T) {
	t.Parallel()
	run := func(in []byte, args ...string) (*clitest.World, int) {
		w := clitest.NewWorld(t, simulator)
		w.Env.Stdin = bytes.NewReader(in)
		return w, w.Run(append([]string{"sim", "what-if", "-o", "json", "--no-timing"}, args...)...)
	}
	mean := map[string]float64{}
	for _, shares := range []string{"0", "1", "6"} {
		w, code := run(answers(t, 9), "--policy", "ffd", "--max-shares", shares)
		var got simcmd.View
		if err := json.Unmarshal(w.Out.Bytes(), &got); err != nil || code != 0 {
			t.Fatalf("code %d, %v: %s", code, err, w.Errs.String())
		}
		r, a := got.Results[0], got.Actual
		if r.Completed != 9 || r.MedianWait == nil || r.P90Wait == nil || *r.P90Wait < *r.MedianWait || r.ReservedMemPct == nil || *r.ReservedMemPct <= 0 {
			t.Errorf("%+v", r)
		}
		mean[shares] = *r.MeanWait
		// Nine jobs of 59 minutes each held half a card of two for 62 minutes in all.
		held := 100 * 9 * 59 * 0.5 / (2 * 62)
		if a.Jobs != 9 || a.MedianWait != 60 || a.P90Wait != 60 || *a.AllocationPct != held || *a.ReservedMemPct != held || *a.GPUUtilPct >= held {
			t.Errorf("what happened: %+v, want %.2f %% held", a, held)
		}
	}
	if mean["6"] >= mean["0"] || mean["0"] >= mean["1"] {
		t.Errorf("with one job on a card they wait %.0f s, with three %.0f s, with six %.0f s", mean["1"], mean["0"], mean["6"])
	}
	for name, c := range map[string]struct {
		in   []byte
		args []string
		says string
	}{
		"nothing":       {nil, nil, "how the cluster is"},
		"cut off":       {answers(t, 9)[:200], nil, "standard input"},
		"no jobs":       {answers(t, 0), nil, "holds 0 jobs"},
		"too many jobs": {answers(t, 20_001), nil, "more than 20000"},
		"no policy":     {answers(t, 3), []string{"--policy", "best"}, "policies are"},
		"a giant":       {[]byte{0xff, 0xff, 0xff, 0xff, 0x7f}, nil, "standard input"},
	} {
		w, code := run(c.in, c.args...)
		if code == 0 || !strings.Contains(w.Errs.String(), c.says) {
			t.Errorf("%s: code %d, want %q: %s", name, code, c.says, w.Errs.String())
		}
	}
}

// TestHeldUnknown: where an attempt's end is not known it holds nothing, and what does not
// say what it held makes the parts unknown.
func TestHeldUnknown(t *testing.T) {
	t.Parallel()
	f := busyCluster()
	f.Jobs = f.Jobs[:2]
	f.Jobs[0].Attempts[0].Ended = f.Jobs[0].Ended
	f.Jobs[1].Attempts[0].Ended = timestamppb.New(f.Jobs[1].Attempts[0].Started.AsTime().Add(-time.Second))
	w := clitest.NewWorld(t, simulator)
	w.Serve("/a", f)
	var got simcmd.View
	if code := w.Run("sim", "run", "--last", "1d", "-o", "json"); code != 0 {
		t.Fatal(w.Errs.String())
	}
	if err := json.Unmarshal(w.Out.Bytes(), &got); err != nil || got.Actual.AllocationPct != nil {
		t.Errorf("%v, %+v", err, got.Actual)
	}
}

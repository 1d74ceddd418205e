package jobcmd_test

import (
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// TestGPUTypeAsPeopleWriteIt is taken where the cluster has one such type.
func TestGPUTypeAsPeopleWriteIt(t *testing.T) {
	t.Parallel()
	for asked, want := range map[string]string{"a100": "A100-SXM4-80GB", "A100-SXM4-80GB": "A100-SXM4-80GB", "h100": "H100", "b300": "b300", "t4": ""} {
		w, f := clitest.NewWorld(t), clitest.NewFake()
		f.Nodes[1].Gpus = append(f.Nodes[1].Gpus, &apiv1.GPU{Uuid: "GPU-8", Type: "T4"}, &apiv1.GPU{Uuid: "GPU-9", Type: "T4-16GB"})
		w.Serve("/a", f)
		code := w.Run("submit", "--gpu-type", asked, "--", "true")
		switch {
		case want == "":
			if code != console.ExitUsage || !strings.Contains(w.Errs.String(), `GPU type "t4": matches T4, T4-16GB`) {
				t.Errorf("%s: exit code %d: %s", asked, code, w.Errs.String())
			}
		case code != 0 || len(f.Requests) != 1 || f.Requests[0].GetJobs()[0].GetGpuType() != want:
			t.Errorf("%s: exit code %d, requests %v, want %s: %s", asked, code, f.Requests, want, w.Errs.String())
		}
	}
}

// TestGPURanges: a range from a number to itself, as scripts put it together, is that
// number, and one that counts down is refused.
func TestGPURanges(t *testing.T) {
	t.Parallel()
	for asked, want := range map[string][3]uint32{"2-4": {2, 2, 4}, "2-2": {2, 0, 0}, "2": {2, 0, 0}} {
		w, f := clitest.NewWorld(t), clitest.NewFake()
		w.Serve("/a", f)
		code := w.Run("submit", "--gpus", asked, "--", "true")
		if j := f.Requests[0].GetJobs()[0]; code != 0 || [3]uint32{j.GetGpus(), j.GetLeastGpus(), j.GetMostGpus()} != want {
			t.Errorf("%s: exit code %d, %v, want %d: %s", asked, code, j, want, w.Errs.String())
		}
	}
	w := clitest.NewWorld(t)
	if code := w.Run("submit", "--gpus", "4-2", "--", "true"); code != console.ExitUsage || !strings.Contains(w.Errs.String(), "the smaller one first") {
		t.Errorf("4-2: exit code %d: %s", code, w.Errs.String())
	}
}

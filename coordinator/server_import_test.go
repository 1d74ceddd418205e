package coordinator_test

import (
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/coordinator/learner"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
)

// TestImportedRunsPredict: runs under another scheduler predict a job of the
// same owner and name until it has run here.
func TestImportedRunsPredict(t *testing.T) {
	t.Parallel()
	w := startTaught(t, 1, learner.Config{})
	models := apirpc.NewModelServiceClient(w.cc)
	run := func(uid uint32, name, gpu string, mib int64) *apiv1.PastRun {
		return &apiv1.PastRun{Uid: uid, Name: name, Gpus: 1, GpuType: gpu, Seconds: 600, GpuMemMib: mib, GpuUtilMilli: 500, HostMemMib: 3000, CpuMilli: 2000}
	}
	for _, tc := range []struct {
		name string
		who  uint32
		runs []*apiv1.PastRun
		want string
	}{
		{"not an administrator", alice, []*apiv1.PastRun{run(alice, "j", "T4", 4000)}, "administrator"},
		{"none", admin, nil, "want 1 to 1024"},
		{"no such type", admin, []*apiv1.PastRun{run(alice, "j", "T4", 4000), run(alice, "j", "H100", 4000)}, `run 2: GPU type "H100" is not in the cluster`},
		{"no name", admin, []*apiv1.PastRun{run(alice, "", "T4", 4000)}, "run 1: name"},
		{"impossible", admin, []*apiv1.PastRun{run(alice, "j", "T4", -4)}, "run 1: no run can have these figures"},
	} {
		_, err := models.ImportRuns(as(t, tc.who), &apiv1.ImportRunsRequest{Runs: tc.runs})
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
	name := spec(0).Name
	var runs []*apiv1.PastRun
	for range 3 {
		runs = append(runs, run(alice, name, "T4", 4000), run(bob, name, "T4", 9000))
	}
	resp, err := models.ImportRuns(as(t, admin), &apiv1.ImportRunsRequest{Runs: runs})
	if err != nil || resp.Jobs != 2 {
		t.Fatalf("%v, %v", resp, err)
	}
	if j := w.runs(1, 5000); j.Predicted.Source != "imported" || j.Predicted.GpuMemMib != 4000 || j.Predicted.Seconds != 600 {
		t.Errorf("the first run is predicted as %v", j.Predicted)
	}
	if j := w.runs(1, 5000); j.Predicted.Source != "history" || j.Predicted.GpuMemMib != 5000 {
		t.Errorf("the second run is predicted as %v", j.Predicted)
	}
}

package conv

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

func genColumnJob(t *rapid.T, id cluster.JobID) *cluster.Job {
	when := func(label string) cluster.Time {
		return cluster.Time(rapid.SampledFrom([]int64{0, 1_700_000_000_000_001, 1_800_000_000_000_000}).Draw(t, label))
	}
	j := &cluster.Job{
		ID: id, Spec: genSpec(t), Submitted: when("submitted"), Started: when("started"), Ended: when("ended"), EstStart: when("est"),
		Owner:  cluster.Owner{UID: cluster.UID(rapid.IntRange(0, 3).Draw(t, "uid")), Name: rapid.SampledFrom([]string{"", "ann", "bob"}).Draw(t, "user")},
		State:  cluster.JobState(rapid.IntRange(int(cluster.JobPending), int(cluster.JobDeadline)).Draw(t, "state")),
		Reason: cluster.Reason{Code: rapid.SampledFrom([]cluster.ReasonCode{"", cluster.ReasonCPU, cluster.ReasonGPUs}).Draw(t, "reason")},
	}
	if rapid.Bool().Draw(t, "ran") {
		a := cluster.Attempt{No: 1, Berth: cluster.Berth{Node: cluster.NodeID(rapid.SampledFrom([]string{"n1", "n2"}).Draw(t, "node"))}}
		if rapid.Bool().Draw(t, "exited") {
			a.Exit = &cluster.Exit{Code: rapid.Int32Range(0, 2).Draw(t, "code"), Signal: rapid.Int32Range(0, 9).Draw(t, "signal")}
		}
		j.Attempts = append(j.Attempts, a)
	}
	return j
}

// TestColumnsHoldWhatBriefJobsHold reads rows back and compares them with the
// jobs as they come one by one.
func TestColumnsHoldWhatBriefJobsHold(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var jobs []*cluster.Job
		for i := range rapid.IntRange(0, 12).Draw(t, "jobs") {
			jobs = append(jobs, genColumnJob(t, cluster.JobID(i+1)))
		}
		data, err := proto.Marshal(apiconv.JobColumns(jobs))
		if err != nil {
			t.Fatal(err)
		}
		m := &apiv1.JobColumns{}
		if err := proto.Unmarshal(data, m); err != nil {
			t.Fatal(err)
		}
		if len(m.Ids) != len(jobs) {
			t.Fatalf("%d rows of %d jobs", len(m.Ids), len(jobs))
		}
		rows := apiconv.Columns{M: m}
		for i, j := range jobs {
			want := apiconv.JobToAPI(j, apiconv.JobDetail{Brief: true})
			want.Node = want.NodeList // on several nodes the list
			if want.GetExitCode() == 0 && want.Signal == 0 {
				want.ExitCode = nil // a listing does not show it
			}
			if diff := cmp.Diff(want, rows.Job(i), protocmp.Transform()); diff != "" {
				t.Fatal(diff)
			}
		}
	})
}

// TestColumnsOfAnybody reads columns that do not fit each other.
func TestColumnsOfAnybody(t *testing.T) {
	t.Parallel()
	rows := apiconv.Columns{M: &apiv1.JobColumns{Ids: []uint64{7, 8}, Texts: []string{"", "a"}, Names: []uint32{1}, Users: []uint32{9, 1}, Gpus: []uint32{2}}}
	if j := rows.Job(1); j.GetId() != 8 || j.GetName() != "" || j.GetUser() != "a" || j.GetGpusWanted() != 0 {
		t.Errorf("%v", j)
	}
	if j := rows.Job(0); j.GetName() != "a" || j.GetUser() != "" || j.GetGpusWanted() != 2 {
		t.Errorf("%v", j)
	}
}

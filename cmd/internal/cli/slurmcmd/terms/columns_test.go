package terms

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/slurm"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

// TestRowsReadAsJobs prints each column of squeue of jobs that came as columns,
// and of the same that came one by one.
func TestRowsReadAsJobs(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_760_000_000, 0).UTC()
	at := func(s int64) cluster.Time { return cluster.TimeOf(now.Add(time.Duration(s) * time.Second)) }
	exit := &cluster.Exit{Code: 137, Signal: 9}
	ran := cluster.Attempt{No: 1, State: cluster.JobRunning, Berth: cluster.Berth{Node: "gpu1"}}
	over := ran
	over.Exit = exit
	array, err := cluster.ParseArray("1,5,9%2")
	if err != nil {
		t.Fatal(err)
	}
	jobs := []*cluster.Job{
		{ID: 3, Owner: cluster.Owner{UID: 0, Name: "root"}, State: cluster.JobQueued, Submitted: at(-600), EstStart: at(60), Reason: cluster.Reason{Code: cluster.ReasonGPUs},
			Spec: &cluster.Spec{Name: "train", GPUs: 2, GPUType: "T4", CPUMilli: 2500, MemMiB: 4096, TimeLimit: time.Hour, RequeueOnLoss: true, Begin: at(-60)}},
		{ID: 4, Owner: cluster.Owner{UID: 4_000_000, Name: "x\ty"}, State: cluster.JobPending, Submitted: at(-500), Reason: cluster.Reason{Code: cluster.ReasonHeldUser},
			Spec: &cluster.Spec{Name: "a\x1b[2J", Nodes: 3, Tasks: 2, GPUs: 1, Partition: "gpu", Node: "n7", Hold: true, Account: "bio", QOS: "high", Nice: 5}, Depends: []cluster.DependState{cluster.DependOpen}},
		{ID: 5, Owner: cluster.Owner{UID: 0, Name: "root"}, State: cluster.JobRunning, Submitted: at(-400), Started: at(-300), Attempts: []cluster.Attempt{over, ran},
			Spec: &cluster.Spec{Name: "r", TimeLimit: 2 * time.Hour, Deadline: at(9000)}},
		{ID: 6, Owner: cluster.Owner{UID: 0, Name: "root"}, State: cluster.JobFailed, Submitted: at(-400), Started: at(-300), Ended: at(-200), Attempts: []cluster.Attempt{over},
			Spec: &cluster.Spec{Name: "f"}},
		{ID: 9, ArrayJobID: 7, ArrayTaskID: 9, Owner: cluster.Owner{UID: 0, Name: "root"}, State: cluster.JobPending, Submitted: at(-400), Spec: &cluster.Spec{Name: "arr", Array: array}},
	}
	jobs[1].Spec.Depends = []cluster.Dependency{{Kind: cluster.AfterOK, Job: 3}}
	v := onlooker(now)
	rows := slurmRows{apiconv.Columns{M: apiconv.JobColumns(jobs)}, v}
	for i, s := range rows.M.Texts {
		rows.M.Texts[i] = console.Escape(s)
	}
	format := "%i|%A|%a|%b|%c|%C|%d|%D|%e|%E|%F|%g|%G|%H|%I|%j|%J|%K|%l|%L|%m|%M|%n|%N|%O|%p|%P|%q|%Q|%r|%R|%s|%S|%t|%T|%u|%U|%V|%w|%W|%X|%y|%Y|%z|%B"
	q := slurm.Squeue{Format: format, States: []string{"ALL"}, NoHead: true}
	if q.ShowsFiles() {
		t.Error("a format without files is read in full")
	}
	for _, letter := range []string{"%Z", "%f", "%v", "%x", "%h", "%o", "%k"} {
		if all := (slurm.Squeue{Format: format + "|" + letter}); !all.ShowsFiles() {
			t.Errorf("a format with %s is read as columns, which do not have it", letter)
		}
	}
	long := slurm.Squeue{Fields: "cluster,pendingtime,accruetime,cpuspertask,maxcpus,tresalloc:60,ntpernode,prioritylong,jobarrayid,arrayjobid", States: []string{"ALL"}, NoHead: true}
	for i, j := range jobs {
		var row slurm.Job
		rows.read(&row, i)
		one := Job(v, apiconv.JobToAPI(j, apiconv.JobDetail{}))
		var got, want bytes.Buffer
		if err := q.Print(&got, []slurm.Job{row}, now); err != nil {
			t.Fatal(err)
		}
		if err := q.Print(&want, []slurm.Job{one}, now); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(long.Print(&got, []slurm.Job{row}, now), long.Print(&want, []slurm.Job{one}, now)); err != nil {
			t.Fatal(err)
		}
		if row.Begun != one.Begun || row.Pending <= 0 {
			t.Errorf("job %d: begun %t as columns, else %t; waited for %s", j.ID, row.Begun, one.Begun, row.Pending)
		}
		if diff := cmp.Diff(want.String(), got.String()); diff != "" || got.Len() == 0 {
			t.Errorf("job %d: %s", j.ID, diff)
		}
	}
}

package slurmconf

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const sacctSample = `JobID|JobName|User|State|Elapsed|AllocTRES|NNodes|NCPUS|MaxRSS|TotalCPU|TRESUsageInMax|TRESUsageInAve
100|train.sh|ann|COMPLETED|01:00:00|billing=8,cpu=8,gres/gpu:a100=1,gres/gpu=1,mem=64G,node=1|1|8||02:00:00||
100.batch|batch||COMPLETED|01:00:00|cpu=8,gres/gpu:a100=1,gres/gpu=1,mem=64G,node=1|1|8|8388608K|02:00:00|cpu=02:00:00,gres/gpumem=11264M,gres/gpuutil=97,mem=8388608K|gres/gpuutil=61
100.extern|extern||COMPLETED|01:00:00|billing=8|1|8|0|00:00:00||
101|ddp|ben|COMPLETED|1-00:00:00|cpu=64,gres/gpu=16,node=2|2|64|||||
102_7|sweep|ann|TIMEOUT|00:30:00|gres/gpu=1|1|4|1.5G|||
103|prep|ann|COMPLETED|00:10:00|cpu=8,mem=8G|1|8||||
104|train.sh|ann|CANCELLED by 1000|00:10:00|gres/gpu=1|1|8||||
105|train.sh|ann|RUNNING|00:10:00|gres/gpu=1|1|8||||
106|uneven|ann|COMPLETED|00:10:00|gres/gpu=3|2|8||||
107|a/b c|ann|COMPLETED|soon|gres/gpu=1|1|8||||
108|short
109|gone|ann|COMPLETED|00:00:00|gres/gpu=1|1|8||||
110.batch|batch||COMPLETED|00:10:00|gres/gpu=1|1|8||||
111|a/b c||COMPLETED|00:10:00|gres/gpu=1|1|8||||
112|a/b c|ann|COMPLETED|00:10|gres/gpu:a100=2|1|8||00:05.500||
`

func TestHistory(t *testing.T) {
	t.Parallel()
	h, err := ReadHistory(strings.NewReader(strings.Replace(sacctSample, "|||||\n", "||||\n", 1)), 100)
	if err != nil {
		t.Fatal(err)
	}
	want := &History{
		Rows: 15, Jobs: 11, Measured: 1,
		Runs: []Run{
			{User: "ann", Name: "train.sh", GPUs: 1, GPUType: "a100", Seconds: 3600, HostMiB: 8192, CPUMilli: 2000, GPUMiB: 11264, GPUUtilMilli: 610},
			{User: "ben", Name: "ddp", GPUs: 8, Seconds: 86400},
			{User: "ann", Name: "sweep", GPUs: 1, HostMiB: 1536},
			{User: "ann", Name: "a_b c", GPUs: 2, GPUType: "a100", Seconds: 10, CPUMilli: 550},
		},
		Dropped: []DroppedRuns{
			{"jobs in state CANCELLED", 1, 8}, {"jobs in state RUNNING", 1, 9}, {"jobs that ran for less than a second", 1, 13},
			{"jobs whose elapsed time cannot be read", 1, 11}, {"jobs with different numbers of GPUs on their nodes", 1, 10}, {"jobs without GPUs", 1, 7}, {"jobs without a user", 1, 15},
			{"rows with fewer or more fields than the first line", 1, 12}, {"steps of jobs that are not in the file", 1, 14},
		},
	}
	if d := cmp.Diff(want, h); d != "" {
		t.Error(d)
	}
}

// TestHistoryBounds: of one name the newest count, and of all the newest.
func TestHistoryBounds(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("Elapsed|UID|JobName|JobID|AllocTRES|State\n")
	for i := range 100 {
		fmt.Fprintf(&b, "00:%02d:00|1000|job%d|%d|gres/gpu=1|COMPLETED\n", 1+i%50, i%10, i)
	}
	h, err := ReadHistory(strings.NewReader(b.String()), 25)
	if err != nil {
		t.Fatal(err)
	}
	if len(h.Runs) != 25 || h.Runs[24].Name != "job9" || h.Runs[24].Seconds != 50*60 || h.Runs[24].User != "1000" {
		t.Errorf("%d runs, last %+v", len(h.Runs), h.Runs[len(h.Runs)-1])
	}
	left := 0
	for _, d := range h.Dropped {
		left += d.Count
	}
	if left != 75 {
		t.Errorf("%d dropped: %+v", left, h.Dropped)
	}
}

func TestHistoryRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                           "write it with: sacct",
		"JobID|JobName\n1|x\n":       "has no column user, state, elapsedraw, alloctres",
		"hello\nworld\n":             "has no column jobid",
		"JobID,JobName,User,State\n": "has no column",
	} {
		if _, err := ReadHistory(strings.NewReader(text), 5); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func FuzzHistory(f *testing.F) {
	f.Add(sacctSample)
	f.Add("Elapsed|UID|JobName|JobID|AllocTRES|State\n00:01:00|1000|j|1|gres/gpu=1|COMPLETED\n")
	f.Fuzz(func(t *testing.T, text string) {
		h, err := ReadHistory(strings.NewReader(text), 10)
		if err != nil {
			return
		}
		if len(h.Runs) > 10 {
			t.Errorf("%d runs", len(h.Runs))
		}
		for _, r := range h.Runs {
			if r.User == "" || r.Name == "" || r.GPUs < 1 || r.Seconds < 0 || r.HostMiB < 0 || r.CPUMilli < 0 || r.GPUMiB < 0 || r.GPUUtilMilli < 0 || r.GPUUtilMilli > 1000 {
				t.Errorf("run %+v", r)
			}
		}
		for _, d := range h.Dropped {
			if d.Count < 1 || d.Why == "" {
				t.Errorf("dropped %+v", d)
			}
		}
	})
}

package slurm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster"
)

// TestMailAsRecorded prints the last lines of a job that wants mail, as scontrol
// show job printed them.
func TestMailAsRecorded(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("testdata", "recorded", "scj_mail.txt"))
	if err != nil {
		t.Fatal(err)
	}
	const from = "   StdOut="
	_, want, ok := strings.Cut(string(data), from)
	if !ok {
		t.Fatal("the recording has lost its StdOut")
	}
	j := &Job{ID: 14, Stdout: "/home/alice/runs/slurm-14.out", MailType: "END", MailUser: "ann@example.org"}
	var b strings.Builder
	if err := (&Record{}).Job(&b, j); err != nil {
		t.Fatal(err)
	}
	_, got, _ := strings.Cut(b.String(), from)
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// TestMailTypesAsRecorded: names as sbatch took them and scontrol wrote them.
// Slurm also takes END,bogus for END; here a name that is not known is refused.
func TestMailTypesAsRecorded(t *testing.T) {
	for in, want := range map[string]string{
		"ALL": "INVALID_DEPEND,BEGIN,END,FAIL,REQUEUE,STAGE_OUT", "END,FAIL": "END,FAIL", "BEGIN": "BEGIN",
		"time_limit,TIME_LIMIT_50,TIME_LIMIT_80,TIME_LIMIT_90": "TIME_LIMIT_50,TIME_LIMIT_80,TIME_LIMIT_90,TIME_LIMIT",
		"ARRAY_TASKS,ALL": "ARRAY_TASKS,INVALID_DEPEND,BEGIN,END,FAIL,REQUEUE,STAGE_OUT",
		"INVALID_DEPEND":  "INVALID_DEPEND", "STAGE_OUT": "STAGE_OUT", "NONE": "", "NONE,BEGIN": "", "BEGIN,NONE": "",
	} {
		got, err := cluster.ParseMailEvents(in)
		if err != nil || got.String() != want {
			t.Errorf("%s: %q, %v; want %q", in, got, err, want)
		}
	}
	for _, in := range []string{"bogus", "", "END,bogus", "END,"} {
		if got, err := cluster.ParseMailEvents(in); err == nil {
			t.Errorf("%q is taken as %q", in, got)
		}
	}
}

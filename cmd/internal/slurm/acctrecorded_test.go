package slurm

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func recordedText(t *testing.T, name string) string {
	t.Helper()
	return recordedFile(t, name+".txt")
}

func recordedFile(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile("testdata/recorded/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestSacctFields: every field of sacct 22.05 is known, in its width, with its
// head cut as Slurm cuts it.
func TestSacctFields(t *testing.T) {
	lines := strings.Split(strings.TrimRight(recordedText(t, "sacct_fields"), "\n"), "\n")
	if len(lines) != len(acctFields) {
		t.Errorf("%d fields are recorded, %d known", len(lines), len(acctFields))
	}
	for i, line := range lines {
		rec := strings.Split(line, "|")
		var got strings.Builder
		if err := (&Sacct{Format: rec[0]}).Print(&got, nil); err != nil {
			t.Error(err)
			continue
		}
		if d := cmp.Diff(rec[1]+"\n"+rec[2]+"\n", got.String()); d != "" {
			t.Errorf("%s (-want +got)\n%s", rec[0], d)
		}
		if i < len(acctFields) && !strings.EqualFold(acctFields[i].name, rec[0]) {
			t.Errorf("field %d is %s, want %s", i, acctFields[i].name, rec[0])
		}
	}
	for short, want := range map[string]string{"node": "       NodeList \n", "cpu": "   CPUTime \n"} {
		var got strings.Builder
		if err := (&Sacct{Format: short}).Print(&got, nil); err != nil || !strings.HasPrefix(got.String(), want) {
			t.Errorf("%s: got %q, want %q: %v", short, got.String(), want, err)
		}
	}
}

// TestSacctRecorded: the layout is that of sacct 22.05 on the same two jobs.
func TestSacctRecorded(t *testing.T) {
	when := func(s string) time.Time {
		at, err := time.Parse("2006-01-02T15:04:05", s)
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	jobs := []Job{
		{ID: 1, UID: 1000, Name: "train", Partition: "main", Nodes: 1, NodeList: "n1", State: "COMPLETED", Started: when("2026-11-21T10:00:00"), Ended: when("2026-11-21T10:41:23")},
		{ID: 2, UID: 1001, Name: "a-rather-long-name", Partition: "main", Nodes: 3, NodeList: "n[1-3]", State: "FAILED", Started: when("2026-11-21T10:00:00"), Ended: when("2026-11-21T12:41:23")},
	}
	for name, a := range map[string]Sacct{
		"sacct_c": {Format: "jobid,uid,jobname,partition,nnodes,nodelist,state,end"},
		"sacct_P": {Format: "jobid,jobname,state,start,end", Layout: Layout{Parsable2: true}},
		"sacct_p": {Format: "jobid,jobname,state,end", Layout: Layout{Parsable: true, NoHead: true, Delimiter: ";"}},
		"sacct_w": {Format: "jobname%30,state%-20,jobid%3,nodelist%-6"},
		"sacct_n": {Format: "jobid,state", Layout: Layout{NoHead: true}},
	} {
		var got strings.Builder
		if err := a.Print(&got, jobs); err != nil {
			t.Error(err)
		}
		if d := cmp.Diff(recordedText(t, name), got.String()); d != "" {
			t.Errorf("%s (-want +got)\n%s", name, d)
		}
	}
}

// TestAcctUnits: --units writes what is an amount of bytes in one unit.
func TestAcctUnits(t *testing.T) {
	j := Job{MinMemMiB: 512, MaxRSSMiB: 3072, ReadBytes: 1 << 29}
	for unit, want := range map[string]string{"": "512M|3145728K|512.00M|", "G": "0.50G|3G|0.50G|", "K": "524288K|3145728K|524288K|", "T": "0.00T|0.00T|0.00T|"} {
		j.Unit = unit
		var got strings.Builder
		if err := (&Sacct{Layout: Layout{NoHead: true, Parsable2: true}, Format: "ReqMem,MaxRSS,MaxDiskRead,MaxDiskWrite"}).Print(&got, []Job{j}); err != nil || got.String() != want+"\n" {
			t.Errorf("--units=%s: %q, %v, want %q", unit, got.String(), err, want)
		}
	}
}

func TestAcctAmounts(t *testing.T) {
	j := Job{ExitCode: 143, Signal: 15, CPUUsed: 62345 * time.Millisecond, EnergyJ: 1500, GPUMemMiB: 11264, GPUUtilMilli: 866, MaxRSSMiB: 3}
	var got strings.Builder
	if err := (&Sacct{Layout: Layout{NoHead: true, Parsable2: true}, Format: "ExitCode,TotalCPU,ConsumedEnergy,ConsumedEnergyRaw,MaxRSS,TRESUsageInMax"}).Print(&got, []Job{j}); err != nil {
		t.Fatal(err)
	}
	if want := "0:15|01:02.345|1.50K|1500|3072K|cpu=00:01:02,energy=1500,gres/gpumem=11264M,gres/gpuutil=87,mem=3072K\n"; got.String() != want {
		t.Errorf("got %q, want %q", got.String(), want)
	}
}

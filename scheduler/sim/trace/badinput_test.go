package trace

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const plainHead = "job_id,arrival_s,duration_s,gpu_num,gpu_mem_mib,gpu_util_pct\n"

// TestBadInput: what is wrong in one row is reported with its number and
// costs that row; strict stops there.
func TestBadInput(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		row, says string
	}{
		"a time that is no number": {"b,zero,10,1,1,1", "arrival_s"},
		"a negative arrival":       {"b,-5,10,1,1,1", "before the trace begins"},
		"a negative run time":      {"b,5,-10,1,1,1", "ends before it begins"},
		"milliseconds for seconds": {"b,5,86400000,1,1,1", "another unit"},
		"bytes for MiB":            {"b,5,10,1,17179869184,1", "gpu_mem_mib"},
		"negative memory":          {"b,5,10,1,-1,1", "gpu_mem_mib"},
		"no share of 1000 %":       {"b,5,10,1,1,1001", "gpu_util_pct"},
		"not a number":             {"b,NaN,10,1,1,1", "not a number"},
		"an infinite time":         {"b,Inf,10,1,1,1", "not a number"},
		"negative GPUs":            {"b,5,10,-1,1,1", "gpu_num"},
		"more GPUs than there are": {"b,5,10,1e9,1,1", "gpu_num"},
		"an empty number of GPUs":  {"b,5,10,,1,1", "gpu_num: is empty"},
		"an empty arrival":         {"b,,10,1,1,1", "arrival_s: is empty"},
		"a field too few":          {"b,5,10,1,1", "has 5 fields, the head has 6"},
		"a field too many":         {"b,5,10,1,1,1,1", "has 7 fields"},
		"a quote that stays open":  {"b,5,\"1\"0,1,1,1", "quote"},
		"the same row again":       {"a,0,10,1,1,1", "is the same as row 2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := folder(t, map[string]string{"a.csv": plainHead + "a,0,10,1,1,1\n" + c.row + "\nz,9,10,1,1,1\n"})
			w, rep, err := Load(dir, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if len(w.Jobs) != 2 || rep.Skipped != 1 || len(rep.Bad) != 1 || rep.Bad[0].Row != 3 || !strings.Contains(rep.Bad[0].Err, c.says) {
				t.Errorf("%d jobs, report %+v; want row 3 left out for %q", len(w.Jobs), rep, c.says)
			}
			if _, _, err := Load(dir, Options{Strict: true}); err == nil || !strings.Contains(err.Error(), "row 3: ") || !strings.Contains(err.Error(), c.says) {
				t.Errorf("strict: got %v, want an error that names row 3 and %q", err, c.says)
			}
		})
	}
}

// TestUnsorted: rows out of order are sorted, and that is said.
func TestUnsorted(t *testing.T) {
	t.Parallel()
	w, rep, err := Load(folder(t, map[string]string{"a.csv": plainHead + "a,9,10,1,1,1\nb,0,10,1,1,1\nc,4,10,1,1,1\n"}), Options{Strict: true})
	if err != nil || rep.Skipped != 0 {
		t.Fatalf("%+v, %v", rep, err)
	}
	var ids []string
	for _, j := range w.Jobs {
		ids = append(ids, j.ID)
	}
	if d := cmp.Diff([]string{"b", "c", "a"}, ids); d != "" {
		t.Error(d)
	}
	if w.Jobs[0].Row != 3 || len(w.Notes) != 1 || !strings.Contains(w.Notes[0], "not in order") {
		t.Errorf("row %d, notes %q", w.Jobs[0].Row, w.Notes)
	}
}

// TestMissingColumns names what a head lacks.
func TestMissingColumns(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ head, says string }{
		"no duration":       {"job_id,arrival_s,gpu_num", "lacks the columns duration_s_clamped"},
		"sacct without end": {"JobID|Submit|Start|State", "lacks the columns end of a list of sacct"},
		"openb":             {"name,num_gpu,gpu_milli", "lacks the columns cpu_milli of a list of openb"},
	} {
		dir := folder(t, map[string]string{"a.csv": c.head + "\n1,2,3\n"})
		_, _, err := Load(filepath.Join(dir, "a.csv"), Options{})
		if err == nil || !strings.Contains(err.Error(), "row 1: ") || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want %q", name, err, c.says)
		}
	}
}

// TestBomb reads a file of 75 MiB that is packed into a few hundred KiB.
func TestBomb(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	chunk := []byte(strings.Repeat(strings.Repeat("0", 1000)+",1,1,1,1,1\n", 1<<10))
	if _, err := z.Write([]byte(plainHead)); err != nil {
		t.Fatal(err)
	}
	for range 75 {
		if _, err := z.Write(chunk); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.csv.gz"), b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Load(dir, Options{}); err == nil || !strings.Contains(err.Error(), errBomb.Error()) {
		t.Errorf("got %v, want %v", err, errBomb)
	}
}

// TestSacctOddities reads what Slurm writes beside plain jobs.
func TestSacctOddities(t *testing.T) {
	t.Parallel()
	const at = "|2026-01-01T00:00:00|2026-01-01T00:10:00|2026-01-01T01:10:00|"
	text := "JobID|User|Submit|Start|End|State|Timelimit|AllocTRES\n" +
		"7_3|ann" + at + "COMPLETED|UNLIMITED|gres/gpu=1\n" +
		"7_4|ann" + at + "TIMEOUT|1-00:00:00|gres/gpu:a100=2,gres/gpu=2\n" +
		"7_[5-9%2]|ann|2026-01-01T00:00:00|Unknown|Unknown|PENDING|UNLIMITED|\n" +
		"8+0|bob" + at + "COMPLETED|Partition_Limit|cpu=4\n" +
		"8.extern|" + at + "COMPLETED||cpu=4\n" +
		"9|bob|2026-01-01T00:00:00|2026-01-01T02:00:00|2026-01-01T01:00:00|COMPLETED|60|gres/gpu=1\n" +
		"10|bob" + at + "COMPLETED|soon|gres/gpu=1\n" +
		"11|bob" + at + "COMPLETED|60|gres/gpu=many\n" +
		"12|bob|yesterday|2026-01-01T00:10:00|2026-01-01T01:10:00|COMPLETED|60|\n" +
		"13|bob" + at + "COMPLETED|60|gres/gpu=1,mem=-4G\n"
	dir := folder(t, map[string]string{"s.txt": text})
	w, rep, err := Load(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, j := range w.Jobs {
		got = append(got, j.ID)
		if j.Duration != time.Hour {
			t.Errorf("job %s runs for %s", j.ID, j.Duration)
		}
	}
	if d := cmp.Diff([]string{"7_3", "7_4", "8+0"}, got); d != "" {
		t.Errorf("jobs (-want +got):\n%s", d)
	}
	var rows []int
	for _, b := range rep.Bad {
		rows = append(rows, b.Row)
	}
	if d := cmp.Diff([]int{4, 6, 7, 8, 9, 10, 11}, rows); d != "" {
		t.Errorf("rows left out (-want +got):\n%s\n%+v", d, rep.Bad)
	}
	// Steps and jobs that wait are no errors; an end before the start is one.
	if _, _, err := Load(dir, Options{Strict: true}); err == nil || !strings.Contains(err.Error(), "row 7: runs for -1h") {
		t.Errorf("strict: got %v", err)
	}
}

// TestSacctForms reads other fields that say the same.
func TestSacctForms(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text string
		gpus int
	}{
		"elapsed, gres":      {"JobID|Submit|Elapsed|AllocGRES|NCPUS|\n1|2026-01-01T00:00:00|1-01:00:00|gpu:a100:4|8|\n", 4},
		"raw, any number":    {"JobID|Submit|ElapsedRaw|ReqGRES\n1|2026-01-01T00:00:00|90000|gpu:2\n", 2},
		"no type, no number": {"JobID|Submit|ElapsedRaw|ReqGRES\n1|2026-01-01T00:00:00|90000|gpu\n", 1},
	} {
		w, _, err := Load(folder(t, map[string]string{"s.txt": c.text}), Options{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if j := w.Jobs[0]; j.Duration != 25*time.Hour || j.GPUs != c.gpus {
			t.Errorf("%s: %+v", name, j)
		}
	}
}

func TestSlurmSpan(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]time.Duration{
		"": 0, "UNLIMITED": 0, "Partition_Limit": 0, "90": 90 * time.Minute, "01:30": 90 * time.Second, "02:00:01": 2*time.Hour + time.Second,
		"3-00:00:00": 72 * time.Hour, "1-2": 26 * time.Hour, "00:00:01.500": time.Second, "x": -1, "1-x": -1, "-1": -1, "1:2:3:4": -1, "99999999999": -1,
	} {
		got, err := slurmSpan(s)
		if want < 0 {
			if err == nil {
				t.Errorf("%q: read as %s", s, got)
			}
			continue
		}
		if err != nil || got != want {
			t.Errorf("%q: %s, %v; want %s", s, got, err, want)
		}
	}
}

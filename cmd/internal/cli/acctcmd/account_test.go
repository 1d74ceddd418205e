package acctcmd_test

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	"github.com/berth-scheduler/berth/cmd/internal/golden"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// TestAccountingGolden holds what history, eff, report and sacct print.
func TestAccountingGolden(t *testing.T) {
	t.Parallel()
	for name, line := range map[string]string{
		"history":           "history",
		"history-filter":    "history --user ann --state F,CA --last 2d",
		"history-csv":       "history --oldest-first -o csv",
		"history-jsonl":     "history --limit 1 -o jsonl",
		"history-name":      "history --limit 2 --oldest-first -o name",
		"history-json-none": "history --user nobody -o json",
		"history-both":      "history --last 1d --since today",
		"history-last":      "history --last soon",
		"history-state":     "history --state RUNNING",
		"history-backwards": "history --since 2026-03-02 --until 2026-03-01",
		"eff":               "eff 40",
		"eff-failed":        "eff 41",
		"eff-array":         "eff 42",
		"eff-running":       "eff 12",
		"eff-waiting":       "eff 15",
		"eff-json":          "eff 40 -o json",
		"eff-missing":       "eff 40,999",
		"report":            "report",
		"report-json":       "report --by account --since 2026-03-01 --until 2026-03-31 -o json",
		"report-csv":        "report -o csv",
		"report-board":      "report --since 2026-03-01 --until 2026-03-31",
		"report-by":         "report --by planet",
		"sacct-array":       "sacct -a -j 42 -o JobID,JobIDRaw,State,ExitCode,Elapsed,MaxRSS,AllocTRES%30",
		"sacct-task":        "sacct -j 42_2 -n -P -o jobid,jobname,account,qos,elapsedraw,totalcpu,tresusageinmax",
		"sacct-long":        "sacct -j 40 -l -P",
		"sacct-brief":       "sacct -j 40,41 -b",
		"sacct-accounts":    "sacct -a -A vision -S now-3days -E now-1day -X -p --delimiter=; -o jobid,user,start,end,reserved",
		"sacct-badjob":      "sacct -j abc",
		"sacct-folded":      "sacct -j 42_8 -n -P -o jobid,state",
		"sacct-notfolded":   "sacct -j 42_5 -n -P -o jobid,state",
		"sacct-badstate":    "sacct -a -s CD,BOGUS",
		"sacct-backwards":   "sacct -a -S 2026-03-14T12:00:00 -E 2026-03-13T12:00:00",
		"sacct-nouser":      "sacct -u no-such-user-here",
		"sacct-was-running": "sacct -a -s R -S 2026-03-13T19:15:00 -E 2026-03-13T19:20:00 -n -P -o jobid,state,start,end",
		"sacct-nodes":       "sacct -a -S 2026-03-01 -N n[1-3] -X -n -P -o jobid,nodelist",
		"sacct-json-states": "sacct -a -s CA -S now-3days --json",
		"sacct-helpformat":  "sacct -e",
		"sacct-steps":       "sacct -j 40,42 -n -P -o jobid,jobidraw,jobname,user,state,exitcode,maxrss,nnodes,timelimit",
		"seff":              "seff 40",
		"seff-task":         "seff -d 42_2",
		"seff-running":      "seff 12",
		"seff-waiting":      "seff 15",
		"seff-missing":      "seff 999",
		"seff-usage":        "seff",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := clitest.NewWorld(t)
			w.Serve("/a", clitest.NewPast())
			golden.Check(t, name, w.Transcript(strings.Fields(line)...))
		})
	}
}

// TestOddNamesAreExported: names with commas, quotes and what spreadsheets compute
// come back from each export as they are, and guarded from CSV without --raw.
func TestOddNamesAreExported(t *testing.T) {
	t.Parallel()
	f := clitest.NewFake()
	f.Jobs = nil
	odd := []string{"a,b", `say "hi"`, "=HYPERLINK(\"http://x\")", "+1", "@x", "two\nlines", "naïve 🚀", "\u202egnp", "back\\slash", " lead"}
	for i, name := range odd {
		f.Jobs = append(f.Jobs, &apiv1.Job{Id: uint64(i + 1), Revision: uint64(i + 1), Name: name, User: "ann", State: "COMPLETED", Submitted: clitest.Ago(time.Hour), Ended: clitest.Ago(time.Minute)})
	}
	run := func(line string) string {
		w := clitest.NewWorld(t)
		w.Serve("/a", f)
		if code := w.Run(strings.Fields(line)...); code != 0 {
			t.Fatalf("%s: exit code %d, %s", line, code, w.Errs.String())
		}
		return w.Out.String()
	}
	names := func(line string) (out []string) {
		rows, err := csv.NewReader(strings.NewReader(run(line))).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		at := slices.Index(rows[0], "name")
		for _, row := range rows[1:] {
			out = append(out, row[at])
		}
		return out
	}
	if got := names("history --oldest-first -o csv --raw"); !slices.Equal(got, odd) {
		t.Errorf("raw CSV has %q, want %q", got, odd)
	}
	want := []string{"a,b", `say "hi"`, "'=HYPERLINK(\"http://x\")", "'+1", "'@x", `two\nlines`, "naïve 🚀", `\u202egnp`, `back\slash`, " lead"}
	if got := names("history --oldest-first -o csv"); !slices.Equal(got, want) {
		t.Errorf("CSV has %q, want %q", got, want)
	}
	type named struct{ Name string }
	var list []named
	if err := json.Unmarshal([]byte(run("history --oldest-first -o json")), &list); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(run("history --oldest-first -o jsonl")), "\n")
	if len(list) != len(odd) || len(lines) != len(odd) {
		t.Fatalf("%d jobs in the JSON, %d lines, want %d", len(list), len(lines), len(odd))
	}
	for i, line := range lines {
		var one named
		if err := json.Unmarshal([]byte(line), &one); err != nil || one.Name != odd[i] || list[i].Name != odd[i] {
			t.Errorf("JSON has %q and %q, want %q: %v", list[i].Name, one.Name, odd[i], err)
		}
	}
}

// TestHistoryIncomplete: who asks a coordinator that is still fetching is told.
func TestHistoryIncomplete(t *testing.T) {
	t.Parallel()
	f := clitest.NewPast()
	f.Incomplete = true
	for _, cmd := range []string{"history", "report", "sacct -a"} {
		w := clitest.NewWorld(t)
		w.Serve("/a", f)
		if code := w.Run(strings.Fields(cmd)...); code != 0 || !strings.Contains(w.Errs.String(), "still fetching") {
			t.Errorf("%s: exit code %d, %q", cmd, code, w.Errs.String())
		}
	}
}

// TestHistoryBehind: who asks a coordinator that may not be current is told,
// by every command that looks back.
func TestHistoryBehind(t *testing.T) {
	t.Parallel()
	for leader, want := range map[uint64]string{0: "have no leader now", 950: "is behind the leader (at index 900 of 950)"} {
		f := clitest.NewPast()
		f.Behind, f.LeaderIndex = true, leader
		for _, cmd := range []string{"history", "report", "sacct -a", "eff 12"} {
			w := clitest.NewWorld(t)
			w.Serve("/a", f)
			if code := w.Run(strings.Fields(cmd)...); code != 0 || !strings.Contains(w.Errs.String(), want) {
				t.Errorf("%s: exit code %d, %q", cmd, code, w.Errs.String())
			}
		}
	}
}

// TestHistoryPages: any number of jobs comes, each once, over many pages and
// from another coordinator when one goes away between them.
func TestHistoryPages(t *testing.T) {
	t.Parallel()
	a, b := clitest.NewFake(), clitest.NewFake()
	a.Jobs = nil
	const n = 12_345
	for i := range uint64(n) {
		a.Jobs = append(a.Jobs, &apiv1.Job{Id: i + 1, Revision: (i + 9) / 3, User: "ann", State: "COMPLETED", Submitted: clitest.Ago(time.Hour), Ended: clitest.Ago(time.Minute)})
	}
	b.Jobs = a.Jobs
	calls := 0
	a.Hook = func(context.Context, string) error {
		if calls++; calls > 1 {
			return cluster.Errorf(cluster.CodeUnavailable, "gone")
		}
		return nil
	}
	w := clitest.NewWorld(t)
	w.Vars["BERTH_SOCKET"] = "/a,/b"
	w.Serve("/a", a)
	w.Serve("/b", b)
	if code := w.Run("history", "--oldest-first", "-o", "csv"); code != 0 {
		t.Fatalf("exit code %d: %s", code, w.Errs.String())
	}
	rows, err := csv.NewReader(strings.NewReader(w.Out.String())).ReadAll()
	if err != nil || len(rows) != n+1 {
		t.Fatalf("%d rows, want %d: %v", len(rows), n+1, err)
	}
	for i, r := range rows[1:] {
		if r[0] != strconv.Itoa(i+1) {
			t.Fatalf("row %d is of job %s", i, r[0])
		}
	}
	if code := w.Run("history", "-o", "json", "--limit", "6000"); code != 0 {
		t.Fatalf("exit code %d: %s", code, w.Errs.String())
	}
	var list []map[string]any
	if err := json.Unmarshal(w.Out.Bytes(), &list); err != nil || len(list) != 6000 {
		t.Fatalf("%d jobs: %v", len(list), err)
	}
}

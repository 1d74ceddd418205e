package cli

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/berth-scheduler/berth/cluster"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// ListHistory answers from the same jobs as the rest of the fake, in pages of
// two, and breaks off now and then as a coordinator that goes away does.
func (f *fakeServer) ListHistory(r *apiv1.ListHistoryRequest, s grpc.ServerStreamingServer[apiv1.ListHistoryResponse]) error {
	if err := f.enter(s.Context(), "ListHistory"); err != nil {
		return err
	}
	f.mu.Lock()
	jobs := slices.Concat(f.jobs, f.hidden)
	f.mu.Unlock()
	slices.SortFunc(jobs, func(a, b *apiv1.Job) int { return endOrder(a, b, r.GetOldestFirst()) })
	var out []*apiv1.Job
	for _, j := range jobs {
		if !historyWants(r, j) {
			continue
		}
		if out = append(out, j); j.GetEnded() != nil && len(out) == int(r.GetLimit()) {
			break
		}
	}
	for page := range slices.Chunk(out, 2) {
		if err := s.Send(&apiv1.ListHistoryResponse{Jobs: page, Index: 900}); err != nil {
			return err
		}
	}
	return s.Send(&apiv1.ListHistoryResponse{Index: 900, Incomplete: f.incomplete, Behind: f.behind, LeaderIndex: f.leaderIndex})
}

func endOrder(a, b *apiv1.Job, oldest bool) int {
	n := int(a.GetRevision()) - int(b.GetRevision())
	if n == 0 {
		n = int(a.GetId()) - int(b.GetId())
	}
	if (a.GetEnded() == nil) != (b.GetEnded() == nil) {
		if a.GetEnded() == nil {
			return -1
		}
		return 1
	}
	if !oldest {
		return -n
	}
	return n
}

func historyWants(r *apiv1.ListHistoryRequest, j *apiv1.Job) bool {
	q := r.GetFilter()
	one := func(among []string, v string) bool { return len(among) == 0 || slices.Contains(among, v) }
	if !one(q.GetUsers(), j.GetUser()) && !slices.Contains(q.GetUsers(), strconv.Itoa(int(j.GetUid()))) || !one(q.GetStates(), j.GetState()) ||
		!one(q.GetNames(), j.GetName()) || !one(q.GetPartitions(), j.GetPartition()) || !one(q.GetAccounts(), j.GetAccount()) {
		return false
	}
	if ids := q.GetIds(); len(ids) > 0 && !slices.Contains(ids, j.GetId()) && !slices.Contains(ids, j.GetArrayJobId()) {
		return false
	}
	st, _ := cluster.ParseJobState(j.GetState())
	if !st.Terminal() {
		return r.GetUnfinished()
	}
	if from := q.GetEndedFrom(); from != nil && j.GetEnded().AsTime().Before(from.AsTime()) {
		return false
	}
	if to := q.GetEndedBefore(); to != nil && !j.GetEnded().AsTime().Before(to.AsTime()) {
		return false
	}
	if r.GetAfterIndex() == 0 {
		return true
	}
	was := &apiv1.Job{Revision: r.GetAfterIndex(), Id: r.GetAfterJob(), Ended: j.GetEnded()}
	return endOrder(was, j, r.GetOldestFirst()) < 0
}

// GetReport answers with two users.
func (f *fakeServer) GetReport(ctx context.Context, r *apiv1.GetReportRequest) (*apiv1.GetReportResponse, error) {
	if err := f.enter(ctx, "GetReport"); err != nil {
		return nil, err
	}
	ann := &apiv1.ReportLine{Key: "ann", Jobs: 41, Completed: 33, Failed: 5, Cancelled: 3, AllocatedGpuSeconds: 725_400, MeasuredGpuSeconds: 720_000,
		UsedGpuSeconds: 511_200, ChargedGpuSeconds: 430_120, CoreSeconds: 2_900_000, WaitP50Seconds: 4.2, WaitP95Seconds: 905}
	bob := &apiv1.ReportLine{Key: "bob", Jobs: 3, Completed: 3, AllocatedGpuSeconds: 360_000, MeasuredGpuSeconds: 360_000, UsedGpuSeconds: 10_800,
		ChargedGpuSeconds: 360_000, IdleGpuSeconds: 288_000, CoreSeconds: 90_000, WaitP50Seconds: 3700, WaitP95Seconds: 90_000}
	total := &apiv1.ReportLine{Jobs: 44, Completed: 36, Failed: 5, Cancelled: 3, AllocatedGpuSeconds: 1_085_400, MeasuredGpuSeconds: 1_080_000,
		UsedGpuSeconds: 522_000, ChargedGpuSeconds: 790_120, IdleGpuSeconds: 288_000, CoreSeconds: 2_990_000, WaitP50Seconds: 4.4, WaitP95Seconds: 3700}
	return &apiv1.GetReportResponse{Lines: []*apiv1.ReportLine{ann, bob}, Total: total, Index: 900, Incomplete: f.incomplete, Behind: f.behind, LeaderIndex: f.leaderIndex}, nil
}

// pastJobs are jobs that ended, some of an array.
func pastJobs() []*apiv1.Job {
	zero, one := int32(0), int32(1)
	gpu := []*apiv1.GPUShare{{Uuid: "GPU-1a", Type: "A100-SXM4-80GB", Share: &apiv1.Share{MemMib: 40960, Milli: 1000, Exclusive: true}}}
	job := func(id uint64, name, state string, began, took time.Duration, code *int32) *apiv1.Job {
		return &apiv1.Job{
			Id: id, Revision: 100 + id, Name: name, User: "ann", Uid: 1001, State: state, ExitCode: code, Node: "n1", NodeList: "n1", GpusWanted: 1, Gpus: gpu,
			Account: "vision", Qos: "normal", Partition: "gpu", Submitted: ago(began + 90*time.Second), Started: ago(began), Ended: ago(began - took),
			Spec:     &apiv1.JobSpec{Name: name, Gpus: 1, Exclusive: true, GpuMemMib: 40960, CpuMilli: 8000, MemMib: 65536, TimeLimit: durationpb.New(24 * time.Hour)},
			Attempts: []*apiv1.Attempt{{No: 1, State: state, Node: "n1", Gpus: gpu, Started: ago(began), Ended: ago(began - took)}},
			Measured: &apiv1.Measured{GpuMemMib: 11469, GpuUtilMilli: 410, Seconds: took.Seconds(), HostMemMib: 9216, CpuMilli: 1900,
				Profile: &apiv1.Profile{GpuMemMeanMib: 10000, SampledSeconds: took.Seconds(), EnergyJ: 912_345, ReadBytes: 5 << 30, WrittenBytes: 200 << 20}},
		}
	}
	train := job(40, "train", "COMPLETED", 50*time.Hour, 90*time.Minute, &zero)
	failed := job(41, "train", "FAILED", 30*time.Hour, 2*time.Minute, &one)
	failed.Measured.GpuOom, failed.Reason = true, "NonZeroExitCode"
	var tasks []*apiv1.Job
	for i := range uint32(3) {
		x := job(uint64(42+i), "sweep", "COMPLETED", 20*time.Hour, time.Duration(10+i)*time.Minute, &zero)
		task := 2 * i
		x.ArrayJobId, x.ArrayTaskId, x.ArrayCount, x.ArrayTasks = 42, &task, 1, strconv.Itoa(int(task))
		x.Measured.GpuUtilMilli, x.Measured.HostMemMib = int64(20+10*i), int64(500*(i+1))
		tasks = append(tasks, x)
	}
	last := uint32(9)
	rest := &apiv1.Job{Id: 47, Revision: 190, Name: "sweep", User: "ann", Uid: 1001, State: "CANCELLED", Reason: "CancelledByUser", GpusWanted: 1, Partition: "gpu",
		Account: "vision", ArrayJobId: 42, ArrayTaskId: &last, ArrayTasks: "6-9", ArrayCount: 2, Submitted: ago(21 * time.Hour), Ended: ago(19 * time.Hour)}
	return append(append([]*apiv1.Job{train, failed}, tasks...), rest)
}

func newPast() *fakeServer {
	f := newFake()
	f.jobs = append(pastJobs(), f.jobs...)
	return f
}

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
		"sacct-badstate":    "sacct -a -s CD,BOGUS",
		"sacct-backwards":   "sacct -a -S 2026-03-14T12:00:00 -E 2026-03-13T12:00:00",
		"sacct-nouser":      "sacct -u no-such-user-here",
		"sacct-was-running": "sacct -a -s R -S 2026-03-13T19:15:00 -E 2026-03-13T19:20:00 -n -P -o jobid,state,start,end",
		"sacct-nodes":       "sacct -a -S 2026-03-01 -N n[1-3] -X -n -P -o jobid,nodelist",
		"sacct-json-states": "sacct -a -s CA -S now-3days --json",
		"sacct-helpformat":  "sacct -e",
		"seff":              "seff 40",
		"seff-task":         "seff -d 42_2",
		"seff-running":      "seff 12",
		"seff-waiting":      "seff 15",
		"seff-missing":      "seff 999",
		"seff-usage":        "seff",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.serve("/a", newPast())
			golden(t, name, w.transcript(strings.Fields(line)...))
		})
	}
}

// TestOddNamesAreExported: names with commas, quotes and what spreadsheets compute
// come back from each export as they are, and guarded from CSV without --raw.
func TestOddNamesAreExported(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.jobs = nil
	odd := []string{"a,b", `say "hi"`, "=HYPERLINK(\"http://x\")", "+1", "@x", "two\nlines", "naïve 🚀", "\u202egnp", "back\\slash", " lead"}
	for i, name := range odd {
		f.jobs = append(f.jobs, &apiv1.Job{Id: uint64(i + 1), Revision: uint64(i + 1), Name: name, User: "ann", State: "COMPLETED", Submitted: ago(time.Hour), Ended: ago(time.Minute)})
	}
	run := func(line string) string {
		w := newWorld(t)
		w.serve("/a", f)
		if code := w.run(strings.Fields(line)...); code != 0 {
			t.Fatalf("%s: exit code %d, %s", line, code, w.errs.String())
		}
		return w.out.String()
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
	f := newPast()
	f.incomplete = true
	for _, cmd := range []string{"history", "report", "sacct -a"} {
		w := newWorld(t)
		w.serve("/a", f)
		if code := w.run(strings.Fields(cmd)...); code != 0 || !strings.Contains(w.errs.String(), "still fetches") {
			t.Errorf("%s: exit code %d, %q", cmd, code, w.errs.String())
		}
	}
}

// TestHistoryBehind: who asks a coordinator that may not be current is told,
// by every command that looks back.
func TestHistoryBehind(t *testing.T) {
	t.Parallel()
	for leader, want := range map[uint64]string{0: "have no leader now", 950: "is behind the leader (at index 900 of 950)"} {
		f := newPast()
		f.behind, f.leaderIndex = true, leader
		for _, cmd := range []string{"history", "report", "sacct -a", "eff 12"} {
			w := newWorld(t)
			w.serve("/a", f)
			if code := w.run(strings.Fields(cmd)...); code != 0 || !strings.Contains(w.errs.String(), want) {
				t.Errorf("%s: exit code %d, %q", cmd, code, w.errs.String())
			}
		}
	}
}

// TestHistoryPages: any number of jobs comes, each once, over many pages and
// from another coordinator when one goes away between them.
func TestHistoryPages(t *testing.T) {
	t.Parallel()
	a, b := newFake(), newFake()
	a.jobs = nil
	const n = 12_345
	for i := range uint64(n) {
		a.jobs = append(a.jobs, &apiv1.Job{Id: i + 1, Revision: (i + 9) / 3, User: "ann", State: "COMPLETED", Submitted: ago(time.Hour), Ended: ago(time.Minute)})
	}
	b.jobs = a.jobs
	calls := 0
	a.hook = func(context.Context, string) error {
		if calls++; calls > 1 {
			return cluster.Errorf(cluster.CodeUnavailable, "gone")
		}
		return nil
	}
	w := newWorld(t)
	w.vars["BERTH_SOCKET"] = "/a,/b"
	w.serve("/a", a)
	w.serve("/b", b)
	if code := w.run("history", "--oldest-first", "-o", "csv"); code != 0 {
		t.Fatalf("exit code %d: %s", code, w.errs.String())
	}
	rows, err := csv.NewReader(strings.NewReader(w.out.String())).ReadAll()
	if err != nil || len(rows) != n+1 {
		t.Fatalf("%d rows, want %d: %v", len(rows), n+1, err)
	}
	for i, r := range rows[1:] {
		if r[0] != strconv.Itoa(i+1) {
			t.Fatalf("row %d is of job %s", i, r[0])
		}
	}
	if code := w.run("history", "-o", "json", "--limit", "6000"); code != 0 {
		t.Fatalf("exit code %d: %s", code, w.errs.String())
	}
	var list []map[string]any
	if err := json.Unmarshal(w.out.Bytes(), &list); err != nil || len(list) != 6000 {
		t.Fatalf("%d jobs: %v", len(list), err)
	}
}

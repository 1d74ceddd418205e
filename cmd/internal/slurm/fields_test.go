package slurm

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// whereJobs are jobs that ask for features, a reservation and nodes, of which
// every field of squeue -O was recorded; some of what they asked for Berth does
// not keep, and with it the fields below.
func whereJobs() []Job {
	at := func(s string) time.Time {
		t, err := time.Parse("2006-01-02T15:04:05", "2026-11-"+s)
		if err != nil {
			panic(err)
		}
		return t
	}
	j := func(id uint64, name string, with func(*Job)) Job {
		j := Job{ID: id, Name: name, User: "root", Group: "root", Partition: "main", Account: "root", QOS: "normal", State: "PENDING", Code: "PD", Cluster: "anchor",
			Nodes: 1, CPUs: 1, MinCPUs: 1, Tasked: 1, Priority: 1000, Requeue: true, Submitted: at("22T14:57:02"), Eligible: at("22T14:57:02"), LastEval: at("22T14:57:02"),
			Pending: 7 * time.Second, MemUsedMiB: 4096, Command: "/home/alice/runs/sleep.sh", Dir: "/home/alice/runs", Stdin: "/dev/null", Stdout: "/home/alice/runs/slurm-" + strconv.FormatUint(id, 10) + ".out"}
		j.Stderr = j.Stdout
		with(&j)
		return j
	}
	run := func(j *Job, node string, limit time.Duration) {
		j.State, j.Code, j.Reason, j.NodeList, j.Started, j.Ran, j.Limit, j.Pending, j.MemUsedMiB = "RUNNING", "R", "None", node, at("22T14:57:02"), 7*time.Second, limit, 0, 0
	}
	return []Job{
		j(4, "feat", func(j *Job) {
			run(j, "n1", time.Hour)
			j.Features, j.Exclude, j.CPUs, j.MinCPUs, j.MinMemMiB = "a100&ib", "n2", 2, 2, 100
		}),
		j(5, "resv", func(j *Job) { run(j, "n3", 48*time.Hour); j.Reservation = "course" }),
		j(6, "excl", func(j *Job) {
			j.Reason, j.Exclude, j.Nice, j.Priority, j.LastEval = "ReqNodeNotAvail, May be reserved for other job", "n[1-2]", 5, 995, at("22T14:57:05")
		}),
		j(7, "held", func(j *Job) {
			j.Reason, j.ReqNodes, j.Priority, j.Comment, j.Limit, j.Eligible = "JobHeldUser", "n1", 0, "hi", 5*time.Minute, time.Time{}
		}),
		j(8, "two", func(j *Job) {
			j.Reason, j.Nodes, j.CPUs, j.MinCPUs, j.Tasked, j.GPUs, j.Gres, j.Whole, j.MemUsedMiB = "Resources", 2, 4, 2, 4, 4, "gres:gpu:2", true, 8192
			j.Expected, j.LastEval = at("22T15:57:02"), at("22T14:57:05")
		}),
		j(10, "ar", func(j *Job) {
			j.Reason, j.Eligible, j.Expected = "BeginTime", at("22T15:57:02"), at("22T15:57:02")
			j.InArray(10, "3,7", 0)
		}),
	}
}

// notKept are fields whose values differ: the planned nodes of a job, and the
// number that Slurm's database gives a user in an account.
var notKept = []string{"SchedNodes", "AssocID"}

// TestSqueueFieldsAsRecorded holds every field of squeue -O against Slurm's.
func TestSqueueFieldsAsRecorded(t *testing.T) {
	seen := 0
	for block := range strings.SplitSeq(recordedText(t, "squeue_fields"), "== ") {
		name, want, _ := strings.Cut(block, "\n")
		if name == "" || slices.Contains(notKept, name) {
			continue
		}
		seen++
		lines := strings.Split(want, "\n")
		lines = slices.Delete(lines, 6, 7) // a job with GPUs in all, which Berth counts on each node
		var got strings.Builder
		if err := (&Squeue{Fields: name + ":40", Sort: "i"}).Print(&got, whereJobs(), time.Time{}); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if d := cmp.Diff(lines, strings.Split(got.String(), "\n")); d != "" {
			t.Errorf("%s differs from Slurm (-) (+ours):\n%s", name, d)
		}
	}
	if seen < 100 {
		t.Errorf("only %d fields were compared", seen)
	}
}

// TestWhereAsRecorded holds the letters and records of what jobs ask for.
func TestWhereAsRecorded(t *testing.T) {
	jobs := whereJobs()
	for i := range jobs {
		if jobs[i].Code == "R" {
			jobs[i].Ran = 5 * time.Second
		}
	}
	var got strings.Builder
	if err := (&Squeue{Format: "%i|%f|%v|%x|%l|%L|%S|%e|%Q|%p|%j", Sort: "-p,i"}).Print(&got, jobs, time.Time{}); err != nil {
		t.Fatal(err)
	}
	sorted := func(text string) []string {
		lines := slices.DeleteFunc(strings.Split(text, "\n"), func(l string) bool { return strings.HasPrefix(l, "9|") })
		slices.Sort(lines)
		return lines
	}
	if d := cmp.Diff(sorted(recordedText(t, "squeue_where")), sorted(got.String())); d != "" {
		t.Errorf("squeue differs from Slurm (-) (+ours):\n%s", d)
	}
	for file, j := range map[string]*Job{"scj_feature": &jobs[0], "scj_where": &jobs[1]} {
		var got strings.Builder
		j.Ran = map[string]time.Duration{"scj_feature": 291, "scj_where": 292}[file] * time.Second
		if err := (&Record{}).Job(&got, j); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(strings.Split(recordedText(t, file), "\n"), strings.Split(got.String(), "\n")); d != "" {
			t.Errorf("%s differs from Slurm (-) (+ours):\n%s", file, d)
		}
	}
}

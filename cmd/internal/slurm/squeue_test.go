package slurm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// at is a time of the day on which the output of Slurm was recorded.
func at(t *testing.T, clock string) time.Time {
	t.Helper()
	v, err := time.Parse("2006-01-02T15:04:05", "2026-11-21T"+clock)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// session is the cluster whose output Slurm 22.05.8 was recorded with; ran is
// how long its two running jobs ran by then.
func session(t *testing.T, ran time.Duration) []Job {
	t.Helper()
	submit, start := at(t, "10:41:16"), at(t, "10:41:19")
	j := func(id uint64, name, reason string, with ...func(*Job)) Job {
		j := Job{ID: id, Name: name, User: "root", Group: "root", Partition: "main", State: "PENDING", Code: "PD", Reason: reason,
			Nodes: 1, CPUs: 1, Submitted: submit, Eligible: submit, Command: "/home/alice/runs/sleep.sh", Dir: "/home/alice/runs", Priority: FirstPriority - int64(id)}
		if id > 6 { // a held job takes no priority
			j.Priority++
		}
		for _, f := range with {
			f(&j)
		}
		return j
	}
	run := func(node string, limit time.Duration) func(*Job) {
		return func(j *Job) {
			j.State, j.Code, j.NodeList, j.Started, j.Ran, j.Limit = "RUNNING", "R", node, start, ran, limit
		}
	}
	ok := func(j *Job) { j.Command = "/home/alice/runs/ok.sh" }
	gres := func(s string) func(*Job) { return func(j *Job) { j.Gres = "gres:gpu:" + s } }
	return []Job{
		j(1, "train", "None", run("n1", time.Hour), gres("fake:4")),
		j(2, "a-rather-long-job-name", "None", run("n2", 48*time.Hour), gres("8"), func(j *Job) { j.CPUs, j.MinMemMiB, j.Comment = 2, 1024, "hello there" }),
		j(3, "want", "Resources", gres("8"), func(j *Job) { j.Limit = 30 * time.Minute }),
		j(4, "arr", "Priority", func(j *Job) { j.Array, j.Tasks = "4_[0-5%2]", "0-5%2" }),
		j(5, "dep", "Dependency", ok),
		j(6, "held", "JobHeldUser", ok, func(j *Job) { j.Priority = 0 }),
		j(7, "later", "BeginTime", ok, func(j *Job) { j.Expected = at(t, "12:41:16") }),
		j(8, "two", "Priority", func(j *Job) { j.Nodes, j.CPUs, j.MinCPUs = 2, 4, 1 }),
		j(9, "okay", "Priority", ok),
		j(10, "notok", "Priority", func(j *Job) { j.Command = "/home/alice/runs/bad.sh" }),
	}
}

// TestSqueueAsRecorded prints the recorded session as Slurm did.
func TestSqueueAsRecorded(t *testing.T) {
	const letters = "%i|%A|%a|%b|%c|%C|%d|%D|%e|%f|%F|%g|%G|%h|%H|%I|%j|%J|%k|%K|%l|%L|%m|%M|%n|%N|%o|%O|%p|%P|%q|%Q|%r|%R|%s|%S|%t|%T|%u|%U|%v|%V|%w|%W|%x|%X|%y|%Y|%z|%Z|%%"
	for _, c := range []struct {
		file string
		ran  time.Duration
		q    Squeue
	}{
		{"squeue", 3 * time.Second, Squeue{}},
		{"squeue_l", 3 * time.Second, Squeue{Long: true}},
		{"squeue_h", 3 * time.Second, Squeue{NoHead: true}},
		{"squeue_start", 3 * time.Second, Squeue{Start: true}},
		{"squeue_t", 3 * time.Second, Squeue{States: []string{"PD"}}},
		{"squeue_tR", 3 * time.Second, Squeue{States: []string{"R"}, NoHead: true, Format: "%i %t %T"}},
		{"squeue_o1", 3 * time.Second, Squeue{Format: "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"}},
		{"squeue_o2", 4 * time.Second, Squeue{Format: letters}},
		{"squeue_O1", 4 * time.Second, Squeue{Fields: "JobID,Name,UserName,State,TimeUsed,TimeLimit,NumNodes,NodeList,ReasonList,tres-per-node,gres"}},
		{"squeue_O2", 4 * time.Second, Squeue{Fields: "jobid:10,name:.12,state:5,reason:20,priority,submittime,starttime,endtime"}},
		{"squeue_j", 4 * time.Second, Squeue{Jobs: []uint64{1, 2}}},
		{"squeue_w", 4 * time.Second, Squeue{Nodes: []string{"n1"}}},
		{"squeue_n", 4 * time.Second, Squeue{Names: []string{"train"}}},
		{"squeue_S", 4 * time.Second, Squeue{Sort: "-i"}},
	} {
		t.Run(c.file, func(t *testing.T) {
			want, err := os.ReadFile(filepath.Join("testdata", "recorded", c.file+".txt"))
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			if err := c.q.Print(&got, session(t, c.ran), at(t, "10:41:22")); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got.String(), "\n")); d != "" {
				t.Errorf("differs from Slurm (-) (+ours):\n%s", d)
			}
		})
	}
}

// TestFieldGrammarAsRecorded: sizes, suffixes and the lack of both in -O, as Slurm
// 22.05.8 wrote them.
func TestFieldGrammarAsRecorded(t *testing.T) {
	j := Job{ID: 1, Name: "a", Partition: "main", State: "RUNNING", Code: "R", Nodes: 1, CPUs: 1}
	for fields, want := range map[string]string{
		"jobid:|,name:10#,state:.8###sep###,partition:.,": "JOBID|NAME      #   STATE###sep###PARTITION\n1|a         # RUNNING###sep###main\n",
		"jobid:10:5": "JOBID     :5\n1         :5\n",
		"minmemory,jobid:.5,name:6,state:,tres-alloc:,partition,": "MIN_MEMORY          JOBIDNAME  STATETRES_ALLOCPARTITION           \n" +
			"0                       1a     RUNNINGcpu=1,node=1,billing=1main                \n",
		"state:\x1f,jobid:\x1f": "STATE\x1fJOBID\x1f\nRUNNING\x1f1\x1f\n",
		"tres-alloc:3":          "TRE\ncpu\n",
	} {
		var got strings.Builder
		q := Squeue{Fields: fields}
		if err := q.Print(&got, []Job{j}, at(t, "10:41:22")); err != nil || got.String() != want {
			t.Errorf("-O %q: %v\n%q, want\n%q", fields, err, got.String(), want)
		}
	}
}

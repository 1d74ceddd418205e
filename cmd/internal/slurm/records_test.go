package slurm

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestRecordsAsRecorded prints what scontrol show printed of the session.
func TestRecordsAsRecorded(t *testing.T) {
	jobs := session(t, 4*time.Second)
	for i := range jobs {
		j := &jobs[i]
		j.Requeue, j.LastEval = true, at(t, "10:41:21")
		j.Stdout = "/home/alice/runs/slurm-" + strconv.FormatUint(j.ID, 10) + ".out"
		j.Stderr = j.Stdout
		if j.NodeList != "" {
			j.LastEval = j.Started
		} else {
			j.MemUsedMiB = 4096
		}
	}
	jobs[1].GresUsed, jobs[1].CPUIDs = "gpu:fake:8(IDX:0-7)", "0-1"
	parts, nodes := recordedNodes(t)
	for i := range nodes {
		n := &nodes[i]
		n.Version, n.OS, n.Boot, n.Registered, n.Contact = "22.05.8", "Linux 6.1.0-18-amd64 #1 SMP PREEMPT_DYNAMIC", at(t, "04:04:14"), at(t, "10:41:16"), at(t, "10:41:16")
	}
	drained := nodes[1]
	drained.State, drained.Reason, drained.User, drained.ReasonAt = StateOf(true, true, 2, 8), "GPU 2 ECC", "root", at(t, "10:41:23")
	for _, c := range []struct {
		file  string
		print func(w *strings.Builder) error
	}{
		{"scj", func(w *strings.Builder) error { return (&Record{}).Job(w, &jobs[0]) }},
		{"scj2", func(w *strings.Builder) error { return (&Record{}).Job(w, &jobs[1]) }},
		{"scj3", func(w *strings.Builder) error { return (&Record{}).Job(w, &jobs[2]) }},
		{"scj9", func(w *strings.Builder) error { return (&Record{}).Job(w, &jobs[9]) }},
		{"scj_o", func(w *strings.Builder) error { return (&Record{OneLine: true}).Job(w, &jobs[0]) }},
		{"scj_d", func(w *strings.Builder) error { return (&Record{Detail: true}).Job(w, &jobs[1]) }},
		{"scn", func(w *strings.Builder) error { return (&Record{}).Node(w, &nodes[0]) }},
		{"scn2", func(w *strings.Builder) error { return (&Record{}).Node(w, &drained) }},
		{"scp", func(w *strings.Builder) error {
			if err := (&Record{}).Partition(w, &parts[0], nodes); err != nil {
				return err
			}
			return (&Record{}).Partition(w, &parts[1], nodes)
		}},
	} {
		t.Run(c.file, func(t *testing.T) {
			want, err := os.ReadFile(filepath.Join("testdata", "recorded", c.file+".txt"))
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			if err := c.print(&got); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got.String(), "\n")); d != "" {
				t.Errorf("differs from Slurm (-) (+ours):\n%s", d)
			}
		})
	}
}

// TestGPUsAreCounted: cards stand among the trackable resources of nodes and partitions.
func TestGPUsAreCounted(t *testing.T) {
	t.Parallel()
	n := Node{Name: "n1", State: "MIXED", CPUs: 4, CPUsUsed: 1, MemMiB: 2048, GPUs: 2, GPUsUsed: 1}
	var out strings.Builder
	if err := (&Record{}).Node(&out, &n); err != nil {
		t.Fatal(err)
	}
	if err := (&Record{}).Partition(&out, &Partition{Name: "gpu", Nodes: []string{"n1"}}, []Node{n}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"CfgTRES=cpu=4,mem=2G,billing=4,gres/gpu=2\n", "AllocTRES=cpu=1,gres/gpu=1\n", " TRES=cpu=4,mem=2G,node=1,billing=4,gres/gpu=2\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in %s", want, out.String())
		}
	}
}

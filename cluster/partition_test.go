package cluster

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func mustHosts(t testing.TB, text string) HostList {
	t.Helper()
	h, err := ParseHostList(text)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestHostLists(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		want string // names, or words of the error
	}{
		{"n1", "n1"},
		{"gpu[01-03,07],n1", "gpu01 gpu02 gpu03 gpu07 n1"},
		{" n[9-11] , n9 ", "n9 n10 n11"},
		{"r[1-2]n[0-1]-ib", "r1n0-ib r1n1-ib r2n0-ib r2n1-ib"},
		{"n[098-101]", "n098 n099 n100 n101"},
		{"n[1]", "n1"},
		{"", "error: 0 bytes"},
		{"n1,,n2", "error: must have 1 to 63"},
		{"n[1-2", "error: lacks a closing bracket"},
		{"n1]", "error: is unmatched"},
		{"n[[1]]", "error: is unmatched"},
		{"n[2-1]", "error: want a number or a range"},
		{"n[]", "error: want a number or a range"},
		{"n[a-b]", "error: want a number or a range"},
		{"n[1-99999]", "error: want a number or a range"},
		{"n[1-100][1-100][1-100]", "error: more than 16384 names"},
		{"n[" + strings.Repeat("1,", 500) + "1][" + strings.Repeat("1,", 500) + "1]", "error: more than 16384 names"},
		{"GPU1", "error: may hold a-z"},
		{strings.Repeat("n", 60) + "[1-10000]", "error: must have 1 to 63"},
		{strings.Repeat("n1,", 3000), "error: want 1 to 8192"},
	} {
		t.Run(c.text[:min(len(c.text), 30)], func(t *testing.T) {
			t.Parallel()
			h, err := ParseHostList(c.text)
			if want, bad := strings.CutPrefix(c.want, "error: "); bad {
				if e, ok := err.(*Error); !ok || e.Code != CodeInvalid || !strings.Contains(e.Msg, want) {
					t.Errorf("got %v, want %q", err, want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, n := range h.Names() {
				names = append(names, string(n))
				if !h.Holds(n) {
					t.Errorf("does not hold %s", n)
				}
			}
			if got := strings.Join(names, " "); got != c.want || h.Holds("n12") || h.String() != strings.TrimSpace(c.text) {
				t.Errorf("got %q as %q", got, h)
			}
		})
	}
	if h := mustHosts(t, "all"); !h.Holds("any") || h.Names() != nil || h.String() != "ALL" {
		t.Errorf("ALL is %+v", h)
	}
	if (HostList{}).Holds("n1") {
		t.Error("the zero list holds a node")
	}
}

// TestHostListsMeanWhatTheySay: names written one by one are the names.
func TestHostListsMeanWhatTheySay(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z0-9][a-z0-9.-]{0,6}`), 1, 8, rapid.ID[string]).Draw(t, "names")
		h, err := ParseHostList(strings.Join(names, ","))
		if len(names) == 1 && strings.EqualFold(names[0], AllNodes) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, n := range h.Names() {
			got = append(got, string(n))
		}
		if d := cmp.Diff(names, got); d != "" {
			t.Fatal(d)
		}
	})
}

func FuzzParseHostList(f *testing.F) {
	for _, s := range []string{"gpu[01-04,07],n1", "ALL", "n[1-", "a[1-9][0-9]", "n[1-16384]", ",", "[1]", "n[1]]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		h, err := ParseHostList(text)
		if err != nil {
			return
		}
		again, err := ParseHostList(h.String())
		if err != nil || !again.Equal(h) || len(again.Names()) != len(h.Names()) {
			t.Fatalf("%q is read as %q, which is read otherwise: %v", text, h, err)
		}
		if len(h.Names()) > MaxHostNames {
			t.Fatalf("%d names", len(h.Names()))
		}
		for _, n := range h.Names() {
			if err := CheckName("node", string(n)); err != nil || !h.Holds(n) {
				t.Fatalf("%q: %v", n, err)
			}
		}
	})
}

func TestPartitionCheck(t *testing.T) {
	t.Parallel()
	good := Partition{Name: "GPU_a.1-x", Nodes: mustHosts(t, "n1"), GPUTypes: []string{"A100", "T4"}, MaxTime: time.Hour, DefaultTime: time.Minute}
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, want string
		change     func(*Partition)
	}{
		{"no name", "must have 1 to 63", func(p *Partition) { p.Name = "" }},
		{"a space", "may hold letters", func(p *Partition) { p.Name = "a b" }},
		{"a dash first", "may hold letters", func(p *Partition) { p.Name = "-a" }},
		{"no nodes", "nodes: are missing", func(p *Partition) { p.Nodes = HostList{} }},
		{"too short", "max_time", func(p *Partition) { p.MaxTime, p.DefaultTime = time.Millisecond, 0 }},
		{"too long", "max_time", func(p *Partition) { p.MaxTime = 31 * 24 * time.Hour }},
		{"negative", "default_time", func(p *Partition) { p.DefaultTime = -time.Hour }},
		{"default above the most", "above max_time", func(p *Partition) { p.DefaultTime = 2 * time.Hour }},
		{"GPUs below none", "max_gpus: -1 is outside", func(p *Partition) { p.MaxGPUs = -1 }},
		{"GPUs beyond counting", "max_gpus", func(p *Partition) { p.MaxGPUs = 1_000_001 }},
		{"too short for sessions", "session_idle", func(p *Partition) { p.SessionIdle = time.Millisecond }},
		{"too long for sessions", "session_idle", func(p *Partition) { p.SessionIdle = 15 * 24 * time.Hour }},
		{"types out of order", "out of order", func(p *Partition) { p.GPUTypes = []string{"T4", "A100"} }},
		{"an empty type", "gpu_types", func(p *Partition) { p.GPUTypes = []string{""} }},
		{"lends to itself", "lend_to: GPU_a.1-x is the partition itself", func(p *Partition) { p.Lend.To = []string{"b", p.Name} }},
		{"lends twice", "or named twice", func(p *Partition) { p.Lend.To = []string{"b", "b"} }},
		{"lends to no name", "lend_to: partition", func(p *Partition) { p.Lend.To = []string{""} }},
		{"lends to too many", "lend_to: names 17", func(p *Partition) { p.Lend.To = make([]string, 17) }},
		{"short beyond an hour", "lend_short", func(p *Partition) { p.Lend.Short = time.Hour + 1 }},
		{"short below a second", "lend_short", func(p *Partition) { p.Lend.Short = time.Second - 1 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := good
			c.change(&p)
			if err := p.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestPartOfANode(t *testing.T) {
	t.Parallel()
	n := &Node{ID: "n1", GPUs: []GPU{{ID: "a", Type: "A100"}, {ID: "b", Type: "T4"}}}
	all := Partition{Nodes: mustHosts(t, "n[1-2]")}
	if all.Part(n) != n {
		t.Error("a whole node is not itself")
	}
	some := Partition{Nodes: mustHosts(t, "ALL"), GPUTypes: []string{"T4"}}
	if got := some.Part(n); len(got.GPUs) != 1 || got.GPUs[0].ID != "b" || len(n.GPUs) != 2 || n.GPUs[0].ID != "a" {
		t.Errorf("part %+v of %+v", got, n)
	}
	none := Partition{Nodes: mustHosts(t, "n2")}
	if none.Part(n) != nil {
		t.Error("a foreign node has a part")
	}
}

func TestPartitionLimit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		max, standard, asked, want time.Duration
		bad                        bool
	}{
		{},
		{asked: time.Hour, want: time.Hour},
		{standard: time.Minute, want: time.Minute},
		{max: time.Hour, want: time.Hour},
		{max: time.Hour, standard: time.Minute, want: time.Minute},
		{max: time.Hour, asked: time.Hour, want: time.Hour},
		{max: time.Hour, asked: time.Hour + 1, bad: true},
	} {
		p := Partition{Name: "p", MaxTime: c.max, DefaultTime: c.standard}
		if got, err := p.Limit(c.asked); got != c.want || (err != nil) != c.bad {
			t.Errorf("%+v: %s, %v", c, got, err)
		}
	}
}

func TestPartitionSize(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		most        int64
		gpus, nodes int
		bad         bool
	}{
		{gpus: 1000}, {most: 4}, {most: 4, gpus: 4}, {most: 4, gpus: 2, nodes: 2}, {most: 4, gpus: 5, bad: true}, {most: 4, gpus: 2, nodes: 3, bad: true},
	} {
		p := Partition{Name: "p", MaxGPUs: c.most}
		if err := p.CheckSize(&Spec{GPUs: c.gpus, Nodes: c.nodes}); (err != nil) != c.bad {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestLoansAreGivenBackAtAnyTime: what is on loan counts among no preemptions, and is given
// back whatever those say, while the job runs or starts.
func TestLoansAreGivenBackAtAnyTime(t *testing.T) {
	t.Parallel()
	j := &Job{State: JobRunning, Spec: &Spec{Checkpoint: Checkpoint{Signal: "USR1", Grace: time.Second}}, Attempts: []Attempt{
		{State: JobPreempted, Preempt: &PreemptRequest{At: 1_000_000}},
		{State: JobPreempted, Loan: "serve", Preempt: &PreemptRequest{At: 5_000_000}},
		{State: JobRunning, Loan: "serve"},
	}}
	if last, n := j.Preempted(); last != 1_000_000 || n != 1 {
		t.Errorf("preempted %d times, last at %d", n, last)
	}
	if last, n := j.GaveBack(); last != 5_000_000 || n != 1 {
		t.Errorf("gave back %d times, last at %d", n, last)
	}
	if j.OnLoan() != "serve" || j.Unreturnable() != "" || j.Unpreemptible(6_000_000) == "" {
		t.Errorf("on loan from %q: %q, %q", j.OnLoan(), j.Unreturnable(), j.Unpreemptible(6_000_000))
	}
	for name, change := range map[string]func(*Job){
		"it has nothing on loan": func(j *Job) { j.Attempts[2].Loan = "" },
		"it is COMPLETING":       func(j *Job) { j.State = JobCompleting },
		"it is being cancelled":  func(j *Job) { j.Cancel = &CancelRequest{} },
		"it is being preempted":  func(j *Job) { j.Attempts[2].Preempt = &PreemptRequest{} },
		"":                       func(j *Job) { j.State = JobStarting },
	} {
		o := j.Clone()
		change(o)
		if got := o.Unreturnable(); got != name {
			t.Errorf("%q, want %q", got, name)
		}
	}
}

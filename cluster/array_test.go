package cluster

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster/draws"
)

var _ = draws.Fixed()

func TestParseArray(t *testing.T) {
	for _, c := range []struct {
		in, want string
		n        int
	}{
		{"7", "7", 1},
		{"0-3", "0-3", 4},
		{"1-100%4", "1-100%4", 100},
		{"0-8:2", "0-8:2", 5},
		{"0-9:3", "0-9:3", 4},
		{"1,5,9-12", "1,5,9-12", 6},
		{"3,1,2,2,1-3", "1-3", 3},
		{"5-7,6-9%2", "5-9%2", 5},
		{"0-4:4", "0,4", 2},
		{"10-12:7", "10", 1},
		{"4194303", "4194303", 1},
		{"0-4194303", "0-4194303", 1 << 22},
		{"007", "7", 1},
	} {
		a, err := ParseArray(c.in)
		if err != nil {
			t.Errorf("%s: %v", c.in, err)
			continue
		}
		if a.String() != c.want || a.Tasks.Len() != c.n {
			t.Errorf("%s: %s of %d tasks, want %s of %d", c.in, a, a.Tasks.Len(), c.want, c.n)
		}
	}
}

func TestParseArrayRefuses(t *testing.T) {
	for in, want := range map[string]string{
		"":                                 "no task number",
		"1-":                               "has no end",
		"-5":                               "no task number",
		"5-1":                              "counts down",
		"1-10%0":                           "number of tasks that may run at once",
		"1-10%":                            "number of tasks that may run at once",
		"1-10%-3":                          "number of tasks that may run at once",
		"1-10%+3":                          "number of tasks that may run at once",
		"1-10%4%4":                         "number of tasks that may run at once",
		"1-10:0":                           "step",
		"7:2":                              "step",
		"1,,2":                             "no task number",
		"1-2-3":                            "has no end",
		"a":                                "no task number",
		"+1":                               "no task number",
		"1-10000000":                       "above 4194303",
		"4294967296":                       "no task number",
		"99999999999999999999":             "no task number",
		strings.Repeat("1,", maxArrayText): "bytes of text",
	} {
		_, err := ParseArray(in)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v, want ...%s...", in, err, want)
		}
	}
}

// TestTasksAreASet holds every question to a set against a sorted list.
func TestTasksAreASet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) (Tasks, []uint32) {
			var runs []TaskRun
			var ids []uint32
			for range rapid.IntRange(1, 5).Draw(t, name+" runs") {
				first := rapid.Uint32Range(0, 60).Draw(t, "first")
				r := TaskRun{First: first, Last: first + rapid.Uint32Range(0, 20).Draw(t, "more"), Step: rapid.Uint32Range(1, 5).Draw(t, "step")}
				runs = append(runs, r)
				for id := r.First; id <= r.Last; id += r.Step {
					ids = append(ids, id)
				}
			}
			slices.Sort(ids)
			set, err := NewTasks(runs)
			if err != nil {
				t.Fatal(err)
			}
			return set, slices.Compact(ids)
		}
		a, want := draw("a")
		if a.Len() != len(want) || a.Min() != want[0] || a.Max() != want[len(want)-1] {
			t.Fatalf("%s: %d tasks from %d to %d, want %v", a, a.Len(), a.Min(), a.Max(), want)
		}
		for i, id := range want {
			if a.At(i) != id {
				t.Fatalf("%s: task %d is %d, want %d", a, i, a.At(i), id)
			}
		}
		for id := range uint32(100) {
			rank, ok := a.Rank(id)
			if i, has := slices.BinarySearch(want, id); ok != has || has && rank != i {
				t.Fatalf("%s: rank of %d is %d, %t; want %d, %t", a, id, rank, ok, i, has)
			}
		}
		again, err := ParseTasks(a.String())
		if err != nil || !again.Equal(a) {
			t.Fatalf("%s reads as %s: %v", a, again, err)
		}
		b, other := draw("b")
		var both []int
		for i, id := range want {
			if slices.Contains(other, id) {
				both = append(both, i)
			}
		}
		if got := ranks(a.In(&b)); !slices.Equal(got, both) {
			t.Fatalf("%s in %s: ranks %v, want %v", a, b, got, both)
		}
	})
}

func ranks(spans []Span) []int {
	var out []int
	for _, s := range spans {
		for k := s.From; k <= s.To; k++ {
			out = append(out, k)
		}
	}
	return out
}

// TestSpansAreSets holds the arithmetic of spans against that of lists.
func TestSpansAreSets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) ([]Span, []int) {
			set := rapid.SliceOfDistinct(rapid.IntRange(0, 30), rapid.ID).Draw(t, name)
			slices.Sort(set)
			var spans []Span
			for _, k := range set {
				spans = SpanOr(spans, []Span{{k, k}})
			}
			if got := ranks(spans); !slices.Equal(got, set) {
				t.Fatalf("%v makes %v", set, spans)
			}
			return spans, set
		}
		a, as := draw("a")
		b, bs := draw("b")
		var and, sub []int
		for _, k := range as {
			if slices.Contains(bs, k) {
				and = append(and, k)
			} else {
				sub = append(sub, k)
			}
		}
		or := slices.Concat(sub, bs)
		slices.Sort(or)
		if got := ranks(SpanAnd(a, b)); !slices.Equal(got, and) {
			t.Fatalf("%v and %v: %v, want %v", a, b, got, and)
		}
		if got := ranks(SpanSub(a, b)); !slices.Equal(got, sub) {
			t.Fatalf("%v without %v: %v, want %v", a, b, got, sub)
		}
		if got := ranks(SpanOr(a, b)); !slices.Equal(got, or) || len(SpanOr(a, b)) > 0 && SpanLen(SpanOr(a, b)) != len(or) {
			t.Fatalf("%v or %v: %v, want %v", a, b, got, or)
		}
		for k, want := range as {
			if SpanRank(a, k) != want || !SpanHas(a, want) {
				t.Fatalf("%v: rank %d is %d, want %d", a, k, SpanRank(a, k), want)
			}
		}
		for k := range 32 {
			if SpanHas(a, k) != slices.Contains(as, k) {
				t.Fatalf("%v: has %d", a, k)
			}
		}
	})
}

func FuzzParseArray(f *testing.F) {
	for _, s := range []string{"1-100%4", "0-9:3", "1,5,9-12", "5-1", "1-", "%4", "1-10%0", "0-4194303", "3,2,1,1", "1-2:4294967295", "1-4294967295"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := ParseArray(s)
		if err != nil {
			return
		}
		if a.Tasks.Len() < 1 || a.Tasks.Max() > MaxTaskID || a.Throttle < 0 || a.Throttle > MaxThrottle {
			t.Fatalf("%q: %d tasks up to %d, %d at once", s, a.Tasks.Len(), a.Tasks.Max(), a.Throttle)
		}
		b, err := ParseArray(a.String())
		if err != nil || !b.Tasks.Equal(a.Tasks) || b.Throttle != a.Throttle {
			t.Fatalf("%q is %s, which reads as %v: %v", s, a, b, err)
		}
	})
}

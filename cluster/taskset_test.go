package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// naive is the numbers of runs, one by one.
func naive(runs []TaskRun) (ids []uint32) {
	has := map[uint32]bool{}
	for _, r := range runs {
		for id := r.First; id <= r.Last; id += max(1, r.Step) {
			if !has[id] {
				has[id], ids = true, append(ids, id)
			}
		}
	}
	slices.Sort(ids)
	return ids
}

// naiveRuns are the longest runs of numbers, from the first on.
func naiveRuns(ids []uint32) (text string) {
	for i := 0; i < len(ids); {
		k := i
		for k+1 < len(ids) && ids[k+1]-ids[k] == ids[min(i+1, len(ids)-1)]-ids[i] {
			k++
		}
		step := uint32(1)
		if k > i {
			step = ids[i+1] - ids[i]
		}
		text += fmt.Sprintf("%d-%d:%d ", ids[i], ids[k], step)
		i = k + 1
	}
	return text
}

func runsText(t *Tasks) (text string) {
	for _, r := range t.Runs() {
		text += fmt.Sprintf("%d-%d:%d ", r.First, r.Last, r.Step)
	}
	return text
}

func drawRuns(t *rapid.T, what string) (runs []TaskRun) {
	for range rapid.IntRange(1, 6).Draw(t, what) {
		first := rapid.Uint32Range(0, 40).Draw(t, "first")
		runs = append(runs, TaskRun{First: first, Last: first + rapid.Uint32Range(0, 30).Draw(t, "length"), Step: rapid.Uint32Range(0, 7).Draw(t, "step")})
	}
	return runs
}

// TestTasksAgainstNaive: sets of tasks, what two have in common and some ranks of
// one are what going through the numbers one by one gives, in the same runs.
func TestTasksAgainstNaive(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		x, y := drawRuns(t, "runs"), drawRuns(t, "others")
		given := slices.Clone(x)
		a, err := NewTasks(x)
		if err != nil || !slices.Equal(given, x) {
			t.Fatal(err, x)
		}
		b, err := NewTasks(y)
		if err != nil {
			t.Fatal(err)
		}
		ids, others := naive(x), naive(y)
		if got, want := runsText(&a), naiveRuns(ids); got != want || a.Len() != len(ids) {
			t.Fatalf("%v: runs %s with %d numbers, want %s with %d", x, got, a.Len(), want, len(ids))
		}
		var want []Span
		for k, id := range ids {
			if rank, ok := a.Rank(id); a.At(k) != id || !ok || rank != k {
				t.Fatalf("%v: number %d is at %d, %t", x, id, rank, ok)
			}
			if !slices.Contains(others, id) {
				continue
			}
			if n := len(want); n > 0 && want[n-1].To == k-1 {
				want[n-1].To = k
			} else {
				want = append(want, Span{k, k})
			}
		}
		got := a.In(&b)
		if !slices.Equal(got, want) {
			t.Fatalf("%v in %v: %v, want %v", y, x, got, want)
		}
		if most := rapid.IntRange(0, 6).Draw(t, "at most"); len(want) > 0 {
			if some, ok := a.InAtMost(&b, most); ok != (len(want) <= most) || ok && !slices.Equal(some, want) {
				t.Fatalf("at most %d of %v: %v, %t", most, want, some, ok)
			}
		}
		var both []uint32
		for _, sp := range want {
			both = append(both, ids[sp.From:sp.To+1]...)
		}
		if s := a.Select(want); runsText(&s) != naiveRuns(both) || s.Len() != len(both) {
			t.Fatalf("%v of %v: %s, want %s", want, x, runsText(&s), naiveRuns(both))
		}
	})
}

// TestListsOfTasksCostLittle: the longest text of ranges that lie over each other,
// or that are as large as can be, is read in a moment. Numbers one by one would
// take minutes.
func TestListsOfTasksCostLittle(t *testing.T) {
	t.Parallel()
	long := func(part func(i int) string) string {
		var b strings.Builder
		for i := 0; b.Len() < maxArrayText-32; i++ {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(part(i))
		}
		return b.String()
	}
	began := time.Now()
	for name, tc := range map[string]struct {
		text string
		n    int // 0 when it is refused
	}{
		"one range again and again": {long(func(int) string { return "2-4194303" }), MaxTaskID - 1},
		"ranges in each other":      {long(func(i int) string { return fmt.Sprintf("%d-%d", i, MaxTaskID-i) }), MaxTaskID + 1},
		"every second":              {long(func(i int) string { return fmt.Sprintf("%d-4194302:2", 2*(i%50)) }), (MaxTaskID + 1) / 2},
		"each step":                 {long(func(i int) string { return fmt.Sprintf("0-4194303:%d", i+2) }), 0},
		"each remainder":            {long(func(i int) string { return fmt.Sprintf("%d-4194303:%d", i%200, 200+i/200) }), 0},
		"numbers":                   {long(func(i int) string { return fmt.Sprint(2 * (i % 30_000)) }), 30_000},
	} {
		got, err := ParseTasks(tc.text)
		if (err != nil) != (tc.n == 0) || got.Len() != tc.n {
			t.Errorf("%s: %d numbers, want %d (%v)", name, got.Len(), tc.n, err)
		}
	}
	two, err := ParseTasks("0,4194303")
	if err != nil {
		t.Fatal(err)
	}
	all, err := ParseTasks("0-4194303")
	if err != nil {
		t.Fatal(err)
	}
	odd, err := ParseTasks("1-4194303:2")
	if err != nil {
		t.Fatal(err)
	}
	for range 10_000 {
		if got := two.In(&odd); !slices.Equal(got, []Span{{1, 1}}) {
			t.Fatal(got)
		}
		if got := odd.In(&all); !slices.Equal(got, []Span{{0, odd.Len() - 1}}) {
			t.Fatal(got)
		}
		if _, ok := all.InAtMost(&odd, 100); ok {
			t.Fatal("two million ranges are at most 100")
		}
	}
	if d := time.Since(began); d > 30*time.Second {
		t.Errorf("took %s", d)
	}
}

func BenchmarkParseTasks(b *testing.B) {
	text := strings.Repeat("2-4194303,", maxArrayText/10-1) + "7"
	for b.Loop() {
		if _, err := ParseTasks(text); err != nil {
			b.Fatal(err)
		}
	}
}

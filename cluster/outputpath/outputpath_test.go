package outputpath

import (
	"strings"
	"testing"
)

func TestExpand(t *testing.T) {
	t.Parallel()
	seven, step := uint32(7), 3
	alone := Names{Job: 42, Name: "train", User: "ann", Node: "n1"}
	task := Names{Job: 49, Array: 42, Task: &seven, Name: "train", User: "ann", Node: "n1"}
	inStep := Names{Job: 42, Step: &step, Name: "train", User: "ann", Node: "n2", NodeRank: 1, Rank: "12"}
	for _, c := range []struct {
		names         Names
		pattern, want string
	}{
		{alone, "slurm-%j.out", "slurm-42.out"},
		{alone, "%x-%j-%u-%N", "train-42-ann-n1"},
		{alone, "%A_%a", "42_4294967294"},
		{alone, "%6j.%3a", "000042.4294967294"},
		{alone, "%J/%A/%t-%n-%s", "42/42/0-0-0"},
		{alone, "%0j %00j %1j", "42 42 42"},
		{alone, "%99j", "0000000042"},
		{alone, "%99999999999999999999j", "0000000042"},
		{alone, "%5x%5u%5N", "trainannn1"},
		{alone, "100%%", "100%"},
		{alone, "100%%j", "100%j"},
		{alone, "%5%", "%"},
		{alone, "a%zb%", "a%zb%"},
		{alone, "%05q%j", "%05q42"},
		{alone, "%12", "%12"},
		{alone, "%é", "%é"},
		{alone, `logs\%j\x`, "logs%jx"},
		{alone, `\\%j`, "%j"},
		{alone, "plain", "plain"},
		{alone, "", ""},
		{task, "slurm-%A_%a.out", "slurm-42_7.out"},
		{task, "%A_%4a-%j", "42_0007-49"},
		{inStep, "%J.%s.%n.%t", "42.3.3.1.12"},
		{inStep, "%4t.%3s.%8J", "0012.003.42.3"},
	} {
		if got := Expand(c.pattern, &c.names); got != c.want {
			t.Errorf("%q of job %d becomes %q, want %q", c.pattern, c.names.Job, got, c.want)
		}
	}
}

// FuzzExpand: no pattern is lost or read twice.
func FuzzExpand(f *testing.F) {
	for _, s := range []string{"slurm-%A_%a.out", "%", "%%", "%5", "%99999999999999999999j", `\%j`, "%%%j%", "%é%5x", "a/b%4a.txt"} {
		f.Add(s, "na%jme")
	}
	f.Fuzz(func(t *testing.T, pattern, name string) {
		n := Names{Job: 42, Name: name, User: "u", Node: "n"}
		got := Expand(pattern, &n)
		switch {
		case strings.Contains(pattern, `\`):
			if got != strings.ReplaceAll(pattern, `\`, "") {
				t.Fatalf("%q becomes %q", pattern, got)
			}
		case !strings.Contains(pattern, "%") && got != pattern:
			t.Fatalf("%q becomes %q", pattern, got)
		}
		// Each part by itself is what it is in company, unless the cut is in a pattern.
		for i := range pattern {
			if pattern[i] == '/' && !strings.Contains(pattern, `\`) && !strings.HasSuffix(strings.TrimRight(pattern[:i], "0123456789"), "%") {
				if want := Expand(pattern[:i], &n) + Expand(pattern[i:], &n); got != want {
					t.Fatalf("%q becomes %q, its parts %q", pattern, got, want)
				}
			}
		}
	})
}

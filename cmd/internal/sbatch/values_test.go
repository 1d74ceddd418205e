package sbatch

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster/draws"
)

var _ = draws.Fixed()

func TestParseTime(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]time.Duration{
		"90": 90 * time.Minute, "5:30": 5*time.Minute + 30*time.Second, "90:90": 91*time.Minute + 30*time.Second,
		"1:30:00": 90 * time.Minute, "2-0": 48 * time.Hour, "1-30": 54 * time.Hour, "1-12:30": 36*time.Hour + 30*time.Minute,
		"1-2:3:4": 26*time.Hour + 3*time.Minute + 4*time.Second, "00:00:01": time.Second, "0": 0, "UNLIMITED": 0, "infinite": 0, "-1": 0,
		"2147483647": maxTime + 1,
	} {
		got, limited, err := ParseTime(in)
		if err != nil || got != want || limited != (want > 0) {
			t.Errorf("%s: %v, %t, %v; want %v", in, got, limited, err, want)
		}
	}
	for _, in := range []string{"", "2h", "1:2:3:4", "-", "1-", "-5", "1:", ":1", "1-2-3", "1.5", " 5", "5 ", "+5", "99999999999"} {
		if got, _, err := ParseTime(in); err == nil {
			t.Errorf("%q: %v, want an error", in, got)
		}
	}
}

func TestParseMem(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]int64{
		"4096": 4096, "16G": 16384, "16g": 16384, "16GB": 16384, "2T": 2 << 20, "1500K": 2, "1024k": 1, "0": 0, "7M": 7, "7mb": 7,
	} {
		if got, err := ParseMem(in); err != nil || got != want {
			t.Errorf("%s: %d, %v; want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "G", "1.5G", "-1", "10X", "1GG", "1 G", "99999999999999999999"} {
		if got, err := ParseMem(in); err == nil {
			t.Errorf("%q: %d, want an error", in, got)
		}
	}
}

func TestParseNodes(t *testing.T) {
	t.Parallel()
	for in, want := range map[string][2]int64{"1": {1, 1}, "2-4": {2, 4}, "1k": {1024, 1024}, "0": {0, 0}, "3-3": {3, 3}} {
		least, most, err := ParseNodes(in)
		if d := cmp.Diff(want, [2]int64{least, most}); d != "" || err != nil {
			t.Errorf("%s: %v %s", in, err, d)
		}
	}
	for _, in := range []string{"", "2-1", "1,3", "a", "1-", "-1", "n1"} {
		if _, _, err := ParseNodes(in); err == nil {
			t.Errorf("%q: want an error", in)
		}
	}
}

func TestParseGres(t *testing.T) {
	t.Parallel()
	for in, want := range map[string][]Gres{
		"gpu": {{"gpu", "", 1}}, "gpu:2": {{"gpu", "", 2}}, "gpu:a100": {{"gpu", "a100", 1}}, "gpu:a100:4": {{"gpu", "a100", 4}},
		"gres:gpu:1": {{"gpu", "", 1}}, "none": nil, "gpu:1,nvme:2k": {{"gpu", "", 1}, {"nvme", "", 2048}}, "gpu:0": {{"gpu", "", 0}},
	} {
		got, err := ParseGres(in)
		if d := cmp.Diff(want, got); d != "" || err != nil {
			t.Errorf("%s: %v %s", in, err, d)
		}
	}
	for _, in := range []string{"", "gpu=2", "gpu:a:b:c", "gpu:", ":1", "gpu:a100:x", "gpu:1,"} {
		if got, err := ParseGres(in); err == nil {
			t.Errorf("%q: %v, want an error", in, got)
		}
	}
}

func TestParseArray(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]Array{
		"0-9":       {Ranges: []Range{{0, 9, 1}}},
		"7":         {Ranges: []Range{{7, 7, 1}}},
		"0-99%20":   {Ranges: []Range{{0, 99, 1}}, AtOnce: 20},
		"1,3,5-9:2": {Ranges: []Range{{1, 1, 1}, {3, 3, 1}, {5, 9, 2}}},
	} {
		got, err := ParseArray(in)
		if d := cmp.Diff(want, got); d != "" || err != nil {
			t.Errorf("%s: %v %s", in, err, d)
		}
	}
	for _, in := range []string{"", "9-1", "x", "1-", "-3", "1-5:0", "1:2", "1%x", "4000001", "1,,2"} {
		if got, err := ParseArray(in); err == nil {
			t.Errorf("%q: %v, want an error", in, got)
		}
	}
}

func TestParseSignal(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]Signal{
		"USR1@120": {"USR1", false, 2 * time.Minute}, "B:SIGTERM": {"TERM", true, time.Minute}, "RB:10@5": {"USR1", true, 5 * time.Second}, "40@5": {"40", false, 5 * time.Second},
	} {
		got, err := ParseSignal(in)
		if d := cmp.Diff(want, got); d != "" || err != nil {
			t.Errorf("%s: %v %s", in, err, d)
		}
	}
	for _, in := range []string{"", "FOO", "USR1@x", "USR1@70000", "X:USR1", "0", "65", ":USR1"} {
		if _, err := ParseSignal(in); err == nil {
			t.Errorf("%q: want an error", in)
		}
	}
}

func TestPatterns(t *testing.T) {
	t.Parallel()
	for in, want := range map[string][2]string{
		"slurm-%j.out": {"j", ""}, "%A_%4a-%x.%u": {"Aaxu", ""}, "%%%y%j%j": {"%j", "y"}, `\%j`: {"", ""}, "%": {"", ""}, "%12": {"", ""}, "": {"", ""},
	} {
		known, unknown := Patterns(in)
		if d := cmp.Diff(want, [2]string{known, unknown}); d != "" {
			t.Errorf("%q: %s", in, d)
		}
	}
}

// TestTablesAgree: every option of sbatch has a rule, and no other has.
func TestTablesAgree(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for i, o := range slurmOptions {
		seen[o.Name] = true
		if _, ok := rules()[o.Name]; !ok {
			t.Errorf("--%s has no rule", o.Name)
		}
		if i > 0 && slurmOptions[i-1].Name >= o.Name {
			t.Errorf("--%s is out of order", o.Name)
		}
	}
	for name, r := range rules() {
		if !seen[name] {
			t.Errorf("a rule for --%s, which is no option", name)
		}
		if r.fate == Ignored && r.note == "" || r.fate == Refused && (r.note == "" || r.fix == "") {
			t.Errorf("--%s: %s without a word", name, r.fate)
		}
	}
	for _, v := range envOptions {
		slurmOption(v.option)
	}
	for own, names := range ownReplace {
		for _, n := range names {
			if !seen[n] {
				t.Errorf("--%s replaces --%s, which is no option", own, n)
			}
		}
	}
}

// TestWordsComeBack: a directive written with quotes reads as the words it was
// written from.
func TestWordsComeBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOf(rapid.StringMatching(`[!-~ ]{1,12}`)).Draw(t, "words")
		var b strings.Builder
		for _, w := range words {
			b.WriteString(` "` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(w) + `"`)
		}
		got, err := splitDirective(b.String(), 3)
		if err != nil {
			t.Fatal(err)
		}
		var texts []string
		for _, w := range got {
			if w.Line != 3 {
				t.Fatalf("line %d", w.Line)
			}
			texts = append(texts, w.Text)
		}
		if d := cmp.Diff(words, texts); d != "" && len(words)+len(texts) > 0 {
			t.Errorf("%s: %s", b.String(), d)
		}
	})
}

// TestLastWins: of settings of one option the strongest source's last counts,
// whatever the order they are handed over in.
func TestLastWins(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "settings")
		var set []Setting
		want, best := "", Source(0)
		for i := range n {
			s := Setting{Name: "job-name", Value: string(rune('a' + i)), From: Origin{Source: Source(rapid.IntRange(0, 3).Draw(t, "source")), Line: i}}
			set = append(set, s)
			if s.From.Source >= best {
				want, best = s.Value, s.From.Source
			}
		}
		req, outcomes := Resolve(set, nil)
		honoured := 0
		for _, o := range outcomes {
			if o.Fate == Honoured {
				honoured++
			}
		}
		if req.Name != want || honoured != 1 || len(outcomes) != n {
			t.Errorf("%q, want %q; %v", req.Name, want, outcomes)
		}
	})
}

func TestFromEnv(t *testing.T) {
	t.Parallel()
	got := FromEnv([]string{"SBATCH_PARTITION=gpu", "SBATCH_REQUEUE=1", "SBATCH_NOTHING=x", "PATH=/bin", "SBATCH_MEM_PER_NODE=4G"})
	var text []string
	for _, s := range got {
		text = append(text, s.From.String()+" "+written(s))
	}
	if d := cmp.Diff([]string{"$SBATCH_MEM_PER_NODE --mem=4G", "$SBATCH_PARTITION --partition=gpu", "$SBATCH_REQUEUE --requeue"}, text); d != "" {
		t.Error(d)
	}
}

func FuzzLint(f *testing.F) {
	for folder := range corpora {
		for _, data := range corpus(f, folder) {
			if len(data) < 2000 {
				f.Add(data)
			}
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r := Lint(data, berthFlags)
		for _, x := range r.Findings {
			if x.Option == "" || x.Fate == Refused && x.Note == "" {
				t.Errorf("finding without words: %+v", x)
			}
		}
		if r.Request != nil && (r.Request.CPUs < 0 || r.Request.MemMiB < 0 || r.Request.GPUs < 0 || r.Request.TimeLimit < 0) {
			t.Errorf("negative amounts: %+v", r.Request)
		}
	})
}

func FuzzValues(f *testing.F) {
	for _, s := range []string{"1-2:3:4", "90:90", "16GB", "1500K", "gpu:a100:2,gpu", "0-99:3%20", "RB:USR1@60", "%4j-%%-%y", "1-4k", "a100:2"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if d, limited, err := ParseTime(s); err == nil && (d < 0 || limited != (d > 0)) {
			t.Errorf("time %q: %v", s, d)
		}
		if n, err := ParseMem(s); err == nil && n < 0 {
			t.Errorf("memory %q: %d", s, n)
		}
		if a, err := ParseArray(s); err == nil && (len(a.Ranges) == 0 || a.Ranges[0].First > a.Ranges[0].Last) {
			t.Errorf("array %q: %+v", s, a)
		}
		if least, most, err := ParseNodes(s); err == nil && (least < 0 || most < least) {
			t.Errorf("nodes %q: %d to %d", s, least, most)
		}
		for _, parse := range []func(string) ([]Gres, error){ParseGres, ParseGPUs} {
			list, err := parse(s)
			for _, g := range list {
				if err == nil && (g.Name == "" || g.Count < 0) {
					t.Errorf("resources %q: %+v", s, list)
				}
			}
		}
		if sig, err := ParseSignal(s); err == nil && (sig.Name == "" || sig.Before < 0) {
			t.Errorf("signal %q: %+v", s, sig)
		}
		if known, unknown := Patterns(s); len(known) > len(s) || len(unknown) > len(s) {
			t.Errorf("patterns %q: %q, %q", s, known, unknown)
		}
		if name := CleanName(s); len(name) > 63 || strings.ContainsAny(name, "/\n\x00") {
			t.Errorf("name %q: %q", s, name)
		}
	})
}

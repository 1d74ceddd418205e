package model

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestProgram: commands of one program, and such as are not.
func TestProgram(t *testing.T) {
	t.Parallel()
	of := func(command ...string) string { return Features{}.Program("1000", command) }
	base := of("python", "train.py", "--lr", "0.1", "--seed", "3", "--batch-size", "64", "--output_dir", "runs/lr0.1-s3", "data")
	for _, same := range [][]string{
		{"python", "train.py", "--lr", "1e-4", "--seed", "4", "--batch-size", "64", "--output_dir", "runs/lr.1-s4", "data"},
		{"python", "train.py", "--lr", "-3", "--seed", "4,5", "--batch-size", "64", "--output_dir", "runs2/lr.-s", "data"},
	} {
		if of(same...) != base {
			t.Errorf("another program: %q", same)
		}
	}
	for _, other := range [][]string{
		{"python", "train.py", "--lr", "0.1", "--seed", "3", "--batch-size", "128", "--output_dir", "runs/lr0.1-s3", "data"},
		{"python", "train.py", "--lr", "0.1", "--seed", "3", "--batch-size", "64", "--output_dir", "runs/lr0.1-s3", "data2"},
		{"python", "train.py", "--lr", "0.1", "--seed", "nan", "--batch-size", "64", "--output_dir", "runs/lr0.1-s3", "data"},
		{"python", "train.py", "--momentum", "0.1", "--seed", "3", "--batch-size", "64", "--output_dir", "runs/lr0.1-s3", "data"},
		{"python", "test.py", "--lr", "0.1", "--seed", "3", "--batch-size", "64", "--output_dir", "runs/lr0.1-s3", "data"},
		{"python", "train.py"}, {},
	} {
		if of(other...) == base {
			t.Errorf("the same program: %q", other)
		}
	}
	for _, pair := range [][2]string{
		{"sh -c 'python x.py --lr=0.1; echo 1'", "sh -c 'python x.py --lr=7; echo 2'"},
		{"x lr=0.1 wd=3", "x lr=2 wd=1e-2"},
		{"x 1 2", "x 3 4"},
	} {
		if of("sh", "-c", pair[0]) != of("sh", "-c", pair[1]) {
			t.Errorf("another program: %q", pair)
		}
	}
	for _, pair := range [][2]string{{"x batch=1", "x batch=2"}, {"x --hidden-dim=8", "x --hidden-dim=16"}, {"x -b 1", "x -b 2"}, {"x --n_layer 1", "x --n_layer 2"}} {
		if of(pair[0]) == of(pair[1]) {
			t.Errorf("the same program: %q", pair)
		}
	}
	if long := strings.Repeat("word ", maxProgramText/5+1); of(long+"0.1") == of(long+"0.2") || of("0.1 "+long) != of("0.2 "+long) {
		t.Error("numbers of a long text")
	}
	if of("x") == (Features{}).Program("1001", []string{"x"}) || of("x") == (Features{}).Signature("1000\x00x") {
		t.Error("another user's, or a signature")
	}
	if (Features{Source: SourceCatalogue, Model: "a", Run: Run{Steps: 3}}).Program("1", nil) != (Features{Source: SourceCatalogue, Model: "a", Declared: Declared{GPUMemMiB: 5}}).Program("1", nil) {
		t.Error("steps, or what is declared, make another program")
	}
}

// TestProgramsTakeAnyWords: whatever the words, a number in place of another after a flag
// that is of no size changes nothing, and in place of one of a size it does.
func TestProgramsTakeAnyWords(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOfN(rapid.StringMatching(`[ -~]{0,12}`), 0, 5).Draw(t, "words")
		a, b := rapid.Float64Range(-1e9, 1e9).Draw(t, "a"), rapid.IntRange(0, 1e6).Draw(t, "b")
		with := func(flag string, v any) string {
			return Features{}.Program("1", append(strings.Fields(strings.Join(words, " ")), flag, fmt.Sprint(v), "end"))
		}
		if with("--lr", a) != with("--lr", b) {
			t.Errorf("another program")
		}
		if a != float64(b) && with("--width", a) == with("--width", b) && strconv.FormatFloat(a, 'g', -1, 64) != strconv.Itoa(b) {
			t.Errorf("the same program")
		}
	})
}

// TestOtherCommandsOfAProgram: one run of a described model is enough for its other
// commands; of what nobody describes it takes three that took nearly the same.
func TestOtherCommandsOfAProgram(t *testing.T) {
	t.Parallel()
	run := func(sig string, mib int64, f Features) Sample {
		return Sample{Signature: sig, Program: "p", GPUType: "T4", PeakMiB: mib, UtilMilli: 250, Seconds: 60, HostMiB: 1000, CPUMilli: 1500, Features: f}
	}
	var none Features
	resnet := features(t, "resnet50", training64)
	resnet.Steps = 0
	for name, c := range map[string]struct {
		samples []Sample
		f       Features
		gpu     string
		source  Source
		mem     int64
	}{
		"nothing ran":                       {nil, none, "T4", SourceNone, 0},
		"two commands":                      {[]Sample{run("a", 3000, none), run("b", 3100, none)}, none, "T4", SourceNone, 0},
		"one command three times":           {[]Sample{run("a", 3000, none), run("a", 3000, none), run("a", 3000, none)}, none, "T4", SourceNone, 0},
		"three that took the same":          {[]Sample{run("a", 3000, none), run("b", 3100, none), run("c", 2900, none)}, none, "T4", SourceProgram, 3100},
		"three that did not":                {[]Sample{run("a", 3000, none), run("b", 9100, none), run("c", 2900, none)}, none, "T4", SourceNone, 0},
		"a described one":                   {[]Sample{run("a", 3000, resnet)}, resnet, "T4", SourceProgram, 3000},
		"a described one on another card":   {[]Sample{run("a", 3000, resnet)}, resnet, "A100-SXM4-80GB", SourceProgram, -1},
		"what ran is known by itself":       {[]Sample{run("a", 3000, resnet), run("mine", 2000, resnet)}, resnet, "T4", SourceHistory, 2000},
		"of another program nothing counts": {[]Sample{{Signature: "a", Program: "q", GPUType: "T4", PeakMiB: 3000, Features: resnet}}, resnet, "T4", SourceCatalogue, -1},
	} {
		p, err := NewPredictor(DefaultWeights(), NewHistory(c.samples))
		if err != nil {
			t.Fatal(err)
		}
		q := p.Predict(Request{Signature: "mine", Program: "p", Features: c.f, Types: []TypeInfo{{Name: c.gpu}}})[0]
		if q.Source != c.source || c.mem > 0 && q.GPUMemMiB != c.mem {
			t.Errorf("%s: %d MiB from %s, want %d from %s", name, q.GPUMemMiB, q.Source, c.mem, c.source)
		}
		if c.source == SourceProgram && (q.GPUMemP95MiB <= q.GPUMemMiB || c.gpu == "T4" && q.UtilMilli != 250 || q.Confidence < 0.6 || q.CPUMilli != 1500) {
			t.Errorf("%s: %+v", name, q)
		}
	}
	// A command that ran out of memory says that the next one may need more.
	p, err := NewPredictor(DefaultWeights(), NewHistory([]Sample{run("a", 3000, resnet), {Signature: "b", Program: "p", GPUType: "T4", PeakMiB: 5000, Censored: true, Features: resnet}}))
	if err != nil {
		t.Fatal(err)
	}
	if q := p.Predict(Request{Signature: "mine", Program: "p", Features: resnet, Types: []TypeInfo{{Name: "T4"}}})[0]; q.GPUMemMiB <= 5000 {
		t.Errorf("after one that ran out of 5000 MiB the next is to take %d", q.GPUMemMiB)
	}
}

package eval

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestWalkLayers works out by hand what lists leave unsaid.
func TestWalkLayers(t *testing.T) {
	for name, tc := range map[string]struct {
		list          string
		shape         shape
		channels      int64 // of a 4×4 input
		saved, masks  int64 // elements, bytes
		flops         float64
		others, convs int64
	}{
		// The input, the ReLU's output; then a maximum of four with the indices
		// of its 8 results, which the second convolution keeps.
		"pooling": {"[('conv2d', 32, 20), ('ReLU', 32, 0), ('conv2d', 8, 38)]", sequential, 1, 16 + 32 + 8, 8 * 8, 2*20*16 + 2*38*4, 1, 2},
		// The second convolution reads the input's channel and the first one's two.
		"concatenation": {"[('conv2d', 32, 20), ('ReLU', 32, 0), ('conv2d', 32, 56), ('ReLU', 32, 0)]", dense, 1, 16 + 32 + 48 + 32, 0, 2 * 76 * 16, 0, 2},
		// Shortcut and block read the same input, which is kept once.
		"shortcut": {
			"[('conv2d', 32, 8), ('conv2d', 32, 56), ('ReLU', 32, 0), ('conv2d', 32, 38), ('ReLU', 32, 0)]", residual, 3,
			48 + 32 + 32, 0, 2 * (8 + 56 + 38) * 16, 0, 3,
		},
		// The next block keeps the sum that the last one ended in.
		"two blocks": {
			"[('conv2d', 32, 8), ('conv2d', 32, 56), ('ReLU', 32, 0), ('conv2d', 32, 38), ('ReLU', 32, 0), ('conv2d', 32, 38), ('Tanh', 32, 0)]", residual, 3,
			48 + 32 + 32 + 32 + 32, 0, 2 * (8 + 56 + 38 + 38) * 16, 0, 4,
		},
		// A norm keeps its input, GELU its own; a mask takes a byte.
		"norm and dropout": {"[('conv2d', 32, 20), ('batchnorm2d', 32, 4), ('GELU', 32, 0), ('dropout', 32, 0)]", sequential, 1, 16 + 32 + 32, 32, 2 * 20 * 16, 1, 1},
		"no layer":         {"[('Identity', 16, 0), ('flatten', 16, 0)]", sequential, 1, 0, 0, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			ls, err := parseLayers(tc.list)
			if err != nil {
				t.Fatal(err)
			}
			w := walkLayers(ls, tc.shape, tc.channels*16, 4, tc.channels)
			type figures struct {
				Saved, Masks  int64
				FLOPs         float64
				Others, Convs int64
			}
			want := figures{tc.saved, tc.masks, tc.flops, tc.others, tc.convs}
			if d := cmp.Diff(want, figures{w.saved, w.masks, w.flops, w.others, w.convs}); d != "" {
				t.Errorf("figures (-want +got):\n%s", d)
			}
		})
	}
}

func TestParseLayersRefuses(t *testing.T) {
	for in, want := range map[string]string{
		"":                           "enclosed",
		"[('conv2d', 1, 2)":          "enclosed",
		"[('conv2d', 1)]":            "has 2 fields",
		"['conv2d', 1, 2]":           "parentheses",
		"[('conv2d', 1, 2), (x]":     "parentheses",
		"[('conv2d', -1, 2)]":        "whole number",
		"[('conv2d', 1, 1e3)]":       "whole number",
		"[('x', 1, 99999999999999)]": "whole number",
		"[" + strings.Repeat("('x',1,1),", maxLayers+1) + "]": "more than",
	} {
		if ls, err := parseLayers(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %d layers, %v; want an error about %q", in, len(ls), err, want)
		}
	}
}

func TestCells(t *testing.T) {
	tab, err := parseTable("x", strings.NewReader("Peak memory (GB),mem_mib,plain,Time 1k (min),util\n16.5 GB,100,12,2.5,93 %\n1,-,512 MiB,3 s,nan\n"))
	if err != nil {
		t.Fatal(err)
	}
	a, b := line{tab, tab.lines[0]}, line{tab, tab.lines[1]}
	for name, tc := range map[string]struct{ got, want float64 }{
		"GB are binary where tools show memory": {first(a.mib(false, "peak_memory")), 16.5 * 1024},
		"or decimal":                            {first(a.mib(true, "peak_memory")), 16.5e9 / mib},
		"the column's unit":                     {first(b.mib(false, "peak_memory")), 1024},
		"MiB":                                   {first(a.mib(true, "mem")), 100},
		"none":                                  {first(b.mib(true, "mem")), 0},
		"a small number without a unit":         {first(a.mib(false, "plain")), 12 * 1024},
		"the cell's unit":                       {first(b.mib(false, "plain")), 512},
		"minutes":                               {first(a.seconds("time_1k")), 150},
		"seconds in a column of minutes":        {first(b.seconds("time_1k")), 3},
		"percent":                               {first(a.num("util")), 93},
		"not a number":                          {first(b.num("util")), 0},
		"no such column":                        {first(b.num("else")), 0},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: %g, want %g", name, tc.got, tc.want)
		}
	}
}

func first(v float64, _ bool) float64 { return v }

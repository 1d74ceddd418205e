package eval

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster/draws"
	"github.com/berth-scheduler/berth/model"
)

var _ = draws.Fixed()

func row(id uint64, name, family, gpu string) Row {
	return Row{Dataset: "d", Model: name, Family: family, GPU: gpu, ID: id, Sample: model.Sample{GPUType: gpu, PeakMiB: int64(1000 + id)}}
}

func rows(t *rapid.T) []Row {
	n := rapid.IntRange(2, 60).Draw(t, "rows")
	out := make([]Row, n)
	for i := range out {
		family := rapid.IntRange(0, 14).Draw(t, "family")
		out[i] = row(rapid.Uint64Range(0, 80).Draw(t, "id"), fmt.Sprintf("f%d-%d", family, rapid.IntRange(0, 3).Draw(t, "model")),
			fmt.Sprint("f", family), fmt.Sprint("G", rapid.IntRange(0, 3).Draw(t, "gpu")))
	}
	return out
}

// TestFoldsKeepApart: folds score each row once, and never what they were
// trained on.
func TestFoldsKeepApart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rs := rows(t)
		for _, s := range []Split{Random, Model, Family, GPU} {
			folds := Folds(rs, s, 7)
			if d := cmp.Diff(folds, Folds(rs, s, 7)); d != "" {
				t.Fatalf("%s: not repeatable: %s", s, d)
			}
			if folds == nil {
				continue
			}
			seen := make([]int, len(rs))
			for _, f := range folds {
				for _, i := range f.Test {
					seen[i]++
				}
				if len(f.Train)+len(f.Test) != len(rs) {
					t.Fatalf("%s: %d to train on and %d to score of %d", s, len(f.Train), len(f.Test), len(rs))
				}
				if err := guardOnly(pick(rs, f.Train), pick(rs, f.Test), s); err != nil {
					t.Fatal(err)
				}
			}
			for i, n := range seen {
				if n != 1 {
					t.Fatalf("%s: row %d is scored %d times", s, i, n)
				}
			}
		}
	})
}

// guardOnly looks at what the split itself keeps apart: rapid's rows may be
// equal lines of different groups.
func guardOnly(train, test []Row, s Split) error {
	seen := keysOf(train, s)
	for i := range test {
		if has(seen, s.key(&test[i])) {
			return fmt.Errorf("%s: %q is on both sides", s, s.key(&test[i]))
		}
	}
	return nil
}

func TestFoldsNeedGroups(t *testing.T) {
	one := []Row{row(1, "a", "a", "G"), row(2, "a", "a", "G")}
	for _, s := range []Split{Model, Family, GPU} {
		if f := Folds(one, s, 1); f != nil {
			t.Errorf("%s: %d folds of one group", s, len(f))
		}
	}
	if f := Folds(one, Random, 1); len(f) != 2 {
		t.Errorf("random: %d folds of two rows", len(f))
	}
	if f := Folds(nil, Random, 1); f != nil {
		t.Errorf("%d folds of nothing", len(f))
	}
}

func TestManyGroupsShareTenFolds(t *testing.T) {
	var rs []Row
	for i := range 200 {
		rs = append(rs, row(uint64(i), fmt.Sprint("m", i), "f", "G"))
	}
	if n := len(Folds(rs, Model, 1)); n != groupFolds {
		t.Errorf("%d folds of 200 models, want %d", n, groupFolds)
	}
}

// TestGuard plants rows in a test set that were trained on.
func TestGuard(t *testing.T) {
	train := []Row{row(1, "resnet18", "resnet", "T4"), row(2, "vgg16", "vgg", "K80")}
	for name, tc := range map[string]struct {
		split Split
		test  Row
		leaks bool
	}{
		"random, another line":          {Random, row(3, "resnet18", "resnet", "T4"), false},
		"random, the same line":         {Random, row(1, "resnet18", "resnet", "T4"), true},
		"model, new":                    {Model, row(3, "resnet50", "resnet", "T4"), false},
		"model, known":                  {Model, row(3, "resnet18", "resnet", "K80"), true},
		"model, known, written apart":   {Model, row(3, "ResNet-18", "resnet", "V100"), true},
		"family, new":                   {Family, row(3, "dense1", "dense", "T4"), false},
		"family, known":                 {Family, row(3, "resnet50", "resnet", "T4"), true},
		"gpu, new":                      {GPU, row(3, "resnet18", "resnet", "V100"), false},
		"gpu, known":                    {GPU, row(3, "resnet18", "resnet", "K80"), true},
		"gpu, known pair":               {GPU, row(3, "resnet18", "resnet", "T4"), true},
		"both, new":                     {Both, row(3, "resnet50", "resnet", "V100"), false},
		"both, known model":             {Both, row(3, "resnet18", "resnet", "V100"), true},
		"both, known GPU":               {Both, row(3, "resnet50", "resnet", "T4"), true},
		"family, the same line besides": {Family, row(1, "dense1", "dense", "T4"), true},
	} {
		t.Run(name, func(t *testing.T) {
			err := Guard(train, []Row{row(9, "other", "other", "H200"), tc.test}, tc.split)
			var leak *LeakError
			if errors.As(err, &leak) != tc.leaks || (err == nil) == tc.leaks {
				t.Errorf("Guard = %v, want a leak: %t", err, tc.leaks)
			}
			if tc.leaks && (leak.Split != tc.split || leak.Key == "") {
				t.Errorf("leak %+v", leak)
			}
		})
	}
}

func TestBetween(t *testing.T) {
	train := []Row{row(1, "resnet18", "resnet", "T4"), row(2, "vgg16", "vgg", "K80")}
	test := []Row{
		row(1, "resnet18", "resnet", "T4"),   // 0: the same line
		row(3, "resnet18", "resnet", "T4"),   // 1
		row(4, "resnet50", "resnet", "T4"),   // 2: a new model
		row(5, "resnet18", "resnet", "V100"), // 3: a new GPU type
		row(6, "resnet50", "resnet", "V100"), // 4: both
		row(7, "dense1", "dense", "K80"),     // 5: a new family
		row(8, "vgg16", "classic", "K80"),    // 6: a known model by another family's name
	}
	for s, want := range map[Split][]int{Random: {1, 2, 3, 4, 5, 6}, Model: {2, 5}, GPU: {3}, Both: {4}, Family: {5}} {
		got := Between(train, test, s)
		if !slices.Equal(got, want) {
			t.Errorf("%s: rows %v, want %v", s, got, want)
		}
		if err := Guard(train, pick(test, got), s); err != nil {
			t.Errorf("%s: %v", s, err)
		}
	}
}

func TestParse(t *testing.T) {
	for in, want := range map[string]Target{"Memory": Memory, "gpu_mem": Memory, "mem": Memory, "memory-summary": MemorySummary, "GPU utilization": Util, "step_time": Time} {
		if got, err := ParseTarget(in); err != nil || got != want {
			t.Errorf("ParseTarget(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
	for in, want := range map[string]Split{"random": Random, "MODEL": Model, "families": Family, "gpu": GPU, "model_gpu": Both} {
		if got, err := ParseSplit(in); err != nil || got != want {
			t.Errorf("ParseSplit(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
	for _, in := range []string{"", "weight", "memory2"} {
		if got, err := ParseTarget(in); err == nil {
			t.Errorf("ParseTarget(%q) = %q", in, got)
		}
		if got, err := ParseSplit(in); err == nil {
			t.Errorf("ParseSplit(%q) = %q", in, got)
		}
	}
	for _, name := range TrainerNames() {
		if tr, err := New(name); err != nil || tr.Name() != name {
			t.Errorf("New(%q) = %v, %v", name, tr, err)
		}
	}
	if _, err := New("oracle"); err == nil {
		t.Error("New knows an oracle")
	}
}

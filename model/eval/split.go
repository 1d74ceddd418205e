package eval

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
)

// Split is how scored rows are kept apart from those trained on.
type Split string

// The splits. Random separates only lines: figures for jobs like those already
// seen. The others leave out a whole model, family or GPU type. Both leaves out
// models and GPU types at once; it exists only for a separate test set with such
// rows.
const (
	Random Split = "random"
	Model  Split = "model"
	Family Split = "family"
	GPU    Split = "gpu"
	Both   Split = "model_gpu"
)

// Splits returns the splits in the order of reports.
func Splits() []Split { return []Split{Random, Model, Family, GPU, Both} }

// ParseSplit parses the name of a split.
func ParseSplit(s string) (Split, error) {
	switch plain(s) {
	case "random", "row", "rows", "all":
		return Random, nil
	case "model", "models":
		return Model, nil
	case "family", "families", "arch":
		return Family, nil
	case "gpu", "gpus", "device":
		return GPU, nil
	case "modelgpu", "both":
		return Both, nil
	}
	return "", fmt.Errorf("split %q: must be one of random, model, family, gpu, model_gpu", s)
}

// folds is the maximum number of parts in which the rows are scored.
const (
	randomFolds = 5
	groupFolds  = 10
)

// Fold is one part: indices of the rows to train on and of those to score.
type Fold struct{ Train, Test []int }

// key returns what a split keeps apart. Models go by name within their data set.
func (s Split) key(r *Row) string {
	switch s {
	case Model:
		return plain(r.Model)
	case Family:
		return plain(r.Family)
	case GPU:
		return r.GPU
	case Both:
		return plain(r.Model) + "\x00" + r.GPU
	default:
		return fmt.Sprint(r.ID)
	}
}

// Folds divides rows so that each is scored once: randomly from seed for Random,
// otherwise by whole groups, ten or more groups being bundled into ten by a hash of
// their names. It returns nil if there are too few groups to leave one out.
func Folds(rows []Row, s Split, seed uint64) []Fold {
	var part []int // fold of each row
	n := randomFolds
	if s == Random {
		part = chance(rows, seed)
	} else {
		part, n = grouped(rows, s)
	}
	out := make([]Fold, n)
	for i, p := range part {
		for f := range out {
			if f == p {
				out[f].Test = append(out[f].Test, i)
			} else {
				out[f].Train = append(out[f].Train, i)
			}
		}
	}
	out = slices.DeleteFunc(out, func(f Fold) bool { return len(f.Test) == 0 || len(f.Train) == 0 })
	if len(out) < 2 {
		return nil
	}
	return out
}

// chance deals out lines like cards, equal lines to one fold.
func chance(rows []Row, seed uint64) []int {
	rng := rand.New(rand.NewPCG(seed, 0x6265727468))
	part := make([]int, len(rows))
	seen := make(map[uint64]int, len(rows))
	for at, i := range rng.Perm(len(rows)) {
		f, ok := seen[rows[i].ID]
		if !ok {
			f = at % randomFolds
			seen[rows[i].ID] = f
		}
		part[i] = f
	}
	return part
}

func grouped(rows []Row, s Split) (part []int, n int) {
	keys := make([]string, len(rows))
	for i := range rows {
		keys[i] = s.key(&rows[i])
	}
	names := slices.Compact(slices.Sorted(slices.Values(keys)))
	n = min(len(names), groupFolds)
	part = make([]int, len(rows))
	for i, k := range keys {
		if n < groupFolds {
			part[i], _ = slices.BinarySearch(names, k)
			continue
		}
		h := fnv.New64a()
		_, _ = h.Write([]byte(k))
		part[i] = int(h.Sum64() % uint64(n))
	}
	return part, n
}

// Between returns the rows of test that a split is about, if all of train is
// trained on: for Model those whose model is not in train but whose GPU type is,
// for GPU the reverse, for Both those where neither is, for Family those whose
// family and model are not. For Random it is all rows except those also in train.
func Between(train, test []Row, s Split) []int {
	models, gpus, families, ids := keysOf(train, Model), keysOf(train, GPU), keysOf(train, Family), keysOf(train, Random)
	var out []int
	for i := range test {
		r := &test[i]
		m, g := has(models, Model.key(r)), has(gpus, GPU.key(r))
		in := false
		switch s {
		case Model:
			in = !m && g
		case GPU:
			in = m && !g
		case Both:
			in = !m && !g
		case Family:
			in = !m && !has(families, Family.key(r)) // a known model is not new under another family's name
		default:
			in = !has(ids, Random.key(r))
		}
		if in {
			out = append(out, i)
		}
	}
	return out
}

func keysOf(rows []Row, s Split) map[string]struct{} {
	out := make(map[string]struct{})
	for i := range rows {
		out[s.key(&rows[i])] = struct{}{}
	}
	return out
}

func has(set map[string]struct{}, k string) bool {
	_, ok := set[k]
	return ok
}

// LeakError reports that a row to be scored had been trained on.
type LeakError struct {
	Split   Split
	Dataset string
	Key     string // the model, family or GPU type found on both sides
}

// Error implements error.
func (e *LeakError) Error() string {
	what := map[Split]string{Random: "line", Both: "model or GPU type"}[e.Split]
	if what == "" {
		what = string(e.Split)
	}
	return fmt.Sprintf("%s, split %s: the %s %s is in the training set too, so its score would mean nothing",
		e.Dataset, e.Split, what, strings.ReplaceAll(e.Key, "\x00", " on "))
}

// Guard refuses a test set with any row that shares with the training set what the
// split keeps apart: the line, the model, the family, the GPU type, for Both either
// of model and GPU type. The error is a *LeakError.
func Guard(train, test []Row, s Split) error {
	for _, part := range s.guards() {
		seen := keysOf(train, part)
		for i := range test {
			if k := part.key(&test[i]); has(seen, k) {
				return &LeakError{Split: s, Dataset: test[i].Dataset, Key: k}
			}
		}
	}
	return nil
}

func (s Split) guards() []Split {
	switch s {
	case Random:
		return []Split{Random}
	case Both:
		return []Split{Random, Model, GPU}
	default:
		return []Split{Random, s}
	}
}

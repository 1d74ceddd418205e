package model

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// catalogueEntry is the cost of one well-known model in float32: figures of the
// whole model, and per sample (bytes and FLOPs). masks are saved bytes that no
// precision shrinks.
type catalogueEntry struct {
	name   string
	seqLen int64 // tokens per sample, 0 for images
	params, paramBytes,
	saved, masks, live, largest, input, output, workspace, moved, acts, matrix, flops,
	convs, linears, activations, norms, others int64
}

// Catalogue returns the names that FromCatalogue knows, sorted.
func Catalogue() []string {
	names := make([]string, len(catalogue))
	for i := range catalogue {
		names[i] = catalogue[i].name
	}
	slices.Sort(names)
	return names
}

// FromCatalogue returns the features of a well-known model by its name, such as
// "resnet50". Case, '-' and '_' do not matter. It is for users without an ONNX file
// at hand; the shape is the published one at its usual input size. A sequence
// length other than the model's own scales activations linearly below it, and above
// it by the power 3/2 (attention scores grow with the square, the rest linearly).
// An unknown name gives an error that lists similar ones.
func FromCatalogue(name string, run Run) (Features, error) {
	i := slices.IndexFunc(catalogue[:], func(e catalogueEntry) bool { return plain(e.name) == plain(name) })
	if i < 0 {
		return Features{}, fmt.Errorf("model %q: is not in the catalogue; near names are %s; or give its ONNX file",
			shorten(name), strings.Join(near(name), ", "))
	}
	e := &catalogue[i]
	act, weight := run.Precision.ActivationBytes(4), run.Precision.WeightBytes(4)
	perBatch := func(v int64) int64 { return clamp(e.stretch(v, run)) }
	bytes := func(v int64) int64 { return perBatch(v) / 4 * act }
	f := Features{
		Source: SourceCatalogue, Model: e.name, Run: run,
		Params: e.params, ParamBytes: e.paramBytes / 4 * weight,
		SavedBytes: bytes(e.saved) + perBatch(e.masks), LiveBytes: bytes(e.live), LargestBytes: bytes(e.largest), InputBytes: perBatch(e.input),
		OutputBytes: bytes(e.output), WorkspaceBytes: bytes(e.workspace), FLOPs: perBatch(e.flops),
		Convs: e.convs, Linears: e.linears, Activations: e.activations, Norms: e.norms, Others: e.others,
	}
	f.ActBytes, f.MatrixBytes = bytes(e.acts), bytes(e.matrix)
	f.MovedBytes = clamp(bytes(e.moved) + f.ParamBytes)
	return f, f.Check()
}

// stretch scales a per-sample figure to a run's batch and sequence length.
func (e *catalogueEntry) stretch(v int64, run Run) int64 {
	x := float64(v) * float64(run.Batch)
	if e.seqLen > 0 && run.SeqLen > 0 {
		r := float64(run.SeqLen) / float64(e.seqLen)
		if r > 1 {
			r *= math.Sqrt(r)
		}
		x *= r
	}
	return int64(min(x, float64(MaxBytes)))
}

// plain removes from a name what people write differently.
func plain(s string) string {
	return strings.ToLower(strings.NewReplacer("-", "", "_", "", ".", "", " ", "").Replace(s))
}

// near returns the five names with the least edit distance to name.
func near(name string) []string {
	want := plain(shorten(name))
	names := Catalogue()
	score := func(s string) int {
		d := 4 * distance(plain(s), want)
		if strings.HasPrefix(plain(s), want) || strings.HasPrefix(want, plain(s)) {
			d /= 4
		}
		return d
	}
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(score(a), score(b)) })
	return names[:min(5, len(names))]
}

// distance is the Levenshtein distance.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diag := row[0]
		row[0] = i + 1
		for j := range len(b) {
			sub := diag
			if a[i] != b[j] {
				sub++
			}
			diag = row[j+1]
			row[j+1] = min(sub, row[j]+1, diag+1)
		}
	}
	return row[len(b)]
}

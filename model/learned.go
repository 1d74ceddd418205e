package model

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/berth-scheduler/berth/model/fit"
	"github.com/berth-scheduler/berth/model/gpuspec"
)

// Bounds of what is learned about one target.
const (
	maxGroups    = 64
	maxGroupKey  = 96
	maxTypes     = 64
	maxTypeName  = 64
	maxFamilies  = 1024
	maxKinds     = 256
	maxMarginLog = 1.5
)

// Learned is what samples taught about one target: coefficients of the physics for
// groups of runs, a forest on the logarithm of what the physics misses, and how far
// the truth was above for families of models and types of GPUs that were left out.
// The zero value has learned nothing. It is immutable.
type Learned struct {
	// Groups are sorted by key; the first has the empty key and applies to all.
	// Empty if nothing was learned.
	Groups []Group
	// Forest corrects the physics, with as many of its trees as proved helpful.
	Forest *fit.Forest
	// Trees is how many trees count for a model of a known family, for one of a new
	// family, and on a new type; the lowest that applies is used.
	Trees [3]int
	// Margins are logarithms of how far the upper quantile is above the estimate,
	// for the same three. A group's own margin takes precedence over the first.
	Margins [3]float64
	// Families are FamilyHash of the models of the samples, sorted; Types their GPU
	// types, normalized and sorted. Kinds are KindHash of their group keys, sorted.
	Families, Kinds []uint32
	Types           []string
	// Factors are logarithms, one per type, of the ratio of actual use to the
	// physics.
	Factors []float32
	// Samples is how many there were.
	Samples int64
}

// Indexes of a Learned's Trees and Margins.
const (
	KnownFamily = iota
	NewFamily
	NewType
)

// Group holds the coefficients for the runs whose key begins with Key.
type Group struct {
	Key  string
	Coef []float32 // one per term of the target, not negative
	// Margin is like Learned.Margins[KnownFamily]; negative if the group had too
	// few samples.
	Margin float64
}

// Family returns the part of a model's name that its relatives share: its leading
// letters, in lower case ("resnet" of "ResNet50").
func Family(name string) string {
	end := strings.IndexFunc(name, func(r rune) bool { return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') })
	if end >= 0 {
		name = name[:end]
	}
	return strings.ToLower(name)
}

// FamilyHash returns what a Learned stores of a family: FNV-1a of its name.
func FamilyHash(family string) uint32 {
	h := uint32(2166136261)
	for i := range len(family) {
		h = (h ^ uint32(family[i])) * 16777619
	}
	return h
}

// KindHash returns what a Learned stores of a group key: FNV-1a of its first three
// parts, which say what kind of run it was.
func KindHash(key string) uint32 {
	parts := 0
	for i := range len(key) {
		if key[i] == '/' {
			if parts++; parts == 3 {
				key = key[:i]
				break
			}
		}
	}
	return FamilyHash(key)
}

// empty reports whether nothing was learned.
func (l *Learned) empty() bool { return len(l.Groups) == 0 }

// group returns the most special group for a key.
func (l *Learned) group(key string) *Group {
	best := &l.Groups[0]
	for i := range l.Groups {
		g := &l.Groups[i]
		if len(g.Key) > len(best.Key) && strings.HasPrefix(key, g.Key) {
			best = g
		}
	}
	return best
}

// guess is an estimate of a target before history and declarations.
type guess struct {
	value, p95 float64
	base       float64 // of the physics alone
	floor      float64 // context and libraries in base; 0 for other targets than Memory
	coef       []float32
	// lift is what is added to the floor if lifted.
	lift   float64
	lifted bool
}

// scratch is what the estimates of one job on several types share.
type scratch struct {
	terms  [maxTerms]float64
	cols   [columnCount]float64
	filled bool                  // cols holds the job's columns
	early  [numTargets][]float64 // output of the first k trees that do not use the type
}

// forest returns the output for f of the first k trees of a target on a type.
func (sc *scratch) forest(t Target, split *fit.Split, f *Features, spec *gpuspec.Spec, k int) float64 {
	if !sc.filled {
		f.columns(sc.cols[:])
		sc.filled = true
	}
	if sc.early[t] == nil {
		sc.early[t] = split.Early(sc.cols[:], make([]float64, 0, split.Trees()+1))
	}
	typeColumns(spec, sc.cols[:])
	return sc.early[t][k] + split.Late(sc.cols[:], k)
}

// estimate returns the estimate for a job on a type; l must not be empty, and split
// must be of its forest. It leaves the terms in sc.
func (l *Learned) estimate(t Target, split *fit.Split, w *Weights, f *Features, spec *gpuspec.Spec, sc *scratch) guess {
	terms := sc.terms[:]
	w.terms(t, f, spec, terms)
	key := GroupKey(t, f, spec)
	g := l.group(key)
	r := guess{coef: g.Coef}
	for i, c := range g.Coef {
		r.base += float64(float64(c) * terms[i])
		if t == Memory && i == floorTerms-1 {
			r.floor = r.base
		}
	}
	r.value = r.base
	trees, margin := l.Trees[KnownFamily], l.Margins[KnownFamily]
	if g.Margin >= 0 {
		margin = g.Margin
	}
	if family := Family(f.Model); family == "" || !has(l.Families, FamilyHash(family)) {
		trees, margin = min(trees, l.Trees[NewFamily]), max(margin, l.Margins[NewFamily])
	}
	if k, ok := slices.BinarySearch(l.Types, spec.Name); ok {
		r.value *= math.Exp(float64(l.Factors[k]))
	} else {
		trees, margin = min(trees, l.Trees[NewType]), max(margin, l.Margins[NewType])
	}
	if !has(l.Kinds, KindHash(key)) {
		// Such runs were never measured: not even the left-out groups show the
		// error.
		trees, margin = min(trees, l.Trees[NewFamily]), newKind*max(margin, l.Margins[NewFamily])
	}
	if trees > 0 {
		r.value *= expClamped(sc.forest(t, split, f, spec, trees), t.RatioLimit())
	}
	r.p95 = r.value * math.Exp(margin)
	return r
}

// newKind is the factor by which margins are wider for kinds of runs never
// measured.
const newKind = 1.5

func has[E cmp.Ordered](sorted []E, v E) bool {
	_, ok := slices.BinarySearch(sorted, v)
	return ok
}

// parts returns the components of the estimate, in MiB; terms with one name count
// together. What the forest adds or subtracts is the correction.
func (g *guess) parts(terms []float64, parts []Part) []Part {
	first := len(parts)
	for i, c := range g.coef {
		v := float64(c) * terms[i]
		if v <= 0 {
			continue
		}
		name := memoryTerms[i].name
		if n := len(parts); n > first && parts[n-1].Name == name {
			parts[n-1].MiB += ceil(v)
			continue
		}
		parts = append(parts, Part{Name: name, MiB: ceil(v)})
	}
	if d := int64(math.Round(g.lift)); d != 0 {
		parts = append(parts, Part{Name: "driver", MiB: d})
	}
	if d := int64(math.Round(min(max(g.value-g.base-g.lift, -1<<50), 1<<50))); d != 0 {
		parts = append(parts, Part{Name: "correction", MiB: d})
	}
	return parts
}

// check returns an error that names what is out of range.
func (l *Learned) check(t Target) error {
	if len(l.Groups) > maxGroups || len(l.Types) > maxTypes || len(l.Families) > maxFamilies || len(l.Kinds) > maxKinds || l.Samples < 0 {
		return fmt.Errorf("%w: %s: %d groups, %d types, %d families, at most %d, %d and %d are allowed",
			ErrWeights, t, len(l.Groups), len(l.Types), len(l.Families), maxGroups, maxTypes, maxFamilies)
	}
	if len(l.Groups) > 0 && l.Groups[0].Key != "" {
		return fmt.Errorf("%w: %s: the first group is %q, must be the general one", ErrWeights, t, l.Groups[0].Key)
	}
	if !slices.IsSortedFunc(l.Groups, func(a, b Group) int { return cmp.Compare(a.Key, b.Key) }) || !slices.IsSorted(l.Types) || !slices.IsSorted(l.Families) || !slices.IsSorted(l.Kinds) {
		return fmt.Errorf("%w: %s: groups, families or types are not sorted", ErrWeights, t)
	}
	for i := range l.Groups {
		if err := l.Groups[i].check(t); err != nil {
			return err
		}
	}
	if len(l.Factors) != len(l.Types) {
		return fmt.Errorf("%w: %s: %d factors for %d types", ErrWeights, t, len(l.Factors), len(l.Types))
	}
	for i, v := range l.Factors {
		if n := len(l.Types[i]); n > maxTypeName {
			return fmt.Errorf("%w: %s: a type's name has %d bytes, at most %d are allowed", ErrWeights, t, n, maxTypeName)
		}
		if !(v >= -4 && v <= 4) {
			return fmt.Errorf("%w: %s: factor e^%v for %s, must be e^-4 to e^4", ErrWeights, t, v, l.Types[i])
		}
	}
	for i := range l.Margins {
		if m := l.Margins[i]; !(m >= 0 && m <= maxMarginLog) {
			return fmt.Errorf("%w: %s: margin %v, must be 0 to %v", ErrWeights, t, m, maxMarginLog)
		}
		if n := l.Trees[i]; n < 0 || n > l.Forest.Trees() {
			return fmt.Errorf("%w: %s: %d trees count, there are %d", ErrWeights, t, n, l.Forest.Trees())
		}
	}
	if l.Forest != nil && (l.empty() || l.Forest.Columns != columnCount) {
		return fmt.Errorf("%w: %s: forest over %d columns, must be %d", ErrWeights, t, l.Forest.Columns, columnCount)
	}
	return nil
}

func (g *Group) check(t Target) error {
	if n := len(t.terms()); len(g.Coef) != n || len(g.Key) > maxGroupKey {
		return fmt.Errorf("%w: %s: group %q has %d coefficients, must be %d", ErrWeights, t, g.Key, len(g.Coef), n)
	}
	if !(g.Margin >= -1 && g.Margin <= maxMarginLog) {
		return fmt.Errorf("%w: %s: group %q has margin %v, must be -1 to %v", ErrWeights, t, g.Key, g.Margin, maxMarginLog)
	}
	for k, c := range g.Coef {
		if !(c >= 0 && c <= 1e4) {
			return fmt.Errorf("%w: %s: group %q: %s is %v, must be 0 to 10000", ErrWeights, t, g.Key, t.terms()[k].name, c)
		}
	}
	return nil
}

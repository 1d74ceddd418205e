package graph

import (
	"fmt"
	"slices"
	"strings"
)

// Options selects the run whose cost is computed.
type Options struct {
	// Batch binds the symbolic batch dimension, 1 to 1<<20.
	Batch int64
	// SeqLen binds other symbolic dimensions; 0 leaves them at 1 and marks the
	// result partial.
	SeqLen int64
	// Training adds the backward pass; inference otherwise.
	Training  bool
	Precision Precision
	Optimizer Optimizer
}

// MaxBatch bounds Options.Batch and Options.SeqLen.
const MaxBatch = 1 << 20

func (o Options) check() error {
	if o.Batch < 1 || o.Batch > MaxBatch {
		return fmt.Errorf("batch %d: must be 1 to %d", o.Batch, MaxBatch)
	}
	if o.SeqLen < 0 || o.SeqLen > MaxBatch {
		return fmt.Errorf("sequence length %d: must be 0 to %d", o.SeqLen, MaxBatch)
	}
	if o.Precision != PrecisionFile && !slices.Contains(Precisions(), o.Precision) {
		return fmt.Errorf("precision %q: must be one of %v", o.Precision, Precisions())
	}
	if o.Optimizer != OptimizerNone && !slices.Contains(Optimizers(), o.Optimizer) {
		return fmt.Errorf("optimizer %q: must be one of %v", o.Optimizer, Optimizers())
	}
	return nil
}

// role is what a tensor is to the memory of a run.
type role uint8

const (
	roleActivation role = iota
	roleInput
	roleWeight   // trained
	roleBuffer   // running statistics: kept, not trained
	roleConstant // shape arithmetic and the like: free
)

// tensor is one value of the graph after shapes are bound.
type tensor struct {
	dims  []int64
	dtype DType
	role  role
	bytes int64
	root  int32 // the tensor whose memory this one shares; itself if none
	ints  []int64
	known bool // ints holds the value
	// floats is the value of a small float constant, which Resize needs.
	floats []float32
}

func (t tensor) elems() int64 { return product(t.dims) }

// step is one operator with bound shapes.
type step struct {
	node  *Node
	rule  *rule
	in    []int32 // tensor ids, -1 for an omitted input
	out   []int32
	flops int64
	conv  *convShape // of convolutions
	saved []int32    // roots that training keeps from this step
	// mask is what the step keeps for training besides its tensors: dropout masks,
	// pooling indices, normalization statistics.
	mask int64
}

// plan is a graph bound to one run.
type plan struct {
	g        *Graph
	opt      Options
	tensors  []tensor
	steps    []step
	names    map[string]int32
	values   map[string]*Value // what the file declares, built on first use
	unknown  map[string]int
	fixed    int64 // literal batch in the file, 0 if symbolic
	values64 int   // constant values kept so far, all tensors together
	unbound  bool  // a symbolic dimension had no value
}

// newPlan binds g to a run. It fails only on bad options: what it does not
// understand in the graph is counted in unknown.
func newPlan(g *Graph, opt Options) (*plan, error) {
	if err := opt.check(); err != nil {
		return nil, err
	}
	p := &plan{g: g, opt: opt, names: make(map[string]int32, len(g.Nodes)*2), unknown: map[string]int{}}
	p.addInitializers(g)
	p.addInputs(g)
	p.addNested(g, 1)
	p.steps = make([]step, 0, len(g.Nodes))
	for i := range g.Nodes {
		p.addNode(&g.Nodes[i])
	}
	p.markBuffers()
	p.size()
	return p, nil
}

func (p *plan) add(name string, t tensor) int32 {
	id := int32(len(p.tensors))
	t.root = id
	p.tensors = append(p.tensors, t)
	if name != "" {
		p.names[name] = id
	}
	return id
}

func (p *plan) addInitializers(g *Graph) {
	for i := range g.Initializers {
		w := &g.Initializers[i]
		t := tensor{dims: w.Dims, dtype: w.Type, role: roleWeight}
		if !w.Type.IsFloat() && w.Type != Int8 && w.Type != Uint8 {
			t.role = roleConstant
		}
		if w.Ints != nil && int64(len(w.Ints)) == w.Elems() {
			t.ints, t.known = w.Ints, true
		}
		t.floats = w.Floats
		if w.Floats != nil && w.Elems() <= 1 {
			t.role = roleConstant // a scale factor, not a weight
		}
		p.add(w.Name, t)
	}
}

// addNested counts the weights inside If and Loop bodies; their computation stays
// unknown.
func (p *plan) addNested(g *Graph, depth int) {
	if depth > MaxDepth {
		return
	}
	for i := range g.Nodes {
		for j := range g.Nodes[i].Attrs {
			if sub := g.Nodes[i].Attrs[j].Graph; sub != nil {
				for k := range sub.Initializers {
					w := &sub.Initializers[k]
					if w.Type.IsFloat() {
						p.add("", tensor{dims: w.Dims, dtype: w.Type, role: roleWeight})
					}
				}
				p.addNested(sub, depth+1)
			}
		}
	}
}

func (p *plan) addInputs(g *Graph) {
	symbolic := false
	first := int64(0)
	for i := range g.Inputs {
		v := &g.Inputs[i]
		if _, ok := p.names[v.Name]; ok {
			continue // IR version 3 lists initializers among the inputs
		}
		dims := make([]int64, len(v.Dims))
		for j, d := range v.Dims {
			if d.Value > 0 {
				dims[j] = d.Value
				if j == 0 && first == 0 {
					first = d.Value
				}
				continue
			}
			var batch bool
			dims[j], batch = p.bind(d.Param, j)
			symbolic = symbolic || batch
		}
		if !v.Known {
			p.unbound = true
		}
		p.add(v.Name, tensor{dims: dims, dtype: v.Type, role: roleInput})
	}
	if !symbolic && first > 0 {
		p.fixed = first
	}
}

// bind returns the value of a symbolic dimension, and whether it is the batch.
func (p *plan) bind(param string, axis int) (int64, bool) {
	name := strings.ToLower(param)
	has := func(parts ...string) bool {
		return slices.ContainsFunc(parts, func(s string) bool { return strings.Contains(name, s) })
	}
	switch {
	case has("batch") || name == "n" || name == "b" || name == "bs":
		return p.opt.Batch, true
	case has("seq", "len", "time", "token", "length"):
	case has("height", "width") || name == "h" || name == "w":
		p.unbound = true
		return 224, false
	case axis == 0:
		return p.opt.Batch, true
	}
	if p.opt.SeqLen > 0 {
		return p.opt.SeqLen, false
	}
	p.unbound = true
	return 1, false
}

func (p *plan) addNode(n *Node) {
	r := lookupRule(n)
	s := step{node: n, rule: r, in: make([]int32, len(n.Inputs))}
	for i, name := range n.Inputs {
		s.in[i] = -1
		if name == "" {
			continue
		}
		id, ok := p.names[name]
		if !ok { // a value of an outer scope or of an unsorted graph
			id = p.add(name, tensor{dtype: Float, role: roleConstant})
			p.unknown[n.Op]++
		}
		s.in[i] = id
	}
	c := &ctx{p: p, n: n, s: &s}
	c.outs = make([]tensor, len(n.Outputs))
	for i := range c.outs {
		c.outs[i] = tensor{dtype: c.in(0).dtype, role: roleActivation}
	}
	ok := r.infer != nil && len(n.Outputs) > 0 && r.infer(c)
	if !ok {
		p.unknown[n.Op]++
		c.guess()
	}
	fixed := c.fixed()
	for i, name := range n.Outputs {
		t := c.outs[i]
		switch {
		case t.known:
			t.role = roleConstant
		case fixed:
			t.role = constantRole(n.Op, &t)
		}
		id := p.add(name, t)
		if i == 0 || r.view {
			c.alias(id)
		}
		s.out = append(s.out, id)
	}
	p.steps = append(p.steps, s)
}

// markBuffers excludes running means and variances from the trained weights.
func (p *plan) markBuffers() {
	for i := range p.steps {
		s := &p.steps[i]
		if s.node.Op != "BatchNormalization" {
			continue
		}
		for j := 3; j < len(s.in) && j < 5; j++ {
			if id := s.in[j]; id >= 0 && p.tensors[id].role == roleWeight {
				p.tensors[id].role = roleBuffer
			}
		}
	}
}

// size computes every tensor's bytes at the run's precision, and rescales graphs
// exported with a fixed batch.
func (p *plan) size() {
	num, den := int64(1), int64(1)
	if p.fixed > 0 && p.fixed != p.opt.Batch {
		num, den = p.opt.Batch, p.fixed
	}
	for i := range p.tensors {
		t := &p.tensors[i]
		elem := t.dtype.Bytes()
		switch {
		case t.role == roleConstant:
			continue
		case t.role == roleWeight || t.role == roleBuffer:
			if t.dtype.IsFloat() {
				elem = p.opt.Precision.WeightBytes(elem)
			}
			t.bytes = satMul(t.elems(), elem)
			continue
		case t.dtype.IsFloat():
			elem = p.opt.Precision.ActivationBytes(elem)
		}
		t.bytes = scale(satMul(t.elems(), elem), num, den)
	}
	p.fuseSilu()
	for i := range p.steps {
		s := &p.steps[i]
		s.flops = scale(s.flops, num, den)
		if s.conv != nil {
			s.conv.batch = scale(s.conv.batch, num, den)
		}
		p.keepForBackward(s)
		s.mask = scale(s.mask, num, den)
	}
}

// scale returns v×num/den for non-negative numbers, saturating.
func scale(v, num, den int64) int64 {
	if num == den {
		return v
	}
	whole, rest := v/den, v%den
	return satAdd(satMul(whole, num), satMul(rest, num)/den)
}

// act reports whether id is a value that lives only during a step.
func (p *plan) act(id int32) bool {
	return id >= 0 && (p.tensors[id].role == roleActivation || p.tensors[id].role == roleInput)
}

// rootAct returns the tensor whose memory id shares, or -1 if that does not belong
// to a step (a weight, a constant).
func (p *plan) rootAct(id int32) int32 {
	if id < 0 {
		return -1
	}
	r := p.tensors[id].root
	if !p.act(r) {
		return -1
	}
	return r
}

// keepForBackward applies the rule for what autograd saves.
func (p *plan) keepForBackward(s *step) {
	keep := func(ids []int32) {
		for _, id := range ids {
			if r := p.rootAct(id); r >= 0 {
				s.saved = append(s.saved, r)
			}
		}
		slices.Sort(s.saved) // a hostile node may list a hundred thousand
		s.saved = slices.Compact(s.saved)
	}
	switch s.rule.saves {
	case savesInput:
		keep(s.in[:min(1, len(s.in))])
	case savesInputs:
		keep(s.in)
	case savesOutput:
		keep(s.out[:min(1, len(s.out))])
	case savesFactors, savesQuotient:
		keep(p.operandsKept(s))
	}
	if s.rule.mask != nil && len(s.out) > 0 { // a hostile node may have no outputs
		s.mask = s.rule.mask(p, s)
	}
}

// operandsKept returns the operands of a product or division that the gradients of
// the other one need: scaling by a constant keeps nothing.
func (p *plan) operandsKept(s *step) []int32 {
	if len(s.in) != 2 {
		return s.in
	}
	learns := func(id int32) bool {
		return id >= 0 && (p.tensors[id].role == roleActivation || p.tensors[id].role == roleWeight)
	}
	first, second := learns(s.in[0]), learns(s.in[1])
	switch {
	case first && second, second && s.rule.saves == savesQuotient:
		return s.in
	case first:
		return s.in[1:]
	case second:
		return s.in[:1]
	}
	return nil
}

// siluRule stands in for both halves of x·sigmoid(x), which exporters split: the
// framework's single kernel keeps only x.
var siluRule = rule{class: ClassActivation, infer: sameShape(1), saves: savesInput}

// fuseSilu finds a Sigmoid whose result is multiplied by its own argument.
func (p *plan) fuseSilu() {
	sigmoid := make(map[int32]*step)
	for i := range p.steps {
		s := &p.steps[i]
		switch {
		case s.node.Op == "Sigmoid" && len(s.in) == 1 && len(s.out) == 1:
			sigmoid[s.out[0]] = s
		case s.node.Op == "Mul" && len(s.in) == 2:
			for j, id := range s.in {
				if g, ok := sigmoid[id]; ok && g.in[0] == s.in[1-j] {
					g.rule = &siluRule
					if j == 0 {
						s.in[0], s.in[1] = s.in[1], s.in[0]
					}
					s.rule = &mulOfSilu
				}
			}
		}
	}
}

var mulOfSilu = rule{infer: inferBinary}

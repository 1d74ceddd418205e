package graph

import (
	"cmp"
	"maps"
	"slices"
)

// Summary is the cost of a graph for one run. Bytes follow Options.Precision; all
// figures are for the whole batch and saturate at MaxInt64.
type Summary struct {
	Params     int64 // trained values
	ParamBytes int64
	// BufferBytes is what the model keeps besides trained weights, such as running
	// statistics of batch normalization.
	BufferBytes int64
	FLOPs       int64 // forward, a multiply-add counts as two
	MovedBytes  int64 // forward traffic if nothing stays in cache
	// ActBytes is the output of all operators in one forward pass, without views;
	// MatrixBytes that of convolutions and matrix products.
	ActBytes, MatrixBytes int64
	// SavedBytes is what autograd keeps from the forward pass for the backward
	// pass: each tensor once, however many operators need it.
	SavedBytes  int64
	InputBytes  int64
	OutputBytes int64
	// LiveBytes is the peak that inference holds besides the weights.
	LiveBytes    int64
	LargestBytes int64 // largest single activation
	// WorkspaceBytes estimates the largest scratch buffer of a convolution or
	// matrix product.
	WorkspaceBytes int64

	Convs, Linears, Activations, Norms, Others int

	// Partial means that part of the graph was not understood: operators without a
	// rule, or symbolic dimensions without a value.
	Partial bool
	// Unknown lists those operators, most frequent first, at most 16.
	Unknown []string
}

// Summarize computes the cost of g for the run that opt describes. The only errors
// are those of opt.
func Summarize(g *Graph, opt Options) (Summary, error) {
	p, err := newPlan(g, opt)
	if err != nil {
		return Summary{}, err
	}
	s := Summary{}
	p.sumTensors(&s)
	seen := make(map[int32]struct{})
	for i := range p.steps {
		st := &p.steps[i]
		s.FLOPs = satAdd(s.FLOPs, st.flops)
		s.MovedBytes = satAdd(s.MovedBytes, p.moved(st))
		s.count(st)
		p.sumOutputs(st, &s)
		s.WorkspaceBytes = max(s.WorkspaceBytes, p.workspace(st))
		s.SavedBytes = satAdd(s.SavedBytes, st.mask)
		for _, r := range st.saved {
			if _, ok := seen[r]; !ok {
				seen[r] = struct{}{}
				s.SavedBytes = satAdd(s.SavedBytes, p.tensors[r].bytes)
			}
		}
	}
	s.LiveBytes = p.live()
	s.Unknown = p.unknownOps()
	s.Partial = len(s.Unknown) > 0 || p.unbound
	return s, nil
}

func (p *plan) sumTensors(s *Summary) {
	for i := range p.tensors {
		t := &p.tensors[i]
		switch t.role {
		case roleWeight:
			s.Params = satAdd(s.Params, t.elems())
			s.ParamBytes = satAdd(s.ParamBytes, t.bytes)
		case roleBuffer:
			s.BufferBytes = satAdd(s.BufferBytes, t.bytes)
		case roleInput:
			s.InputBytes = satAdd(s.InputBytes, t.bytes)
			s.LargestBytes = max(s.LargestBytes, t.bytes)
		case roleActivation:
			s.LargestBytes = max(s.LargestBytes, t.bytes)
		case roleConstant:
		}
	}
	for i := range p.g.Outputs {
		if id, ok := p.names[p.g.Outputs[i].Name]; ok && p.act(id) {
			s.OutputBytes = satAdd(s.OutputBytes, p.tensors[id].bytes)
		}
	}
}

// sumOutputs adds the outputs of one operator.
func (p *plan) sumOutputs(st *step, s *Summary) {
	if st.rule.view {
		return
	}
	for _, id := range st.out {
		if p.act(id) {
			s.ActBytes = satAdd(s.ActBytes, p.tensors[id].bytes)
			if st.rule.class == ClassConv || st.rule.class == ClassLinear {
				s.MatrixBytes = satAdd(s.MatrixBytes, p.tensors[id].bytes)
			}
		}
	}
}

func (s *Summary) count(st *step) {
	switch st.rule.class {
	case ClassConv:
		s.Convs++
	case ClassLinear:
		s.Linears++
	case ClassActivation:
		s.Activations++
	case ClassNorm:
		s.Norms++
	case ClassOther:
		s.Others++
	}
}

// moved returns the traffic of one step: everything read and written once.
func (p *plan) moved(st *step) int64 {
	if st.rule.view {
		return 0
	}
	var sum int64
	for _, id := range st.in {
		if id >= 0 {
			sum = satAdd(sum, p.tensors[id].bytes)
		}
	}
	for _, id := range st.out {
		sum = satAdd(sum, p.tensors[id].bytes)
	}
	return sum
}

// Bounds of the workspace estimate.
const (
	// unfoldCap: beyond it cuDNN's heuristics prefer an implicit product.
	unfoldCap = 512 << 20
	// winogradCap keeps hostile shapes in range; no GPU offers more.
	winogradCap = 16 << 30
)

// workspace estimates the scratch memory of one step. For a dense 3×3
// convolution of stride 1 it is that of Winograd's F(4×4, 3×3), whose tiles
// hold 36 values for 16 of the image (Lavin and Gray, arXiv:1509.09308), of
// input and output; for others the unfolded input (im2col) up to a cap; for
// grouped and 1×1 convolutions none.
func (p *plan) workspace(st *step) int64 {
	c := st.conv
	if c == nil || c.kernel <= 1 || c.groups > 1 {
		return 0
	}
	elem := p.opt.Precision.ActivationBytes(4)
	if c.square3 && c.cin >= 16 {
		values := satMul(c.batch, satAdd(satMul(c.cin, c.in), satMul(c.cout, c.out)))
		return min(satMul(values/4, satMul(9, elem)), winogradCap)
	}
	cols := satMul(satMul(c.batch, c.cin), satMul(c.kernel, c.out))
	return min(satMul(cols, elem), unfoldCap)
}

// live walks the graph as inference does: a value is freed after its last use.
func (p *plan) live() int64 {
	last := p.lastUse()
	var now, most int64
	for i := range p.tensors {
		if t := &p.tensors[i]; t.role == roleInput {
			now = satAdd(now, t.bytes)
		}
	}
	most = now
	dying := make(map[int][]int32)
	for id, at := range last {
		dying[at] = append(dying[at], id)
	}
	for i := range p.steps {
		for _, id := range p.steps[i].out {
			if p.tensors[id].root == id && p.act(id) {
				now = satAdd(now, p.tensors[id].bytes)
			}
		}
		most = max(most, now)
		for _, id := range dying[i] {
			now -= min(now, p.tensors[id].bytes)
		}
	}
	return most
}

// lastUse maps each tensor that owns memory to the last step that reads it; an
// unread result lives until its own step, an output of the graph forever.
func (p *plan) lastUse() map[int32]int {
	last := make(map[int32]int, len(p.tensors))
	for i := range p.steps {
		for _, ids := range [][]int32{p.steps[i].out, p.steps[i].in} {
			for _, id := range ids {
				if r := p.rootAct(id); r >= 0 {
					last[r] = i
				}
			}
		}
	}
	for i := range p.g.Outputs {
		if id, ok := p.names[p.g.Outputs[i].Name]; ok {
			if r := p.rootAct(id); r >= 0 {
				delete(last, r)
			}
		}
	}
	return last
}

// maxUnknown bounds the list of operators without a rule.
const maxUnknown = 16

func (p *plan) unknownOps() []string {
	ops := slices.SortedFunc(maps.Keys(p.unknown), func(a, b string) int {
		return cmp.Or(cmp.Compare(p.unknown[b], p.unknown[a]), cmp.Compare(a, b))
	})
	return ops[:min(len(ops), maxUnknown)]
}

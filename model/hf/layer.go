package hf

import (
	"slices"
	"strings"
)

// defaultTargets are the projections that get adapters by default: queries and
// values, as in the paper (Hu et al. 2021, arXiv:2106.09685).
var defaultTargets = [...]string{"q", "v"}

// targets returns the projections that get adapters.
func (c *Config) targets() []string {
	if len(c.LoRATargets) == 0 {
		return defaultTargets[:]
	}
	return c.LoRATargets
}

// running is one stack of a model in a run: the cost of its layers follows from
// these.
type running struct {
	c     *Config
	s     *stack
	w     *widths
	batch float64
}

// tokens returns how many tokens it reads.
func (l *running) tokens() float64 { return l.batch * l.s.seq }

// cross returns how many of the encoder's outputs it reads.
func (l *running) cross() float64 { return l.batch * l.s.source }

// addTo adds the cost of its layers to n.
func (l *running) addTo(n *numbers) {
	c, s, w, t := l.c, l.s, l.w, l.tokens()
	n.params += s.params()
	n.weightBytes += s.stored * (s.matrices()*w.block + s.normWeight*w.weight)
	n.blocks += s.layers
	l.addLinears(n)
	l.addAttention(n)
	x := t * s.h
	inner := t * s.inner()
	small := x*(s.norms+2)*w.stream + inner*w.act*float64(c.activationKernels()) // norms, residual sums, activation
	n.acts += s.layers * small
	n.moved += s.layers * 2 * small
	n.norms += s.layers * s.norms
	n.acts1 += s.layers * s.used
	n.others += s.layers * 4 // residual sums, rotation or permutation, softmax
	kept := l.saved()
	n.layers += s.layers * kept
	n.kept += s.layers * x * w.stream
	n.layerSaved = max(n.layerSaved, kept)
	n.largest = max(n.largest, inner/max(1, s.used)*w.act)
	wide := 2.0
	if c.Gated {
		wide = 3
	}
	n.live = max(n.live, 2*x*w.stream+wide*inner*w.act, 2*x*w.stream+t*(2*s.queries()+2*s.kvDim)*w.act+l.liveScores())
	if s.cached && !w.train {
		n.cache += s.layers * 2 * (t + l.cross()) * s.kvDim * w.act
	}
	if w.train && c.Tiled { // the backward kernel sums the gradient of queries in float32
		n.workspace = max(n.workspace, t*s.queries()*4)
	}
}

// inner returns how many values one token has inside a feed-forward network.
func (s *stack) inner() float64 { return s.ffn*s.used + s.shared }

// queries returns how many values one token's queries have.
func (s *stack) queries() float64 { return s.heads * s.headDim }

// addLinears adds the matrix products with weights.
func (l *running) addLinears(n *numbers) {
	s, w := l.s, l.w
	for i := range s.lin {
		m := &s.lin[i]
		t := l.tokens()
		if m.source {
			t = l.cross()
		}
		t *= m.used
		adapter := m.adapter(w.rank, l.c.targets())
		n.adapted += s.stored * adapter
		n.flops += s.layers * 2 * t * (m.in*m.out + adapter/m.copies)
		n.acts += s.layers * t * m.out * w.act
		n.matrix += s.layers * t * m.out * w.act
		n.moved += s.layers * t * (m.in + m.out) * w.act
		n.linears += s.layers * m.used
		if adapter > 0 {
			n.linears += 2 * s.layers * m.used
		}
		if w.quantized() { // unpacked one matrix at a time
			n.workspace = max(n.workspace, m.in*m.out*max(w.act, 2))
		}
	}
	if s.source > 0 && !s.cached {
		n.others += s.layers
	}
}

// pairs returns how many pairs of query and key one layer scores, over all heads.
func (l *running) pairs() float64 {
	s := l.s
	n := l.batch * s.heads * s.seq * s.seq
	if s.source > 0 {
		n += l.batch * s.heads * s.seq * s.source
	}
	return n
}

// addAttention adds the products of attention without weights. Tiled kernels skip
// what a causal mask hides.
func (l *running) addAttention(n *numbers) {
	s, w, pairs := l.s, l.w, l.pairs()
	counted := pairs
	if l.c.Tiled && s.causal {
		counted -= l.batch * s.heads * s.seq * s.seq / 2
	}
	n.flops += s.layers * 4 * counted * s.headDim
	out := l.tokens() * s.queries() * w.act
	n.acts += s.layers * out
	n.matrix += s.layers * out
	n.moved += s.layers * 4 * out
	if l.c.Tiled {
		return
	}
	n.scores += s.layers * pairs * l.scoreBytes()
	n.acts += s.layers * 2 * pairs * w.act // scores and probabilities
	n.matrix += s.layers * pairs * w.act
	n.moved += s.layers * 6 * pairs * w.act
	n.largest = max(n.largest, pairs*w.act)
}

// scoreBytes returns what training keeps per pair of query and key: the softmax's
// output, in float32 and rounded where it is computed so, the dropout mask and the
// output of dropout. At 16 bits with dropout that is the 5·a·s²·b of Korthikanti et
// al.
func (l *running) scoreBytes() float64 {
	n := l.w.act
	if l.w.act < 4 && (l.c.traits.scoresFP32 || l.w.stream > l.w.act) {
		n += 4
	}
	if l.c.AttentionDropout {
		n += 1 + l.w.act
	}
	return n
}

// liveScores returns what attention without tiles holds at once in one layer.
func (l *running) liveScores() float64 {
	if l.c.Tiled {
		return 0
	}
	each := 2 * l.w.act
	if l.c.traits.scoresFP32 {
		each = l.w.act + 4
	}
	return l.pairs() * each
}

// saved returns what one layer keeps for the backward pass, in bytes. For a GPT of
// 16-bit values with dropout and without tiles it is the s·b·h·(34 + 5·a·s/h) of
// Korthikanti et al. 2022 (equation 1): 11+5as/h for attention, 19 for the
// feed-forward network, 4 for the norms.
func (l *running) saved() float64 {
	c, s, w, t, src := l.c, l.s, l.w, l.tokens(), l.cross()
	n := l.savedNorms()
	blocks := 1.0
	if s.source > 0 {
		blocks = 2
		n += l.savedInputs(src, true)
	}
	n += blocks * l.savedInputs(t, false)
	n += blocks*t*s.queries()*w.act + (t+src)*2*s.kvDim*w.act // queries, keys, values
	if c.Fused {
		n += blocks * t * (s.queries() + s.kvDim) * w.act
	}
	if c.Tiled {
		n += blocks * t * (s.queries()*w.act + s.heads*4) // output and log-sum-exp
	} else {
		n += l.pairs() * l.scoreBytes()
		if w.full || slices.Contains(c.targets(), "o") {
			n += blocks * t * s.queries() * w.act // input of the output projection
		}
	}
	if c.Dropout {
		n += (blocks + 1) * t * s.h // masks of one byte
	}
	return n + l.savedFeedForward()
}

// savedInputs returns the input of the projections into attention, kept if one of
// them trains; adapters also keep the output of their first half.
func (l *running) savedInputs(t float64, cross bool) float64 {
	s, w := l.s, l.w
	if w.full {
		return t * s.h * w.act
	}
	n := 0.0
	for _, role := range [...]string{"q", "k", "v"} {
		if slices.Contains(l.c.targets(), role) && (!cross || role != "q") {
			n = t * s.h * w.act
		}
	}
	for _, role := range l.c.targets() {
		if len(role) == 1 && (!cross || role == "k" || role == "v") {
			n += t * w.rank * w.act
		}
	}
	return n
}

// savedNorms returns the input of each norm. RMSNorm works on a float32 copy, and
// also keeps its normalized values if its weights train.
func (l *running) savedNorms() float64 {
	c, s, w, t := l.c, l.s, l.w, l.tokens()
	each := w.stream
	if c.traits.rms {
		each = 4
		if w.full {
			each += w.act
		}
	}
	wide := float64(c.traits.norms)
	if s.source > 0 {
		wide++
	}
	n := wide * t * s.h * each
	if c.traits.qkNorm {
		n += t * (s.queries() + s.kvDim) * each
	}
	return n
}

// savedFeedForward returns the input, what the activation and the gate keep, and
// the input of the last projection. A layer of experts gathers its inputs again for
// each expert that a token uses.
func (l *running) savedFeedForward() float64 {
	c, s, w, t := l.c, l.s, l.w, l.tokens()
	inner := t * s.inner() * w.act
	n := inner * float64(c.activationSaves())
	if c.Gated {
		n += 2 * inner // up projection and the gate's activation
	}
	adapts := func(role string) bool { return w.full || slices.Contains(c.targets(), role) }
	if adapts("up") || adapts("gate") {
		if c.traits.norms != 1 { // with one norm, attention keeps it already
			n += t * s.h * w.act
		}
		if s.sparse {
			n += t * s.used * s.h * w.act
		}
	}
	relu := !c.Gated && c.Activation == "relu"
	if adapts("down") && !relu { // ReLU's output is that input
		n += inner
	}
	return n
}

// activationSaves returns how many tensors the activation keeps. Some are several
// kernels rather than one: "gelu_new" is tanh's approximation spelled out, which
// keeps its input, the tanh and both factors of the product.
func (c *Config) activationSaves() int64 {
	switch strings.ToLower(c.Activation) {
	case "gelu_new", "gelu_fast", "gelu_accurate":
		return 4
	case "quick_gelu":
		return 2
	default:
		return 1
	}
}

// activationKernels returns how many kernels it runs.
func (c *Config) activationKernels() int64 {
	n := int64(1)
	if c.activationSaves() > 1 {
		n = 2 * c.activationSaves()
	}
	if c.Gated {
		n++
	}
	return n
}

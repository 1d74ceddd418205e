package hf

import (
	"slices"
	"strings"
)

// defaultTargets is where adapters go unless told otherwise: queries and
// values, as in the paper (Hu et al. 2021, arXiv:2106.09685).
var defaultTargets = [...]string{"q", "v"}

func (c *Config) targets() []string {
	if len(c.LoRATargets) == 0 {
		return defaultTargets[:]
	}
	return c.LoRATargets
}

// addStack counts the layers of one stack.
func (c *Config) addStack(n *numbers, s *stack, w *widths, batch float64) {
	t := batch * s.seq
	n.params += s.params()
	n.weightBytes += s.stored * (s.matrices()*w.block + s.normWeight*w.weight)
	n.blocks += s.layers
	c.addLinears(n, s, w, batch)
	c.addAttention(n, s, w, batch)
	x := t * s.h
	inner := t * s.inner()
	small := x*(s.norms+2)*w.stream + inner*w.act*float64(c.activationKernels()) // norms, residual sums, activation
	n.acts += s.layers * small
	n.moved += s.layers * 2 * small
	n.norms += s.layers * s.norms
	n.acts1 += s.layers * s.used
	n.others += s.layers * 4 // residual sums, rotation or permutation, softmax
	kept := c.savedLayer(s, w, batch)
	n.layers += s.layers * kept
	n.kept += s.layers * x * w.stream
	n.layerSaved = max(n.layerSaved, kept)
	n.largest = max(n.largest, inner/max(1, s.used)*w.act)
	wide := 2.0
	if c.Gated {
		wide = 3
	}
	n.live = max(n.live, 2*x*w.stream+wide*inner*w.act, 2*x*w.stream+t*(2*s.queries()+2*s.kvDim)*w.act+c.liveScores(s, w, batch))
	if s.cached && !w.train {
		n.cache += s.layers * 2 * (t + batch*s.source) * s.kvDim * w.act
	}
	if w.train && c.Tiled { // the backward kernel sums the gradient of queries in float32
		n.workspace = max(n.workspace, t*s.queries()*4)
	}
}

// inner is how many values one token has inside a feed-forward network.
func (s *stack) inner() float64 { return s.ffn*s.used + s.shared }

func (s *stack) queries() float64 { return s.heads * s.headDim }

// addLinears counts the matrix products with weights.
func (c *Config) addLinears(n *numbers, s *stack, w *widths, batch float64) {
	for i := range s.lin {
		l := &s.lin[i]
		t := batch * s.seq
		if l.source {
			t = batch * s.source
		}
		t *= l.used
		adapter := l.adapter(w.rank, c.targets())
		n.adapted += s.stored * adapter
		n.flops += s.layers * 2 * t * (l.in*l.out + adapter/l.copies)
		n.acts += s.layers * t * l.out * w.act
		n.matrix += s.layers * t * l.out * w.act
		n.moved += s.layers * t * (l.in + l.out) * w.act
		n.linears += s.layers * l.used
		if adapter > 0 {
			n.linears += 2 * s.layers * l.used
		}
		if w.quantized() { // unpacked one matrix at a time
			n.workspace = max(n.workspace, l.in*l.out*max(w.act, 2))
		}
	}
	if s.source > 0 && !s.cached {
		n.others += s.layers
	}
}

// pairs is how many pairs of query and key one layer scores, over all heads.
func (s *stack) pairs(batch float64) float64 {
	n := batch * s.heads * s.seq * s.seq
	if s.source > 0 {
		n += batch * s.heads * s.seq * s.source
	}
	return n
}

// addAttention counts the products of attention without weights. Tiled kernels
// skip what a causal mask hides.
func (c *Config) addAttention(n *numbers, s *stack, w *widths, batch float64) {
	pairs := s.pairs(batch)
	counted := pairs
	if c.Tiled && s.causal {
		counted -= batch * s.heads * s.seq * s.seq / 2
	}
	n.flops += s.layers * 4 * counted * s.headDim
	out := batch * s.seq * s.queries() * w.act
	n.acts += s.layers * out
	n.matrix += s.layers * out
	n.moved += s.layers * 4 * out
	if c.Tiled {
		return
	}
	n.scores += s.layers * pairs * c.scoreBytes(w)
	n.acts += s.layers * 2 * pairs * w.act // scores and probabilities
	n.matrix += s.layers * pairs * w.act
	n.moved += s.layers * 6 * pairs * w.act
	n.largest = max(n.largest, pairs*w.act)
}

// scoreBytes is what training keeps per pair of query and key: the softmax's
// output, in float32 and rounded where it is computed so, the dropout mask and
// what dropout puts out. At 16 bits with dropout that is the 5·a·s²·b of
// Korthikanti et al.
func (c *Config) scoreBytes(w *widths) float64 {
	n := w.act
	if w.act < 4 && (c.traits.scoresFP32 || w.stream > w.act) {
		n += 4
	}
	if c.AttentionDropout {
		n += 1 + w.act
	}
	return n
}

// liveScores is what attention without tiles holds at once in one layer.
func (c *Config) liveScores(s *stack, w *widths, batch float64) float64 {
	if c.Tiled {
		return 0
	}
	each := 2 * w.act
	if c.traits.scoresFP32 {
		each = w.act + 4
	}
	return s.pairs(batch) * each
}

// savedLayer is what one layer keeps for the backward pass, in bytes. For a
// GPT of 16-bit values with dropout and without tiles it is the
// s·b·h·(34 + 5·a·s/h) of Korthikanti et al. 2022 (equation 1): 11+5as/h for
// attention, 19 for the feed-forward network, 4 for the norms.
func (c *Config) savedLayer(s *stack, w *widths, batch float64) float64 {
	t, src := batch*s.seq, batch*s.source
	n := c.savedNorms(s, w, t)
	blocks := 1.0
	if s.source > 0 {
		blocks = 2
		n += c.savedInputs(s, w, src, true)
	}
	n += blocks * c.savedInputs(s, w, t, false)
	n += blocks*t*s.queries()*w.act + (t+src)*2*s.kvDim*w.act // queries, keys, values
	if c.Fused {
		n += blocks * t * (s.queries() + s.kvDim) * w.act
	}
	if c.Tiled {
		n += blocks * t * (s.queries()*w.act + s.heads*4) // output and log-sum-exp
	} else {
		n += s.pairs(batch) * c.scoreBytes(w)
		if w.full || slices.Contains(c.targets(), "o") {
			n += blocks * t * s.queries() * w.act // input of the output projection
		}
	}
	if c.Dropout {
		n += (blocks + 1) * t * s.h // masks of one byte
	}
	return n + c.savedFeedForward(s, w, t)
}

// savedInputs is the input of the projections into attention, kept where one of
// them trains; adapters keep what their first half puts out as well.
func (c *Config) savedInputs(s *stack, w *widths, t float64, cross bool) float64 {
	if w.full {
		return t * s.h * w.act
	}
	n := 0.0
	for _, role := range [...]string{"q", "k", "v"} {
		if slices.Contains(c.targets(), role) && (!cross || role != "q") {
			n = t * s.h * w.act
		}
	}
	for _, role := range c.targets() {
		if len(role) == 1 && (!cross || role == "k" || role == "v") {
			n += t * w.rank * w.act
		}
	}
	return n
}

// savedNorms is the input of each norm. RMSNorm works on a float32 copy, and
// keeps its normalized values too where its weights train.
func (c *Config) savedNorms(s *stack, w *widths, t float64) float64 {
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

// savedFeedForward is the input, what the activation and the gate keep, and
// the input of the last projection. A layer of experts gathers its inputs anew
// for each expert a token uses.
func (c *Config) savedFeedForward(s *stack, w *widths, t float64) float64 {
	inner := t * s.inner() * w.act
	n := inner * float64(c.activationSaves())
	if c.Gated {
		n += 2 * inner // up projection and the gate's activation
	}
	adapts := func(role string) bool { return w.full || slices.Contains(c.targets(), role) }
	if adapts("up") || adapts("gate") {
		if !c.parallel() {
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

// parallel reports whether attention and feed-forward network read the same norm.
func (c *Config) parallel() bool { return c.traits.norms == 1 }

// activationSaves is how many tensors the activation keeps. Some are not one
// kernel but several: "gelu_new" is tanh's approximation spelled out, which
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

// activationKernels is how many kernels it runs.
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

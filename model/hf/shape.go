package hf

import (
	"slices"
	"strings"
)

// linear is one matrix product with weights.
type linear struct {
	role    string // q, k, v, o, gate, up, down, router
	in, out float64
	bias    bool
	copies  float64 // experts have several, of which a token uses some
	used    float64
	source  bool // reads the encoder's output
}

func (l *linear) params() float64 {
	n := l.in * l.out
	if l.bias {
		n += l.out
	}
	return n * l.copies
}

// adapter returns the number of values of a low-rank adapter for l.
func (l *linear) adapter(rank float64, targets []string) float64 {
	if slices.Contains(targets, l.role) {
		return rank * (l.in + l.out) * l.copies
	}
	return 0
}

// stack is a run of equal layers.
type stack struct {
	layers     float64
	stored     float64 // layers with weights of their own
	lin        []linear
	h          float64
	heads      float64
	headDim    float64
	kvDim      float64
	ffn        float64 // inner width per expert or of the dense network
	used       float64 // experts per token; 1 for dense networks
	sparse     bool
	shared     float64 // width of the expert for all tokens
	norms      float64 // per layer
	normWeight float64 // values of a layer's norms
	seq        float64 // tokens a sample
	source     float64 // encoder tokens per sample that cross attention reads
	causal     bool
	cached     bool // keeps keys and values while generating
}

// tokens returns the lengths of the sequences: of the encoder or the only stack,
// and of the decoder of an encoder-decoder.
func (c *Config) tokens(seq int64) (first, second float64) {
	switch c.traits.kind {
	case vision:
		side := c.ImageSize / c.PatchSize
		return float64(side*side + 1), 0
	case speech:
		return float64(c.AudioPositions), float64(seq)
	case encoderDecoder:
		return float64(seq), float64(seq)
	default:
		return float64(seq), 0
	}
}

// stacks lays out the model for sequences of seq tokens.
func (c *Config) stacks(seq int64) []stack {
	first, second := c.tokens(seq)
	k := c.traits.kind
	out := c.split(&side{
		layers: c.Layers, heads: c.Heads, kv: c.KVHeads, ffn: c.FFN,
		seq: first, causal: k == decoder,
	})
	if k == encoderDecoder || k == speech {
		out = append(out, c.split(&side{
			layers: c.DecoderLayers, heads: c.DecoderHeads, kv: c.DecoderHeads, ffn: c.DecoderFFN,
			seq: second, source: first, causal: true,
		})...)
	}
	return out
}

// side is the encoder or the decoder.
type side struct {
	layers, heads, kv, ffn int64
	seq, source            float64
	causal                 bool
}

// split makes one stack of equal layers, or two if only some layers have experts.
func (c *Config) split(s *side) []stack {
	if c.Experts == 0 {
		return []stack{c.stack(s, s.layers, false)}
	}
	sparse := s.layers / c.SparseStep
	var out []stack
	if dense := s.layers - sparse; dense > 0 {
		out = append(out, c.stack(s, dense, false))
	}
	if sparse > 0 {
		out = append(out, c.stack(s, sparse, true))
	}
	return out
}

func (c *Config) stack(s *side, layers int64, sparse bool) stack {
	t := &c.traits
	h, q, kv := float64(c.Hidden), float64(s.heads*c.HeadDim), float64(s.kv*c.HeadDim)
	st := stack{
		layers: float64(layers), stored: float64(layers), h: h, heads: float64(s.heads), headDim: float64(c.HeadDim), kvDim: kv,
		ffn: float64(s.ffn), used: 1, sparse: sparse, norms: float64(t.norms),
		seq: s.seq, source: s.source, causal: s.causal, cached: s.causal,
	}
	if t.sharedLayers {
		st.stored = min(1, st.layers)
	}
	st.lin = attention(t, h, q, kv, false)
	if s.source > 0 {
		st.lin = append(st.lin, attention(t, h, q, kv, true)...)
		st.norms++
	}
	copies := 1.0
	if sparse {
		st.ffn, st.used, copies = float64(c.ExpertFFN), float64(c.ExpertsPerToken), float64(c.Experts)
		st.lin = append(st.lin, linear{role: "router", in: h, out: copies, copies: 1, used: 1})
	}
	st.lin = append(st.lin, c.feedForward(h, st.ffn, copies, st.used)...)
	if sparse && c.SharedFFN > 0 {
		st.shared = float64(c.SharedFFN)
		st.lin = append(st.lin, c.feedForward(h, st.shared, 1, 1)...)
		st.lin = append(st.lin, linear{role: "router", in: h, out: 1, copies: 1, used: 1})
	}
	st.normWeight = st.norms * c.normParams(h)
	if t.qkNorm {
		st.norms += 2
		st.normWeight += c.qkNormParams(q, kv)
	}
	return st
}

// attention returns the projections of one attention.
func attention(t *traits, h, q, kv float64, cross bool) []linear {
	return []linear{
		{"q", h, q, t.qkvBias, 1, 1, false},
		{"k", h, kv, t.kBias, 1, 1, cross},
		{"v", h, kv, t.qkvBias, 1, 1, cross},
		{"o", q, h, t.outBias, 1, 1, false},
	}
}

func (c *Config) feedForward(h, f, copies, used float64) []linear {
	bias := c.traits.mlpBias
	out := []linear{{"up", h, f, bias, copies, used, false}, {"down", f, h, bias, copies, used, false}}
	if c.Gated {
		out = append(out, linear{"gate", h, f, bias, copies, used, false})
	}
	return out
}

// normParams returns the weights of one norm of n values.
func (c *Config) normParams(n float64) float64 {
	switch {
	case c.traits.plainNorm:
		return 0
	case c.traits.normBias:
		return 2 * n
	default:
		return n
	}
}

// qkNormParams returns the weights of norms of queries and keys: of one head for
// most, of all heads for OLMo and Cohere.
func (c *Config) qkNormParams(q, kv float64) float64 {
	if c.Type == "olmoe" || c.Type == "olmo2" || c.Type == "cohere" {
		return q + kv
	}
	return 2 * c.normParams(float64(c.HeadDim))
}

// head is the output head on top of the layers.
type head struct {
	params  float64 // its own weights, without the shared embedding
	flops   float64 // per token or per sample
	width   float64 // of its output
	tokens  bool    // one output per token, else per sample
	lm      bool    // width is the vocabulary
	linears int64
}

// head returns the head that the architecture's name implies.
func (c *Config) head() head {
	h, v, labels := float64(c.Hidden), float64(c.Vocab), float64(max(2, c.Labels))
	pool := 0.0
	if c.traits.pooler {
		pool = h*h + h
	}
	a := c.Architecture
	switch {
	case strings.Contains(a, "Classification"):
		out := head{params: pool + h*labels, flops: 2 * (pool + h*labels), width: labels, linears: 2}
		if c.traits.kind != decoder {
			out.params += labels
		}
		out.tokens = strings.Contains(a, "TokenClassification")
		return out
	case strings.Contains(a, "QuestionAnswering"):
		return head{params: 2*h + 2, flops: 4 * h, width: 2, tokens: true, linears: 1}
	case c.traits.kind == encoder && strings.Contains(a, "LM") || strings.Contains(a, "PreTraining") && c.Vocab > 0:
		e := h
		if c.EmbedDim > 0 {
			e = float64(c.EmbedDim)
		}
		return head{params: h*e + e + 2*e + v, flops: 2 * (h*e + e*v), width: v, tokens: true, lm: true, linears: 2}
	case c.traits.kind == encoder || c.traits.kind == vision || strings.HasSuffix(a, "Model") && !strings.Contains(a, "LMHead") || c.Vocab == 0:
		if c.traits.kind == vision {
			pool = h*h + h
		}
		return head{params: pool, flops: 0, width: h, tokens: true}
	}
	out := head{flops: 2 * h * v, width: v, tokens: true, lm: true, linears: 1}
	if !c.Tied {
		out.params = h * v
	}
	if c.traits.headBias {
		out.params += v
	}
	return out
}

// outside returns the parameters before the first and after the last layer, without
// the head: embeddings, positions, norms.
func (c *Config) outside() float64 {
	t := &c.traits
	h, e := float64(c.Hidden), float64(c.Hidden)
	if c.EmbedDim > 0 {
		e = float64(c.EmbedDim)
	}
	n := float64(c.Vocab) * e
	switch t.kind {
	case vision:
		first, _ := c.tokens(0)
		patch := float64(c.PatchSize * c.PatchSize * c.Channels)
		return patch*h + h + h + first*h + c.normParams(h) // patches, class token, positions, norm
	case speech:
		bins := float64(c.AudioBins)
		n += bins*h*3 + h + h*h*3 + h + float64(c.AudioPositions)*h
	}
	if c.EmbedDim > 0 { // OPT projects in and out without bias, the others only in, with one
		n += e * h
		if c.Type == "opt" {
			n += e * h
		} else {
			n += h
		}
	}
	sides := 1.0
	if t.kind == encoderDecoder || t.kind == speech {
		sides = 2
	}
	if t.learned {
		tables := sides
		if t.kind == speech {
			tables = 1 // the encoder's is counted above
		}
		n += float64(c.Positions+t.posOffset) * h * tables
		if t.kind == encoder {
			n += float64(c.Positions+t.posOffset) * (e - h)
		}
	}
	n += float64(c.TokenTypes) * e
	if t.embedNorm {
		n += sides * c.normParams(e)
	}
	if !t.noFinalNorm {
		n += sides * c.normParams(h)
	}
	if t.relative { // buckets of relative positions, in the first layer of each side
		n += 32 * float64(c.Heads+c.DecoderHeads)
	}
	return n
}

// Params returns the exact number of parameters, as the framework's own counter
// gives it: tied weights once, without adapters.
func (c *Config) Params() int64 {
	if c.check() != nil {
		return 0
	}
	n := c.outside() + c.head().params
	for _, s := range c.stacks(1) {
		n += s.params()
	}
	return whole(n)
}

// params returns the parameters of all layers of s.
func (s *stack) params() float64 { return (s.matrices() + s.normWeight) * s.stored }

// matrices returns the number of values of one layer's linear layers.
func (s *stack) matrices() float64 {
	n := 0.0
	for i := range s.lin {
		n += s.lin[i].params()
	}
	return n
}

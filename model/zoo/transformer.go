package zoo

// transformer has the blocks of sequence networks with a given number of attention
// heads.
type transformer struct {
	*ops
	heads int64
}

// apart splits [N, S, D] into [N, H, S, D/H].
func (g transformer) apart(x val) val {
	return g.transpose(g.reshape(x, 0, 0, g.heads, x.last()/g.heads), 0, 2, 1, 3)
}

// attend is scaled dot-product attention over [N, H, S, Dh]; bias, if it has a
// name, is added to the scores.
func (g transformer) attend(q, k, v, bias val) val {
	scores := g.matmul(q, g.transpose(k, 0, 1, 3, 2))
	scores = g.mul(scores, val{name: g.scalar(0, 0, 0, 0x3e)}) // 0.125
	if bias.name != "" {
		scores = g.add(scores, bias)
	}
	y := g.matmul(g.unary("Softmax", scores), v)
	y = g.transpose(y, 0, 2, 1, 3)
	return g.reshape(y, 0, 0, y.dims[2]*y.dims[3])
}

// selfAttention is multi-head attention with one fused projection.
func (g transformer) selfAttention(x val, bias val) val {
	qkv := g.split(g.linear(x, 3*x.last()), 2, 3)
	return g.linear(g.attend(g.apart(qkv[0]), g.apart(qkv[1]), g.apart(qkv[2]), bias), x.last())
}

// vit is the vision transformer at 224×224, patch 16 (Dosovitskiy et al.,
// arXiv:2010.11929; DeiT, arXiv:2012.12877, has the same shape).
func vit(dim, heads int64, depth int) func(*ops) {
	return func(o *ops) {
		g := transformer{o, heads}
		img := g.image(224)
		x := g.conv(img, conv{out: dim, k: 16, stride: 16, bias: true})
		x = g.transpose(g.reshape(x, 0, 0, 196), 0, 2, 1)
		x = g.concat(1, g.classToken(img, dim), x)
		x = g.add(x, val{name: g.weight(1, 197, dim)})
		for range depth {
			x = g.add(x, g.selfAttention(g.layernorm(x), val{}))
			x = g.add(x, g.mlp(g.layernorm(x), 4*dim))
		}
		g.classify(g.pick(g.layernorm(x), 0))
	}
}

// classToken repeats a trained row for each sample, by the shape arithmetic
// that exporters write for x.expand(batch, -1, -1).
func (g transformer) classToken(img val, dim int64) val {
	n := g.fresh(1)
	g.node("Shape", []string{img.name}, []val{n}, num("start", 0), num("end", 1))
	shape := g.fresh(3)
	g.node("Concat", []string{n.name, g.ints(1, dim)}, []val{shape}, num("axis", 0))
	y := g.fresh(-1, 1, dim)
	g.node("Expand", []string{g.weight(1, 1, dim), shape.name}, []val{y})
	return y
}

// pick returns one position of a sequence.
func (g transformer) pick(x val, at int64) val {
	y := g.fresh(x.dims[0], x.dims[2])
	name := g.slice(x, 1, at, at+1)
	g.node("Squeeze", []string{name.name, g.ints(1)}, []val{y})
	return y
}

// bertConfig covers BERT (Devlin et al., arXiv:1810.04805) and DistilBERT
// (Sanh et al., arXiv:1910.01108, without token types and pooler).
type bertConfig struct {
	dim, heads int64
	layers     int
	distilled  bool
}

func bert(c bertConfig) func(*ops) {
	return func(o *ops) {
		const seq, vocab = 128, 30522
		g := transformer{o, c.heads}
		ids := g.input("input_ids", elemInt64, -1, seq)
		mask := g.input("mask", elemFloat, -1, 1, 1, seq)
		x := g.embed(ids, vocab, c.dim)
		if !c.distilled {
			types := g.input("token_type_ids", elemInt64, -1, seq)
			x = g.add(x, g.embed(types, 2, c.dim))
		}
		x = g.layernorm(g.addPositions(x, 512))
		for range c.layers {
			att := g.attend(g.apart(g.linear(x, c.dim)), g.apart(g.linear(x, c.dim)), g.apart(g.linear(x, c.dim)), mask)
			x = g.layernorm(g.add(x, g.unary("Dropout", g.linear(att, c.dim))))
			x = g.layernorm(g.add(x, g.unary("Dropout", g.mlp(x, 4*c.dim))))
		}
		if c.distilled {
			g.output(x)
			return
		}
		g.output(g.unary("Tanh", g.fc(g.pick(x, 0), c.dim)))
	}
}

// addPositions adds the first rows of a table of n trained positions.
func (g transformer) addPositions(x val, n int64) val {
	table := val{name: g.weight(n, x.last()), dims: []int64{n, x.last()}}
	return g.add(x, g.slice(table, 0, 0, x.dims[1]))
}

// gpt2 is GPT-2 (Radford et al. 2019) with its head tied to the embedding.
func gpt2(dim, heads int64, layers int) func(*ops) {
	return func(o *ops) {
		const seq, vocab = 512, 50257
		g := transformer{o, heads}
		ids := g.input("input_ids", elemInt64, -1, seq)
		causal := g.input("causal", elemFloat, 1, 1, seq, seq)
		table := g.weight(vocab, dim)
		x := g.fresh(-1, seq, dim)
		g.node("Gather", []string{table, ids.name}, []val{x})
		x = g.addPositions(x, 1024)
		for range layers {
			x = g.add(x, g.unary("Dropout", g.selfAttention(g.layernorm(x), causal)))
			x = g.add(x, g.unary("Dropout", g.mlp(g.layernorm(x), 4*dim)))
		}
		tied := g.transpose(val{name: table, dims: []int64{vocab, dim}}, 1, 0)
		g.output(g.matmul(g.layernorm(x), tied))
	}
}

// rmsnorm is T5's normalization, as exporters split it.
func (g transformer) rmsnorm(x val) val {
	mean := g.fresh(x.dims[0], x.dims[1], 1)
	g.node("ReduceMean", []string{g.mul(x, x).name, g.ints(-1)}, []val{mean})
	return g.scaleBy(g.binary("Div", x, g.unary("Sqrt", mean)), x.last())
}

// t5Encoder is the encoder of T5-small (Raffel et al., arXiv:1910.10683).
func t5Encoder(o *ops) {
	const seq, dim = 128, 512
	g := transformer{o, 8}
	ids := g.input("input_ids", elemInt64, -1, seq)
	x := g.embed(ids, 32128, dim)
	bias := g.relativeBias(32, seq)
	for range 6 {
		y := g.rmsnorm(x)
		att := g.attend(g.apart(g.linearNoBias(y, dim)), g.apart(g.linearNoBias(y, dim)), g.apart(g.linearNoBias(y, dim)), bias)
		x = g.add(x, g.linearNoBias(att, dim))
		x = g.add(x, g.linearNoBias(g.relu(g.linearNoBias(g.rmsnorm(x), 2048)), dim))
	}
	g.output(g.rmsnorm(x))
}

// relativeBias looks up a bias per head by relative position: [heads, seq, seq].
func (g transformer) relativeBias(rows, seq int64) val {
	t := g.fresh(seq, seq, g.heads)
	g.node("Gather", []string{g.weight(rows, g.heads), g.externalInts(seq, seq)}, []val{t})
	return g.transpose(t, 2, 0, 1)
}

// lstm is the two-layer word model of the PyTorch examples (Zaremba et al.,
// arXiv:1409.2329, medium), 35 words per step.
func lstm(g *ops) {
	const seq, hidden, vocab = 35, 650, 33278
	ids := g.input("input_ids", elemInt64, seq, -1)
	x := g.unary("Dropout", g.embed(ids, vocab, hidden))
	for range 2 {
		y := g.fresh(seq, 1, -1, hidden)
		g.node("LSTM", []string{x.name, g.weight(1, 4*hidden, hidden), g.weight(1, 4*hidden, hidden), g.weight(1, 8*hidden)},
			[]val{y}, num("hidden_size", hidden))
		z := g.fresh(seq, -1, hidden)
		g.node("Squeeze", []string{y.name, g.ints(1)}, []val{z})
		x = g.unary("Dropout", z)
	}
	g.output(g.linear(x, vocab))
}

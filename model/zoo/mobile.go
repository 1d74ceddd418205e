package zoo

import "math"

// inverted is an inverted residual block with optional squeeze-and-excite.
type inverted struct {
	expand, out, k, stride int64
	squeeze                int64 // channels of the squeeze layer, 0 for none
	act                    string
	gate                   string // activation of the squeeze's gate
}

// act applies an activation; exporters write Silu as two operators.
func (g convnet) act(x val, name string) val {
	if name == "Silu" {
		return g.silu(x)
	}
	return g.unary(name, x)
}

func (g convnet) inverted(x val, c inverted) val {
	y := x
	if c.expand != x.dims[1] {
		y = g.act(g.bn(g.conv(y, conv{out: c.expand, k: 1})), c.act)
	}
	y = g.act(g.bn(g.conv(y, conv{out: c.expand, k: c.k, stride: c.stride, pad: c.k / 2, groups: c.expand})), c.act)
	if c.squeeze > 0 {
		act := c.act
		if c.gate == "HardSigmoid" {
			act = "Relu"
		}
		s := g.act(g.conv(g.gap(y), conv{out: c.squeeze, k: 1, bias: true}), act)
		y = g.mul(y, g.unary(c.gate, g.conv(s, conv{out: c.expand, k: 1, bias: true})))
	}
	y = g.bn(g.conv(y, conv{out: c.out, k: 1}))
	if c.stride == 1 && c.out == x.dims[1] {
		y = g.add(y, x)
	}
	return y
}

// mobilenetV2 is MobileNetV2 (Sandler et al., arXiv:1801.04381).
func mobilenetV2(o *ops) {
	g := convnet{o}
	x := g.unary("Clip", g.bn(g.conv(g.image(224), conv{out: 32, k: 3, stride: 2, pad: 1})))
	for _, s := range [][4]int64{{1, 16, 1, 1}, {6, 24, 2, 2}, {6, 32, 3, 2}, {6, 64, 4, 2}, {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}} {
		stride := s[3]
		for range s[2] {
			x = g.inverted(x, inverted{expand: x.dims[1] * s[0], out: s[1], k: 3, stride: stride, act: "Clip"})
			stride = 1
		}
	}
	x = g.unary("Clip", g.bn(g.conv(x, conv{out: 1280, k: 1})))
	g.classify(g.unary("Dropout", g.pooled(x)))
}

// divisible rounds channels to a multiple of 8, at most 10 % down.
func divisible(v float64) int64 {
	n := max(8, int64(v+4)/8*8)
	if float64(n) < 0.9*v {
		n += 8
	}
	return n
}

// v3row is a row of tables 1 and 2 of MobileNetV3: kernel, expansion, output,
// squeeze (0 or 1), hard-swish (0 or 1), stride.
type v3row [6]int64

var (
	v3Large = []v3row{
		{3, 16, 16, 0, 0, 1}, {3, 64, 24, 0, 0, 2}, {3, 72, 24, 0, 0, 1}, {5, 72, 40, 1, 0, 2}, {5, 120, 40, 1, 0, 1},
		{5, 120, 40, 1, 0, 1}, {3, 240, 80, 0, 1, 2}, {3, 200, 80, 0, 1, 1}, {3, 184, 80, 0, 1, 1}, {3, 184, 80, 0, 1, 1},
		{3, 480, 112, 1, 1, 1}, {3, 672, 112, 1, 1, 1}, {5, 672, 160, 1, 1, 2}, {5, 960, 160, 1, 1, 1}, {5, 960, 160, 1, 1, 1},
	}
	v3Small = []v3row{
		{3, 16, 16, 1, 0, 2}, {3, 72, 24, 0, 0, 2}, {3, 88, 24, 0, 0, 1}, {5, 96, 40, 1, 1, 2}, {5, 240, 40, 1, 1, 1},
		{5, 240, 40, 1, 1, 1}, {5, 120, 48, 1, 1, 1}, {5, 144, 48, 1, 1, 1}, {5, 288, 96, 1, 1, 2}, {5, 576, 96, 1, 1, 1}, {5, 576, 96, 1, 1, 1},
	}
)

// mobilenetV3 is MobileNetV3 (Howard et al., arXiv:1905.02244).
func mobilenetV3(rows []v3row, last, hidden int64) func(*ops) {
	return func(o *ops) {
		g := convnet{o}
		x := g.unary("HardSwish", g.bn(g.conv(g.image(224), conv{out: 16, k: 3, stride: 2, pad: 1})))
		for _, r := range rows {
			c := inverted{k: r[0], expand: r[1], out: r[2], stride: r[5], act: "Relu", gate: "HardSigmoid"}
			if r[3] == 1 {
				c.squeeze = divisible(float64(r[1]) / 4)
			}
			if r[4] == 1 {
				c.act = "HardSwish"
			}
			x = g.inverted(x, c)
		}
		x = g.unary("HardSwish", g.bn(g.conv(x, conv{out: last, k: 1})))
		x = g.unary("HardSwish", g.fc(g.pooled(x), hidden))
		g.classify(g.unary("Dropout", x))
	}
}

// efficientnet is EfficientNet (Tan and Le, arXiv:1905.11946) with its width
// and depth multipliers.
func efficientnet(width, depth float64, size int64) func(*ops) {
	return func(o *ops) {
		g := convnet{o}
		x := g.silu(g.bn(g.conv(g.image(size), conv{out: divisible(32 * width), k: 3, stride: 2, pad: 1})))
		for _, s := range [][5]int64{{1, 3, 1, 16, 1}, {6, 3, 2, 24, 2}, {6, 5, 2, 40, 2}, {6, 3, 2, 80, 3}, {6, 5, 1, 112, 3}, {6, 5, 2, 192, 4}, {6, 3, 1, 320, 1}} {
			stride := s[2]
			for range int(math.Ceil(float64(s[4]) * depth)) {
				x = g.inverted(x, inverted{
					expand: x.dims[1] * s[0], out: divisible(float64(s[3]) * width), k: s[1], stride: stride,
					squeeze: max(1, x.dims[1]/4), act: "Silu", gate: "Sigmoid",
				})
				stride = 1
			}
		}
		x = g.silu(g.bn(g.conv(x, conv{out: 4 * x.dims[1], k: 1})))
		g.classify(g.unary("Dropout", g.pooled(x)))
	}
}

// convnext is ConvNeXt (Liu et al., arXiv:2201.03545), width 96.
func convnext(depths [4]int) func(*ops) {
	return func(o *ops) {
		g := convnet{o}
		x := g.norm2d(g.conv(g.image(224), conv{out: 96, k: 4, stride: 4, bias: true}))
		for stage, n := range depths {
			if stage > 0 {
				x = g.conv(g.norm2d(x), conv{out: int64(96) << stage, k: 2, stride: 2, bias: true})
			}
			for range n {
				c := x.dims[1]
				y := g.conv(x, conv{out: c, k: 7, pad: 3, groups: c, bias: true})
				y = g.mlp(g.layernorm(g.transpose(y, 0, 2, 3, 1)), 4*c)
				x = g.add(x, g.transpose(g.scaleBy(y, c), 0, 3, 1, 2))
			}
		}
		g.classify(g.layernorm(g.pooled(x)))
	}
}

// norm2d is a layer norm over the channels of images.
func (g convnet) norm2d(x val) val {
	return g.transpose(g.layernorm(g.transpose(x, 0, 2, 3, 1)), 0, 3, 1, 2)
}

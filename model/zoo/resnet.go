package zoo

import "cmp"

// resnetConfig covers ResNet, Wide ResNet and ResNeXt (He et al., arXiv:1512.03385;
// arXiv:1605.07146; arXiv:1611.05431) as in torchvision.
type resnetConfig struct {
	blocks [4]int
	basic  bool
	width  int64 // channels per group of the first stage's bottleneck, 64 by default
	groups int64
}

func resnet(c resnetConfig) func(*ops) {
	return func(o *ops) {
		g := convnet{o}
		x := g.cbr(g.image(224), conv{out: 64, k: 7, stride: 2, pad: 3})
		x = g.maxpool(x, 3, 2, 1)
		for stage, n := range c.blocks {
			planes := int64(64) << stage
			for i := range n {
				stride := int64(1)
				if stage > 0 && i == 0 {
					stride = 2
				}
				if c.basic {
					x = g.basicBlock(x, planes, stride)
				} else {
					x = g.bottleneck(x, planes, stride, c)
				}
			}
		}
		g.classify(g.pooled(x))
	}
}

func (g convnet) shortcut(x val, out, stride int64) val {
	if stride == 1 && x.dims[1] == out {
		return x
	}
	return g.bn(g.conv(x, conv{out: out, k: 1, stride: stride}))
}

func (g convnet) basicBlock(x val, planes, stride int64) val {
	y := g.cbr(x, conv{out: planes, k: 3, stride: stride, pad: 1})
	y = g.bn(g.conv(y, conv{out: planes, k: 3, pad: 1}))
	return g.relu(g.add(y, g.shortcut(x, planes, stride)))
}

func (g convnet) bottleneck(x val, planes, stride int64, c resnetConfig) val {
	groups, base := max(c.groups, 1), c.width
	base = cmp.Or(base, 64)
	mid := planes * base / 64 * groups
	y := g.cbr(x, conv{out: mid, k: 1})
	y = g.cbr(y, conv{out: mid, k: 3, stride: stride, pad: 1, groups: groups})
	y = g.bn(g.conv(y, conv{out: planes * 4, k: 1}))
	return g.relu(g.add(y, g.shortcut(x, planes*4, stride)))
}

// regnetX is RegNetX (Radosavovic et al., arXiv:2003.13678), bottleneck ratio 1.
func regnetX(widths, depths [4]int64, groupWidth int64) func(*ops) {
	return func(o *ops) {
		g := convnet{o}
		x := g.cbr(g.image(224), conv{out: 32, k: 3, stride: 2, pad: 1})
		for stage, w := range widths {
			for i := range depths[stage] {
				stride := int64(1)
				if i == 0 {
					stride = 2
				}
				y := g.cbr(x, conv{out: w, k: 1})
				y = g.cbr(y, conv{out: w, k: 3, stride: stride, pad: 1, groups: w / groupWidth})
				y = g.bn(g.conv(y, conv{out: w, k: 1}))
				x = g.relu(g.add(y, g.shortcut(x, w, stride)))
			}
		}
		g.classify(g.pooled(x))
	}
}

// densenet is DenseNet-BC with growth 32 (Huang et al., arXiv:1608.06993).
func densenet(blocks [4]int) func(*ops) {
	return func(o *ops) {
		g := convnet{o}
		x := g.cbr(g.image(224), conv{out: 64, k: 7, stride: 2, pad: 3})
		x = g.maxpool(x, 3, 2, 1)
		for stage, n := range blocks {
			for range n {
				y := g.conv(g.relu(g.bn(x)), conv{out: 128, k: 1})
				y = g.conv(g.relu(g.bn(y)), conv{out: 32, k: 3, pad: 1})
				x = g.concat(1, x, y)
			}
			if stage < 3 {
				x = g.conv(g.relu(g.bn(x)), conv{out: x.dims[1] / 2, k: 1})
				x = g.pool("AveragePool", x, 2, 2, 0)
			}
		}
		g.classify(g.pooled(g.relu(g.bn(x))))
	}
}

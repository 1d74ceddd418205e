package zoo

// vgg is VGG (Simonyan and Zisserman, arXiv:1409.1556); blocks are the
// convolutions before each of the five pools.
func vgg(blocks [5]int, norm bool) func(*ops) {
	return func(o *ops) {
		g := convnet{o}
		x := g.image(224)
		for stage, n := range blocks {
			for range n {
				x = g.conv(x, conv{out: min(512, int64(64)<<stage), k: 3, pad: 1, bias: true})
				if norm {
					x = g.bn(x)
				}
				x = g.relu(x)
			}
			x = g.maxpool(x, 2, 2, 0)
		}
		g.classifier(g.flatten(x))
	}
}

// convnet has the blocks of convolutional networks on images.
type convnet struct{ *ops }

// classifier is the three linear layers of AlexNet and VGG.
func (g convnet) classifier(x val) {
	x = g.unary("Dropout", g.relu(g.fc(x, 4096)))
	x = g.unary("Dropout", g.relu(g.fc(x, 4096)))
	g.classify(x)
}

// alexnet is torchvision's one-column AlexNet (arXiv:1404.5997).
func alexnet(o *ops) {
	g := convnet{o}
	x := g.relu(g.conv(g.image(224), conv{out: 64, k: 11, stride: 4, pad: 2, bias: true}))
	x = g.maxpool(x, 3, 2, 0)
	x = g.relu(g.conv(x, conv{out: 192, k: 5, pad: 2, bias: true}))
	x = g.maxpool(x, 3, 2, 0)
	for _, out := range []int64{384, 256, 256} {
		x = g.relu(g.conv(x, conv{out: out, k: 3, pad: 1, bias: true}))
	}
	g.classifier(g.flatten(g.maxpool(x, 3, 2, 0)))
}

// fire is a block of SqueezeNet.
func (g convnet) fire(x val, squeeze, expand int64) val {
	s := g.relu(g.conv(x, conv{out: squeeze, k: 1, bias: true}))
	return g.concat(1,
		g.relu(g.conv(s, conv{out: expand, k: 1, bias: true})),
		g.relu(g.conv(s, conv{out: expand, k: 3, pad: 1, bias: true})))
}

// squeezenet is SqueezeNet 1.1 (Iandola et al., arXiv:1602.07360).
func squeezenet(o *ops) {
	g := convnet{o}
	x := g.relu(g.conv(g.image(224), conv{out: 64, k: 3, stride: 2, bias: true}))
	x = g.maxpoolCeil(x, 3, 2, 0)
	x = g.fire(g.fire(x, 16, 64), 16, 64)
	x = g.maxpoolCeil(x, 3, 2, 0)
	x = g.fire(g.fire(x, 32, 128), 32, 128)
	x = g.maxpoolCeil(x, 3, 2, 0)
	x = g.fire(g.fire(g.fire(g.fire(x, 48, 192), 48, 192), 64, 256), 64, 256)
	x = g.relu(g.conv(g.unary("Dropout", x), conv{out: 1000, k: 1, bias: true}))
	g.output(g.pooled(x))
}

// cbr is a convolution with batch normalization and activation.
func (g convnet) cbr(x val, c conv) val { return g.relu(g.bn(g.conv(x, c))) }

// inception is a GoogLeNet block; like torchvision it has 3×3 where the paper
// has 5×5.
func (g convnet) inception(x val, c1, r3, c3, r5, c5, proj int64) val {
	return g.concat(1,
		g.cbr(x, conv{out: c1, k: 1}),
		g.cbr(g.cbr(x, conv{out: r3, k: 1}), conv{out: c3, k: 3, pad: 1}),
		g.cbr(g.cbr(x, conv{out: r5, k: 1}), conv{out: c5, k: 3, pad: 1}),
		g.cbr(g.maxpool(x, 3, 1, 1), conv{out: proj, k: 1}))
}

// googlenet is GoogLeNet (Szegedy et al., arXiv:1409.4842) with batch
// normalization and without its auxiliary heads.
func googlenet(o *ops) {
	g := convnet{o}
	x := g.cbr(g.image(224), conv{out: 64, k: 7, stride: 2, pad: 3})
	x = g.maxpoolCeil(x, 3, 2, 0)
	x = g.cbr(g.cbr(x, conv{out: 64, k: 1}), conv{out: 192, k: 3, pad: 1})
	x = g.maxpoolCeil(x, 3, 2, 0)
	x = g.inception(x, 64, 96, 128, 16, 32, 32)
	x = g.inception(x, 128, 128, 192, 32, 96, 64)
	x = g.maxpoolCeil(x, 3, 2, 0)
	x = g.inception(x, 192, 96, 208, 16, 48, 64)
	x = g.inception(x, 160, 112, 224, 24, 64, 64)
	x = g.inception(x, 128, 128, 256, 24, 64, 64)
	x = g.inception(x, 112, 144, 288, 32, 64, 64)
	x = g.inception(x, 256, 160, 320, 32, 128, 128)
	x = g.maxpoolCeil(x, 2, 2, 0)
	x = g.inception(x, 256, 160, 320, 32, 128, 128)
	x = g.inception(x, 384, 192, 384, 48, 128, 128)
	g.classify(g.unary("Dropout", g.pooled(x)))
}

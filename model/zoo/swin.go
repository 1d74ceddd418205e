package zoo

// swinTiny is Swin-T (Liu et al., arXiv:2103.14030), window 7.
func swinTiny(o *ops) {
	g := transformer{o, 3}
	x := g.conv(g.image(224), conv{out: 96, k: 4, stride: 4, bias: true})
	x = g.layernorm(g.transpose(x, 0, 2, 3, 1))
	for stage, depth := range []int{2, 2, 6, 2} {
		if stage > 0 {
			g.heads *= 2
			x = g.mergePatches(x)
		}
		for i := range depth {
			shift := int64(0)
			if i%2 == 1 && x.dims[1] > 7 {
				shift = 3
			}
			x = g.add(x, g.windowAttention(g.layernorm(x), shift))
			x = g.add(x, g.mlp(g.layernorm(x), 4*x.last()))
		}
	}
	g.classify(g.pooled(g.transpose(g.layernorm(x), 0, 3, 1, 2)))
}

// mergePatches joins each 2×2 patch and halves the joined channels.
func (g transformer) mergePatches(x val) val {
	h, w, c := x.dims[1], x.dims[2], x.dims[3]
	y := g.reshape(x, -1, h/2, 2, w/2, 2, c)
	y = g.reshape(g.transpose(y, 0, 1, 3, 4, 2, 5), -1, h/2, w/2, 4*c)
	return g.linearNoBias(g.layernorm(y), 2*c)
}

// roll shifts an axis cyclically.
func (g transformer) roll(x val, axis, by int64) val {
	return g.concat(axis, g.slice(x, axis, by, x.dims[axis]), g.slice(x, axis, 0, by))
}

// windowAttention is attention within windows, which are shifted by shift.
func (g transformer) windowAttention(x val, shift int64) val {
	const win = 7
	h, w, c := x.dims[1], x.dims[2], x.dims[3]
	if shift > 0 {
		x = g.roll(g.roll(x, 1, shift), 2, shift)
	}
	y := g.reshape(x, -1, h/win, win, w/win, win, c)
	y = g.reshape(g.transpose(y, 0, 1, 3, 2, 4, 5), -1, win*win, c)
	y = g.selfAttention(y, g.relativeBias((2*win-1)*(2*win-1), win*win))
	y = g.reshape(y, -1, h/win, w/win, win, win, c)
	y = g.reshape(g.transpose(y, 0, 1, 3, 2, 4, 5), -1, h, w, c)
	if shift > 0 {
		y = g.roll(g.roll(y, 1, h-shift), 2, w-shift)
	}
	return y
}

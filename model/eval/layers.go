package eval

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// layer is one layer of a sequential network: its output elements per sample, and
// its parameters.
type layer struct {
	kind   string // lower case
	elems  int64
	params int64
	side   int64 // width of the feature map if a table gives it
}

// Bounds of a layer list.
const (
	maxLayers     = 1 << 14
	maxLayerElems = int64(1) << 40 // sums of all layers stay below 2^60
)

// parseLayers parses a Python list of tuples, [('conv2d', 100, 20), …].
func parseLayers(s string) ([]layer, error) {
	s = strings.TrimSpace(s)
	body, ok := strings.CutPrefix(s, "[")
	if body, ok = cutBoth(body, ok, "]"); !ok {
		return nil, errors.New("layer list: must be enclosed in [ and ]")
	}
	var out []layer
	for body = strings.TrimSpace(body); body != ""; {
		open, rest, ok := strings.Cut(body, ")")
		tuple, opened := strings.CutPrefix(strings.TrimSpace(open), "(")
		if !ok || !opened {
			return nil, fmt.Errorf("layer %d: must be a tuple in parentheses", len(out)+1)
		}
		l, err := parseLayer(tuple)
		if err != nil {
			return nil, fmt.Errorf("layer %d: %w", len(out)+1, err)
		}
		if out = append(out, l); len(out) > maxLayers {
			return nil, fmt.Errorf("layer list: has more than %d layers", maxLayers)
		}
		body = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(rest), ","))
	}
	return out, nil
}

func cutBoth(s string, ok bool, suffix string) (string, bool) {
	s, cut := strings.CutSuffix(s, suffix)
	return s, ok && cut
}

func parseLayer(tuple string) (layer, error) {
	f := strings.Split(tuple, ",")
	if len(f) != 3 {
		return layer{}, fmt.Errorf("has %d fields, not 3: kind, elements, parameters", len(f))
	}
	kind := strings.Trim(strings.TrimSpace(f[0]), `'"`)
	l := layer{kind: strings.ToLower(kind)}
	for i, p := range []*int64{&l.elems, &l.params} {
		v, err := strconv.ParseInt(strings.TrimSpace(f[i+1]), 10, 64)
		if err != nil || v < 0 || v > maxLayerElems {
			return layer{}, fmt.Errorf("figure %.20q: must be a whole number of 0 to %d", f[i+1], maxLayerElems)
		}
		*p = v
	}
	return l, nil
}

// keeps is what autograd keeps of a layer until its backward pass, by PyTorch's
// derivatives.yaml.
type keeps uint8

const (
	keepsNothing keeps = iota
	keepsInput
	keepsOutput
	keepsMask // one byte per element
	isView    // its output is its input
)

// layerKeeps returns what a layer of a kind keeps if it is not in place. An unknown
// kind keeps its input, to be on the safe side.
func layerKeeps(kind string) keeps {
	switch kind {
	case "relu", "relu6", "tanh", "sigmoid", "softmax", "logsoftmax":
		return keepsOutput
	case "dropout", "dropout2d":
		return keepsMask
	case "identity", "none", "flatten", "":
		return isView
	case "adaptive_avg_pool2d", "adaptiveavgpool2d":
		return keepsNothing // to 1×1 it is a mean, which needs no values
	}
	return keepsInput
}

// shape is the part of a network's structure that a layer list alone does not show.
type shape uint8

const (
	sequential shape = iota
	residual         // blocks of two 3×3 convolutions with a shortcut
	dense            // convolutions read all outputs before them
)

// walk follows a list layer by layer. Figures are per sample.
type walk struct {
	shape shape
	cur   int64 // elements of the current tensor
	kept  bool  // and whether it is kept for the backward pass
	side  int64 // height and width of feature maps, 0 for vectors
	chans int64
	block int64 // elements of a residual block's input, which is kept
	three int   // 3×3 convolutions seen

	saved, masks, acts, matrix, moved, largest, live, params int64 // elements; masks in bytes
	flops                                                    float64
	convs, linears, activations, norms, others               int64
}

// walkLayers adds up the cost of a network with the given input.
func walkLayers(ls []layer, sh shape, inputElems, side, channels int64) walk {
	w := walk{shape: sh, cur: inputElems, side: side, chans: channels}
	for _, l := range ls {
		switch {
		case strings.HasPrefix(l.kind, "conv"):
			w.conv(l)
		case l.kind == "linear":
			w.keep()
			w.flops += 2 * float64(l.params)
			w.linears++
			w.matrix += l.elems
		case strings.Contains(l.kind, "norm"):
			w.keep()
			w.norms++
		default:
			w.plain(l)
			continue
		}
		w.put(l, false)
	}
	return w
}

func (w *walk) keep() {
	if !w.kept {
		w.saved += w.cur
		w.kept = true
	}
}

// put makes the layer's output the current tensor.
func (w *walk) put(l layer, kept bool) {
	w.moved += w.cur + l.elems + l.params
	w.live = max(w.live, w.cur+l.elems)
	w.acts += l.elems
	w.params += l.params
	w.largest = max(w.largest, l.elems)
	w.cur, w.kept = l.elems, kept
	if kept {
		w.saved += l.elems
	}
}

// plain handles a layer that computes element by element, or pools.
func (w *walk) plain(l layer) {
	k := layerKeeps(l.kind)
	switch {
	case k == isView:
		return
	case strings.Contains(l.kind, "pool") || strings.HasPrefix(l.kind, "drop"):
		w.others++
	default:
		w.activations++
	}
	switch k {
	case keepsInput:
		w.keep()
	case keepsMask:
		w.masks += l.elems
	}
	w.put(l, k == keepsOutput)
}

// conv infers the shape of a convolution, since the list gives only its output's
// size and its parameters, and any layers before it that the list omits.
func (w *walk) conv(l layer) {
	w.convs++
	w.matrix += l.elems
	side, cin, kernel := w.convShape(l)
	if side == 0 { // not a shape that can be explained
		w.keep()
		w.flops += 2 * float64(l.params) * float64(max(1, w.side*w.side))
		return
	}
	w.flops += 2 * float64(l.params) * float64(side*side)
	in := side
	if w.shape == residual {
		if w.three%2 == 0 && w.three > 0 && w.block == 0 {
			w.kept = false // the sum of the last block, which nothing has kept yet
		}
		in = w.side
	} else if side < w.side {
		w.pool(side)
	}
	read := min(cin*in*in, maxLayerElems)
	switch {
	case read > w.cur && w.shape == dense: // a concatenation, made for this layer only
		w.saved += read
		w.acts += read
	case w.block > 0 && read != w.cur: // the block's input, kept for the shortcut
	default:
		w.keep()
	}
	if w.shape == residual {
		w.countBlock(kernel)
	}
	w.side, w.chans = side, l.elems/(side*side)
}

func (w *walk) countBlock(kernel int64) {
	if kernel == 1 {
		w.block = w.cur
		return
	}
	w.block = 0
	w.three++
}

// pool adds a 2×2 pooling that the list omits: a maximum, whose indices of eight
// bytes are kept, or in dense networks a mean.
func (w *walk) pool(side int64) {
	w.keep()
	out := w.chans * side * side
	if w.shape != dense {
		w.masks += 8 * out
	}
	w.others++
	w.put(layer{elems: out}, false)
}

// convShape explains a convolution: output side, input channels, kernel. The
// side is the current one or smaller by powers of two; 0 if none fits.
func (w *walk) convShape(l layer) (side, cin, kernel int64) {
	best := int64(0)
	for s, n := w.side, 0; s > 0 && n < 12; n++ {
		if out := l.elems / (s * s); out > 0 && l.elems%(s*s) == 0 && l.params%out == 0 && l.params/out > 1 {
			per := l.params/out - 1 // less the bias
			for _, k := range []int64{3, 1} {
				if per == w.chans*k*k {
					return s, w.chans, k
				}
				if per%(k*k) == 0 && best == 0 {
					best, side, cin, kernel = s, s, per/(k*k), k
				}
			}
		}
		if s == 1 {
			break
		}
		if s%2 == 1 && w.shape == residual {
			s = (s + 1) / 2 // a strided convolution rounds up, pooling down
		} else {
			s /= 2
		}
	}
	return side, cin, kernel
}

// whole rounds to an integer within the range of model.Features.
func whole(v float64) int64 {
	if !(v > 0) {
		return 0
	}
	return int64(math.Round(min(v, 1<<60)))
}

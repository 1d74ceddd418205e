package eval

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/berth-scheduler/berth/model"
)

// layerTable is the content of a printed summary of a PyTorch model.
type layerTable struct {
	batch  int64 // batch of the shapes; 0 if they are of one sample
	layers []layer
	params int64
	// actBytes is the output of all layers, flops twice the multiply-adds, both of
	// the whole batch, for tables that name only the upper layers.
	actBytes, inputBytes float64
	flops                float64
	norms                bool // such a table has norms
	transformer          *transformer
}

// transformer is the shape of a language model in a table that has only modules and
// parameters.
type transformer struct {
	kind                       string // "bert", "gpt2", "xlnet"
	hidden, blocks, ffn, vocab int64
	positions                  int64
}

// Bounds of a layer table.
const (
	maxTableLines = 1 << 14
	maxTableLine  = 4 << 10
)

// parseLayerTable parses the tables that torchsummary ("Conv2d-1 [-1, 64, …]"),
// torchinfo ("├─Conv2d: 1-1 …") and modelsummary ("(fc): Linear(…), 10 params")
// print.
func parseLayerTable(r io.Reader) (*layerTable, error) {
	t := &layerTable{}
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, maxTableLine), maxTableLine)
	n, tree := 0, false
	for ; sc.Scan(); n++ {
		if n == maxTableLines {
			return nil, fmt.Errorf("layer table: has more than %d lines", maxTableLines)
		}
		s := strings.TrimSpace(sc.Text())
		switch {
		case strings.ContainsAny(s, "├└"):
			tree, t.norms = true, t.norms || strings.Contains(s, "Norm")
			if t.batch == 0 {
				t.batch = leadingDim(s)
			}
		case t.footer(s, tree), t.module(s):
		default:
			t.summaryLine(s)
		}
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("layer table: %w", err)
	}
	if t.params == 0 && len(t.layers) == 0 {
		return nil, errors.New("layer table: names no layer and no parameters")
	}
	return t, nil
}

// footer parses the totals below the layers. torchinfo counts a batch in 10^6
// bytes, torchsummary in MiB; both count activations twice, for the backward pass.
func (t *layerTable) footer(s string, tree bool) bool {
	key, val, ok := strings.Cut(s, ":")
	if !ok {
		return false
	}
	v, _, num := number(val)
	if !num || v < 0 {
		return false
	}
	mb := float64(mib)
	if tree {
		mb = 1e6
	}
	switch {
	case key == "Total params":
		t.params = whole(v)
	case strings.HasPrefix(key, "Total mult-adds"):
		t.flops = 2 * v * multiple(key)
	case key == "Input size (MB)":
		t.inputBytes = v * mb
	case key == "Forward/backward pass size (MB)":
		t.actBytes = v * mb / 2
	default:
		return false
	}
	return true
}

// leadingDim returns the first dimension of the first shape of a table or of a
// stack of images in a line, 0 if there is none.
func leadingDim(s string) int64 {
	for _, group := range strings.Split(s, "[")[1:] {
		dims := strings.Split(strings.SplitN(group, "]", 2)[0], ",")
		if len(dims) != 2 && len(dims) != 4 {
			continue
		}
		if v, _, ok := numberOf(dims[0]); ok && v > 0 {
			return v
		}
	}
	return 0
}

// multiple parses torchinfo's "(Units.GIGABYTES)" or "(G)".
func multiple(key string) float64 {
	key = strings.ToUpper(key)
	for _, m := range []struct {
		words []string
		v     float64
	}{{[]string{"TERA", "(T)"}, 1e12}, {[]string{"GIGA", "(G)"}, 1e9}, {[]string{"MEGA", "(M)"}, 1e6}, {[]string{"KILO", "(K)"}, 1e3}} {
		for _, w := range m.words {
			if strings.Contains(key, w) {
				return m.v
			}
		}
	}
	return 1
}

// summaryLine parses "Conv2d-1  [-1, 64, 112, 112]  9,408".
func (t *layerTable) summaryLine(s string) {
	name, rest, ok := strings.Cut(s, "[")
	dims, params, closed := strings.Cut(rest, "]")
	kind, number1, dash := strings.Cut(strings.TrimSpace(name), "-")
	if _, err := strconv.Atoi(number1); !ok || !closed || !dash || err != nil {
		return
	}
	elems, batch, side := int64(1), int64(0), int64(0)
	for i, d := range strings.Split(dims, ",") {
		v, err := strconv.ParseInt(strings.TrimSpace(d), 10, 64)
		switch {
		case err != nil || v < -1 || v > 1<<31:
			return
		case i == 0:
			batch = max(0, v)
		default:
			elems = min(elems*max(1, v), maxLayerElems)
			side = v
		}
	}
	p, _, ok := numberOf(params)
	if !ok {
		return
	}
	if len(t.layers) == 0 {
		t.batch = batch
	}
	if len(t.layers) < maxLayers {
		t.layers = append(t.layers, layer{kind: strings.ToLower(kind), elems: elems, params: min(p, maxLayerElems), side: side})
	}
}

func numberOf(s string) (int64, string, bool) {
	v, unit, ok := number(s)
	return whole(v), unit, ok && v >= 0
}

// module parses "(query): Linear(in_features=768, out_features=768, bias=True),
// 590,592 params" of a language model.
func (t *layerTable) module(s string) bool {
	open := strings.Index(s, "(")
	if open < 0 || strings.ContainsAny(s, "[") && !strings.Contains(s, "): ") {
		return false
	}
	name, body := "", s
	if strings.HasPrefix(s, "(") {
		var ok bool
		if name, body, ok = strings.Cut(strings.TrimPrefix(s, "("), "): "); !ok {
			return false
		}
	}
	kind, args, ok := strings.Cut(body, "(")
	if !ok {
		return false
	}
	if t.transformer == nil {
		for _, k := range []string{"bert", "gpt2", "xlnet"} {
			if (name == "" || name == "module") && strings.HasPrefix(strings.ToLower(kind), k) {
				t.transformer = &transformer{kind: k}
			}
		}
		return t.transformer != nil || kind == "DataParallel"
	}
	t.transformer.add(name, kind, args)
	return true
}

func (x *transformer) add(name, kind, args string) {
	a, b := twoNumbers(args)
	switch {
	case strings.HasSuffix(kind, "Layer") || strings.HasSuffix(kind, "Block"):
		x.blocks++
	case kind == "Embedding" && x.vocab == 0:
		x.vocab, x.hidden = a, b
	case kind == "Embedding" && x.positions == 0:
		x.positions = a
	case name == "c_fc" && x.hidden > 0: // Conv1D prints only its parameters
		if _, p, ok := strings.Cut(args, "), "); ok {
			n, _, _ := numberOf(p)
			x.ffn = n / (x.hidden + 1)
		}
	case kind == "Linear" && x.hidden > 0 && a == x.hidden && b > x.hidden && b < 64*x.hidden && x.ffn == 0:
		x.ffn = b
	}
}

// twoNumbers parses "768, 3072" or "in_features=768, out_features=3072".
func twoNumbers(args string) (a, b int64) {
	out := [2]int64{}
	for i, f := range strings.SplitN(args, ",", 3) {
		if i == 2 {
			break
		}
		if _, v, ok := strings.Cut(f, "="); ok {
			f = v
		}
		out[i], _, _ = numberOf(strings.TrimRight(strings.TrimSpace(f), ")"))
	}
	return out[0], out[1]
}

// features computes a run's features from a table of layers. It returns false if
// the table has only modules.
func (t *layerTable) features(run model.Run) (model.Features, bool) {
	f := model.Features{Source: model.SourceGraph, Run: run, Params: t.params, ParamBytes: 4 * t.params}
	per := float64(run.Batch) / float64(max(1, t.batch)) // from the table's batch to the run's
	switch {
	case len(t.layers) > 0:
		f.InputBytes = whole(t.inputBytes * per)
		w := walkTable(t)
		input := f.InputBytes / 4 / max(1, run.Batch)
		w.fill(&f, input)
		f.Params, f.ParamBytes = t.params, 4*t.params
		return f, true
	case t.actBytes > 0: // a tree of upper layers
		// The total covers the layers that have parameters. Autograd keeps as much:
		// a convolution's output for the norm after it, and the activation's
		// output, which is as large as the norm's; a linear layer's through the
		// activation after it.
		f.InputBytes, f.SavedBytes, f.ActBytes, f.FLOPs = whole(t.inputBytes*per), whole(t.actBytes*per), whole(1.5*t.actBytes*per), whole(t.flops*per)
		f.MatrixBytes = f.SavedBytes
		if t.norms {
			f.MatrixBytes /= 2
		}
		f.Partial = true
		return f, true
	}
	return f, false
}

// walkTable follows a list that, unlike parseLayers', has containers after their
// contents: one whose output has another size joins branches, one of the same size
// is not a layer.
func walkTable(t *layerTable) walk {
	in := int64(0)
	if t.inputBytes > 0 {
		in = whole(t.inputBytes / 4 / float64(max(1, t.batch)))
	}
	w := walk{cur: in}
	for _, l := range t.layers {
		switch {
		case strings.HasPrefix(l.kind, "conv"):
			w.keep()
			w.convs++
			w.matrix += l.elems
			w.flops += 2 * float64(l.params) * float64(max(1, l.side*l.side))
			w.put(l, false)
		case l.kind == "linear":
			w.keep()
			w.linears++
			w.matrix += l.elems
			w.flops += 2 * float64(l.params)
			w.put(l, false)
		case strings.Contains(l.kind, "norm"):
			w.keep()
			w.norms++
			w.put(l, false)
		case isLayer(l.kind):
			if strings.HasPrefix(l.kind, "maxpool") {
				w.masks += 8 * l.elems
			}
			w.plain(l)
		case l.kind == "basicconv2d": // it ends in a ReLU that is not a module
			w.activations++
			w.put(l, true)
		case l.elems != w.cur:
			w.others++
			w.put(l, false)
		}
	}
	return w
}

func isLayer(kind string) bool {
	for _, p := range []string{"relu", "leakyrelu", "gelu", "silu", "mish", "elu", "selu", "prelu", "softplus", "tanh", "sigmoid", "softmax", "hardswish",
		"hardsigmoid", "dropout", "maxpool", "avgpool", "adaptiveavgpool", "identity", "flatten"} {
		if strings.HasPrefix(kind, p) {
			return true
		}
	}
	return false
}

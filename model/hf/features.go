package hf

import (
	"cmp"
	"fmt"

	"github.com/berth-scheduler/berth/model"
	"github.com/berth-scheduler/berth/model/graph"
)

// defaultSeqLen is the longest sequence assumed if a run gives none: few jobs use
// all of a long context.
const defaultSeqLen = 2048

// Scratch memory of matrix products: the two workspaces that cuBLAS takes by
// default, as PyTorch sets them up.
const cublasWorkspace = 8519680

// numbers is the cost of a run, in values, bytes and FLOPs. It counts in float64:
// integers are exact below 2^53, and nothing overflows.
type numbers struct {
	params, weightBytes     float64
	saved                   float64 // outside the layers
	layers, layerSaved      float64 // saved in all layers; in the costliest one
	kept                    float64 // kept by checkpointing, all layers
	flops, moved            float64
	acts, matrix            float64
	live, largest, cache    float64
	scores, workspace       float64
	linears, norms, acts1   float64
	others, blocks, adapted float64
}

// widths are the sizes in bytes of one value.
type widths struct {
	act    float64 // activations
	stream float64 // the residual stream, which autocast keeps in float32
	weight float64 // weights that are not quantized
	block  float64 // weights of the layers' matrices
	train  bool
	full   bool // all weights train
	rank   float64
}

// Features computes the cost of the model for a run. If the run leaves them open,
// the precision is the checkpoint's and the sequence length the model's own, at
// most 2048; the result records the values used. Errors are about fields of c or of
// run that are out of range.
//
// SavedBytes holds the activations that the layers keep for the backward pass; with
// checkpointing, each layer's input and the full set of one layer. In training
// OutputBytes holds the logits and the float32 copy that the loss makes of narrower
// ones, without the loss's gradients. LiveBytes includes the key-value cache.
func (c *Config) Features(run model.Run) (model.Features, error) {
	if err := c.check(); err != nil {
		return model.Features{}, err
	}
	run, err := c.settle(run)
	if err != nil {
		return model.Features{}, err
	}
	w := c.widths(&run)
	var n numbers
	n.params, n.weightBytes = c.outside(), c.outside()*w.weight
	stacks := c.stacks(run.SeqLen)
	for i := range stacks {
		(&running{c, &stacks[i], &w, float64(run.Batch)}).addTo(&n)
	}
	f := model.Features{
		Source: model.SourceGraph, Model: cut(c.Name, c.Type), Run: run, Partial: c.Partial,
		Blocks: whole(n.blocks), Width: c.Hidden,
	}
	if c.Catalogue {
		f.Source = model.SourceCatalogue
	}
	c.addEnds(&n, &f, &w)
	n.fill(&f, &w)
	return f, f.Check()
}

// settle fills in what the run leaves open, and checks it.
func (c *Config) settle(run model.Run) (model.Run, error) {
	if run.Batch < 1 || run.Batch > graph.MaxBatch {
		return run, fmt.Errorf("batch %d: must be 1 to %d", run.Batch, graph.MaxBatch)
	}
	if run.SeqLen < 0 || run.SeqLen > graph.MaxBatch {
		return run, fmt.Errorf("sequence length %d: must be 0 to %d", run.SeqLen, graph.MaxBatch)
	}
	if run.LoRARank < 0 || run.LoRARank > model.MaxLoRARank {
		return run, fmt.Errorf("LoRA rank %d: must be 0 to %d", run.LoRARank, model.MaxLoRARank)
	}
	run.Precision = cmp.Or(run.Precision, c.Precision)
	run.Precision = cmp.Or(run.Precision, graph.FP32)
	run.WeightBits = cmp.Or(run.WeightBits, c.WeightBits)
	if c.traits.kind == vision {
		run.SeqLen = 0 // the image decides
	} else if run.SeqLen == 0 {
		run.SeqLen = c.SeqLen()
	}
	return run, nil
}

// SeqLen returns the sequence length that Features assumes if a run gives none: the
// model's longest, at most 2048. It is 0 for vision transformers.
func (c *Config) SeqLen() int64 {
	switch {
	case c.traits.kind == vision:
		return 0
	case c.traits.relative && c.Positions == 0:
		return 512 // what T5 was trained with
	case c.Positions == 0:
		return defaultSeqLen
	default:
		return min(c.Positions, defaultSeqLen)
	}
}

func (c *Config) widths(run *model.Run) widths {
	p := run.Precision
	w := widths{act: float64(p.ActivationBytes(4)), weight: float64(p.WeightBytes(4)), train: run.Mode == model.Training}
	if p == graph.INT8 && w.train { // integer weights do not train, and products run at 16 bits
		w.act = 2
	}
	w.stream = w.act
	if p == graph.AMP {
		w.stream = 4
	}
	w.block = w.weight
	switch run.WeightBits {
	case 4: // NF4: one float32 scale per 64 weights, or a byte and a little (Dettmers et al. 2023, arXiv:2305.14314)
		w.block = (4 + 32.0/64) / 8
		if c.DoubleQuant {
			w.block = (4 + 8.0/64 + 32.0/(64*256)) / 8
		}
	case 8:
		w.block = 1
	case 16, 32:
		w.weight = float64(run.WeightBits) / 8
		w.block = w.weight
	}
	if run.WeightBits == 4 || run.WeightBits == 8 {
		w.weight = max(w.weight, 2) // norms and embeddings keep their width
	}
	if w.train {
		w.rank = float64(run.LoRARank)
	}
	w.full = w.train && w.rank == 0
	return w
}

func (w *widths) quantized() bool { return w.block < w.weight && w.block < 2 }

// addEnds adds what comes before and after the layers.
func (c *Config) addEnds(n *numbers, f *model.Features, w *widths) {
	b, h := float64(f.Batch), float64(c.Hidden)
	hd := c.head()
	first, second := c.tokens(f.SeqLen)
	last := first
	if second > 0 {
		last = second
	}
	outputs := b
	if hd.tokens {
		outputs = b * last
	}
	n.params += hd.params
	n.weightBytes += hd.params * w.weight
	n.flops += outputs * hd.flops
	n.linears += float64(hd.linears)
	out := outputs * hd.width
	t := b * (first + second)
	n.acts += (out + t*h) * w.act
	n.matrix += out * w.act
	n.moved += (out+t*h*4)*w.act + hd.params*w.weight
	n.others += 2
	if !c.traits.noFinalNorm {
		n.norms++
	}
	if c.traits.embedNorm {
		n.norms++
	}
	n.saved += b * last * h * (w.stream + w.act) // final norm and head
	if w.full {
		n.saved += t * 8 // positions of embedding rows
	}
	if c.Dropout {
		n.saved += t * h
	}
	n.live = max(n.live+n.cache, n.cache+t*h*w.stream+out*w.act)
	n.largest = max(n.largest, out*w.act, t*h*w.stream)
	f.InputBytes = whole(c.inputBytes(f, b*first, b*second))
	logits := out * w.act
	if w.train && hd.lm && w.act < 4 {
		logits += out * 4 // cross entropy works in float32
	}
	f.OutputBytes = whole(logits)
	if w.quantized() && w.full { // quantized weights stay as they are
		f.TrainedBytes = whole((hd.params + c.outside()) * w.weight)
	}
	if w.rank > 0 {
		f.TrainedBytes = whole(n.adapted * w.weight)
		n.params += n.adapted
		n.weightBytes += n.adapted * w.weight
	}
}

// inputBytes returns the input of a step: token ids and masks of 8 bytes each, and
// labels in training; pixels and sound in float32.
func (c *Config) inputBytes(f *model.Features, first, second float64) float64 {
	const id = 8
	each := 2.0
	if f.Mode == model.Training {
		each = 3
	}
	switch c.traits.kind {
	case vision:
		return float64(f.Batch) * float64(c.Channels*c.ImageSize*c.ImageSize) * 4
	case speech:
		return float64(f.Batch)*float64(c.AudioBins)*2*float64(c.AudioPositions)*4 + second*id*each
	default:
		return (first + second) * id * each
	}
}

// fill copies n into f, each number limited to its range.
func (n *numbers) fill(f *model.Features, w *widths) {
	f.Params, f.ParamBytes = whole(n.params), whole(n.weightBytes)
	if w.train {
		saved := n.saved
		if f.Checkpointing {
			saved += min(n.layerSaved+n.kept, n.layers)
		} else {
			saved += n.layers
		}
		f.SavedBytes = whole(saved)
	}
	f.LiveBytes, f.LargestBytes, f.ScoreBytes = whole(n.live), whole(n.largest), whole(n.scores)
	f.FLOPs, f.MovedBytes, f.ActBytes, f.MatrixBytes = whole(n.flops), whole(n.moved+n.weightBytes), whole(n.acts), whole(n.matrix)
	f.WorkspaceBytes = whole(n.workspace + cublasWorkspace)
	const most = graph.MaxNodes
	f.Linears, f.Norms = min(whole(n.linears), most), min(whole(n.norms), most)
	f.Activations, f.Others = min(whole(n.acts1), most), min(whole(n.others), most)
}

// whole rounds to the range of Features' sizes.
func whole(v float64) int64 {
	if !(v > 0) {
		return 0
	}
	return int64(min(v+0.5, float64(model.MaxBytes)))
}

// cut returns a model's name for Features.
func cut(name, other string) string {
	name = cmp.Or(name, other)
	return clip(name, model.MaxModelName)
}

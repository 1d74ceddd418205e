package hf

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-scheduler/berth/model"
	"github.com/berth-scheduler/berth/model/graph"
)

// Weights is the content of a checkpoint's safetensors headers. The zero value has
// no tensors.
type Weights struct {
	// Params counts values, including packed ones of four bits; Bytes their stored
	// size, including scales. Adapters count in neither.
	Params, Bytes int64
	Tensors       int
	// Blocks counts the repeated layers, by the numbers in tensor names.
	Blocks int64
	// LoRARank is the largest rank of low-rank adapters, 0 for none; LoRAParams
	// counts their values.
	LoRARank, LoRAParams int64
	// Precision is that of most floating-point bytes, empty if unknown.
	Precision model.Precision
	// WeightBits is 4 or 8 if most values are quantized, else 0.
	WeightBits int64
	// Partial means that shards were missing; Notes says why, and what else was
	// odd.
	Partial bool
	Notes   []string

	// Unknown counts tensors of unknown types, taken as one byte per value.
	Unknown int

	blocks   map[string]struct{}
	byType   map[string]int64
	seen     clues
	plain    int64 // values of 16 bits and more
	packed   int64 // of four
	bytewise int64 // of eight
}

// clues are the shapes from which a configuration can be guessed.
type clues struct {
	embed, query, key, up []int64
	gate, head            bool
}

// header is one entry of a safetensors header.
type header struct {
	DType   string  `json:"dtype"`
	Shape   []int64 `json:"shape"`
	Offsets []int64 `json:"data_offsets"`
}

// ReadSafetensors reads the header of one safetensors file and nothing after it: a
// little-endian length of eight bytes, then JSON
// (https://huggingface.co/docs/safetensors). Errors wrap ErrMalformed or ErrLimit.
func ReadSafetensors(r io.Reader) (Weights, error) {
	var w Weights
	err := w.add(r)
	return w, err
}

// add reads one file's header into w.
func (w *Weights) add(r io.Reader) error {
	var size [8]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return fmt.Errorf("safetensors: %w: shorter than its length field", ErrMalformed)
	}
	n := binary.LittleEndian.Uint64(size[:])
	if n > MaxHeaderBytes {
		return fmt.Errorf("safetensors: header of %d bytes, at most %d are read: %w", n, MaxHeaderBytes, ErrLimit)
	}
	data, err := io.ReadAll(io.LimitReader(r, int64(n)))
	if err != nil {
		return fmt.Errorf("safetensors: %w", err)
	}
	if uint64(len(data)) < n {
		return fmt.Errorf("safetensors: %w: ends within its header", ErrMalformed)
	}
	o, err := parseObject(data, MaxTensors+1)
	if err != nil {
		return fmt.Errorf("safetensors header: %w", err)
	}
	if len(o.twice) > 0 {
		return fmt.Errorf("safetensors header: %w: tensor %q is there twice", ErrMalformed, shorten(o.twice[0]))
	}
	for _, name := range o.keys {
		if name == "__metadata__" {
			continue
		}
		if err := w.tensor(o, name); err != nil {
			return fmt.Errorf("safetensors header: tensor %q: %w", shorten(name), err)
		}
	}
	w.sum()
	return nil
}

func (w *Weights) tensor(o *object, name string) error {
	if w.Tensors++; w.Tensors > MaxTensors {
		return fmt.Errorf("more than %d tensors: %w", MaxTensors, ErrLimit)
	}
	var h header
	if err := json.Unmarshal(o.field[name], &h); err != nil {
		return fmt.Errorf("%w: %v", ErrMalformed, err)
	}
	elems, err := h.check()
	if err != nil {
		return err
	}
	stored := h.Offsets[1] - h.Offsets[0]
	if lora(name, h.Shape) > 0 {
		w.LoRARank = max(w.LoRARank, lora(name, h.Shape))
		w.LoRAParams = addSat(w.LoRAParams, elems)
		return nil
	}
	w.Bytes = addSat(w.Bytes, stored)
	w.block(name)
	w.seen.see(name, h.Shape)
	switch bits := dtypeBits(h.DType); {
	case strings.HasSuffix(name, ".qweight") && bits == 32: // GPTQ and AWQ pack eight values of four bits
		w.packed = addSat(w.packed, mulSat(elems, 8))
	case bits == 8 && o.has(name+".absmax", name+".quant_state.bitsandbytes__nf4", name+".quant_state.bitsandbytes__fp4"):
		w.packed = addSat(w.packed, mulSat(elems, 2))
	case bits == 8 && scale(name):
	case bits == 8 && h.DType != "BOOL":
		w.bytewise = addSat(w.bytewise, elems)
	case bits == 0:
		w.Unknown++
		w.bytewise = addSat(w.bytewise, elems)
	case h.DType[0] != 'I' && h.DType[0] != 'U' && h.DType != "BOOL" && !scale(name): // indices and masks are not parameters
		w.plain = addSat(w.plain, elems)
		if w.byType == nil {
			w.byType = make(map[string]int64)
		}
		w.byType[h.DType] = addSat(w.byType[h.DType], stored)
	}
	return nil
}

// check validates one entry and counts its values.
func (h *header) check() (elems int64, err error) {
	if len(h.Shape) > graph.MaxRank {
		return 0, fmt.Errorf("%d dimensions, at most %d are read: %w", len(h.Shape), graph.MaxRank, ErrLimit)
	}
	elems = 1
	for _, d := range h.Shape {
		if d < 0 {
			return 0, fmt.Errorf("%w: dimension %d", ErrMalformed, d)
		}
		elems = mulSat(elems, d)
	}
	if len(h.Offsets) != 2 || h.Offsets[0] < 0 || h.Offsets[1] < h.Offsets[0] {
		return 0, fmt.Errorf("%w: data_offsets %v: want two that rise", ErrMalformed, h.Offsets[:min(len(h.Offsets), 3)])
	}
	stored := h.Offsets[1] - h.Offsets[0]
	if bits := dtypeBits(h.DType); bits > 0 && mulSat(elems, bits/8) != stored {
		return 0, fmt.Errorf("%w: %d values of %s in %d bytes", ErrMalformed, elems, h.DType, stored)
	}
	if elems > model.MaxBytes || stored > model.MaxBytes {
		return 0, fmt.Errorf("%d values: %w", elems, ErrLimit)
	}
	return elems, nil
}

// dtypeBits returns the width of a type, 0 if unknown.
func dtypeBits(d string) int64 {
	switch d {
	case "BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0":
		return 8
	case "I16", "U16", "F16", "BF16":
		return 16
	case "I32", "U32", "F32":
		return 32
	case "I64", "U64", "F64", "C64":
		return 64
	}
	return 0
}

// scale reports whether a tensor is what quantization keeps in addition to the
// values.
func scale(name string) bool {
	return slices.ContainsFunc([]string{
		".absmax", ".quant_map", ".nested_absmax", ".nested_quant_map", ".SCB", ".qzeros", ".scales", ".g_idx", ".weight_format",
		".quant_state.bitsandbytes__nf4", ".quant_state.bitsandbytes__fp4", ".weight_scale", ".input_scale", ".weight_scale_inv",
	}, func(s string) bool { return strings.HasSuffix(name, s) })
}

// lora returns the rank of a low-rank adapter, 0 for other tensors.
func lora(name string, shape []int64) int64 {
	if len(shape) < 2 {
		return 0
	}
	switch {
	case strings.Contains(name, "lora_A") || strings.Contains(name, "lora_embedding_A"), strings.Contains(name, "lora_down"):
		return max(shape[0], 1)
	case strings.Contains(name, "lora_B") || strings.Contains(name, "lora_embedding_B"), strings.Contains(name, "lora_up"):
		return 1
	}
	return 0
}

// block records which repeated layer a name belongs to: the part up to its first
// number.
func (w *Weights) block(name string) {
	rest, at := name, 0
	for rest != "" {
		part, after, _ := strings.Cut(rest, ".")
		if _, err := strconv.ParseUint(part, 10, 20); err == nil && at > 0 {
			if w.blocks == nil {
				w.blocks = make(map[string]struct{})
			}
			if len(w.blocks) < 2*MaxLayers {
				w.blocks[name[:at+len(part)]] = struct{}{}
			}
			return
		}
		at += len(part) + 1
		rest = after
	}
}

// see remembers the shapes that reveal the architecture.
func (c *clues) see(name string, shape []int64) {
	base, ok := strings.CutSuffix(name, ".weight")
	if !ok || len(shape) != 2 {
		return
	}
	switch base[strings.LastIndexByte(base, '.')+1:] {
	case "embed_tokens", "wte", "word_embeddings", "embed_in", "shared":
		c.embed = shape
	case "q_proj", "query", "q":
		c.query = shape
	case "k_proj", "key", "k":
		c.key = shape
	case "up_proj", "fc1", "dense_h_to_4h", "c_fc", "wi", "wi_0":
		c.up = shape
	case "gate_proj":
		c.gate = true
	case "gate_up_proj":
		c.gate, c.up = true, []int64{shape[0] / 2, shape[1]}
	case "lm_head", "embed_out":
		c.head = true
	}
}

// sum brings the exported numbers up to date.
func (w *Weights) sum() {
	w.Blocks = int64(len(w.blocks))
	all := addSat(addSat(w.plain, w.packed), w.bytewise)
	w.Params = all
	w.WeightBits = 0
	switch {
	case w.packed > all/2:
		w.WeightBits = 4
	case w.bytewise > all/2:
		w.WeightBits = 8
	}
	w.Precision = ""
	var most int64
	for _, d := range [...]struct {
		name string
		p    model.Precision
	}{{"F32", graph.FP32}, {"BF16", graph.BF16}, {"F16", graph.FP16}, {"F64", graph.FP32}} {
		if w.byType[d.name] > most {
			most, w.Precision = w.byType[d.name], d.p
		}
	}
}

func addSat(a, b int64) int64 { return min(a+min(b, model.MaxBytes), model.MaxBytes) }

func mulSat(a, b int64) int64 {
	const most = int64(1) << 62
	if a != 0 && b > most/a {
		return most
	}
	return a * b
}

package hf

import (
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
)

// Index is the content of model.safetensors.index.json, of a sharded checkpoint.
type Index struct {
	// TotalSize is the bytes of all tensors as the file claims, 0 for none.
	TotalSize int64
	// Tensors is the number of names in its map, Blocks that of the repeated layers
	// among them.
	Tensors int
	Blocks  int64
	// Shards are the files that hold the tensors, sorted; each is a path within the
	// index's directory.
	Shards []string
}

// ReadIndex reads the index of a sharded checkpoint; it opens no shard. Errors
// wrap ErrMalformed or ErrLimit; a shard whose path would leave the directory
// is one.
func ReadIndex(r io.Reader) (Index, error) {
	data, err := readBounded(r, MaxIndexBytes)
	if err != nil {
		return Index{}, fmt.Errorf("index: %w", err)
	}
	o, err := parseObject(data, maxKeys)
	if err != nil {
		return Index{}, fmt.Errorf("index: %w", err)
	}
	var x Index
	if meta := o.object("metadata"); meta != nil {
		if err := meta.number(&x.TotalSize, "total_size"); err != nil {
			return Index{}, fmt.Errorf("index: %w: %w", ErrMalformed, err)
		}
	}
	if x.TotalSize < 0 || x.TotalSize > 1<<60 {
		return Index{}, fmt.Errorf("index: %w: total_size %d", ErrMalformed, x.TotalSize)
	}
	raw := o.field["weight_map"]
	if isNull(raw) {
		return Index{}, fmt.Errorf("index: %w: weight_map is missing", ErrMalformed)
	}
	m, err := parseObject(slices.Clone(raw), MaxTensors)
	if err != nil {
		return Index{}, fmt.Errorf("index: weight_map: %w", err)
	}
	return x, x.shards(m)
}

func (x *Index) shards(m *object) error {
	var w Weights
	found := make(map[string]struct{})
	for _, name := range m.keys {
		var file string
		if err := json.Unmarshal(m.field[name], &file); err != nil {
			return fmt.Errorf("index: %w: file of tensor %q", ErrMalformed, shorten(name))
		}
		if !filepath.IsLocal(file) || strings.ContainsAny(file, "\\\x00") || !strings.HasSuffix(file, ".safetensors") {
			return fmt.Errorf("index: %w: file %q of tensor %q: must be a .safetensors file beside the index", ErrMalformed, shorten(file), shorten(name))
		}
		if _, ok := found[file]; !ok {
			if len(found) >= MaxShards {
				return fmt.Errorf("index: more than %d files: %w", MaxShards, ErrLimit)
			}
			found[file] = struct{}{}
			x.Shards = append(x.Shards, file)
		}
		w.block(name)
	}
	slices.Sort(x.Shards)
	x.Tensors, x.Blocks = len(m.keys), int64(len(w.blocks))
	return nil
}

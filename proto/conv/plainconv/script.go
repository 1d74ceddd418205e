package plainconv

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"

	"github.com/berth-scheduler/berth/cluster"
)

// smallScript is the size in bytes up to which a script is packed by Huffman coding
// alone: the tables for finding repeats take longer to set up than sending what they
// would save.
const smallScript = 2 << 10

// PackScript compresses a batch script for the wire, the log and the journals of
// agents, where it travels with its job. Equal scripts give equal results.
func PackScript(script []byte) ([]byte, error) {
	if len(script) > cluster.MaxScript {
		return nil, cluster.Errorf(cluster.CodeInvalid, "script: %d bytes, at most %d are allowed; keep data in files beside it", len(script), cluster.MaxScript)
	}
	var b bytes.Buffer
	level := gzip.BestCompression
	if len(script) <= smallScript {
		level = gzip.HuffmanOnly
	}
	w, err := gzip.NewWriterLevel(&b, level)
	if err != nil {
		return nil, fmt.Errorf("pack script: %w", err)
	}
	if _, err := w.Write(script); err != nil {
		return nil, fmt.Errorf("pack script: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("pack script: %w", err)
	}
	if b.Len() > cluster.MaxPackedScript {
		return nil, cluster.Errorf(cluster.CodeInvalid, "script: %d bytes when packed, at most %d are allowed; keep data, archives and encoded files beside it",
			b.Len(), cluster.MaxPackedScript)
	}
	return b.Bytes(), nil
}

// UnpackScript is the reverse of PackScript. It never returns more than
// cluster.MaxScript bytes, whatever its input.
func UnpackScript(packed []byte) ([]byte, error) {
	script, whole, err := UnpackHead(packed, cluster.MaxScript)
	if err == nil && !whole {
		err = fmt.Errorf("unpack script: more than %d bytes", cluster.MaxScript)
	}
	if err != nil {
		return nil, err
	}
	return script, nil
}

// UnpackHead returns the first bytes of a packed script, at most most of them.
// whole reports whether that is all of it; the rest is not examined.
func UnpackHead(packed []byte, most int) (head []byte, whole bool, err error) {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, false, fmt.Errorf("unpack script: %w", err)
	}
	most = min(max(most, 0), cluster.MaxScript)
	head, err = io.ReadAll(io.LimitReader(r, int64(most)+1))
	if err != nil {
		return nil, false, fmt.Errorf("unpack script: %w", err)
	}
	if len(head) > most {
		return head[:most], false, nil
	}
	return head, true, nil
}

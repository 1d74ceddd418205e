package graph

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// counted counts what is read of a file.
type counted struct {
	*os.File
	bytes int64
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.File.Read(b)
	c.bytes += int64(n)
	return n, err
}

// TestLargeFilesAreSought reads a file of 2 GiB, nearly all of it weights, and
// touches a few KiB.
func TestLargeFilesAreSought(t *testing.T) {
	t.Parallel()
	const size = 2 << 30
	weights := protowire.AppendVarint(protowire.AppendTag(tensorProto("w", size/4), 9, protowire.BytesType), size)
	graph := protowire.AppendVarint(protowire.AppendTag(nil, 5, protowire.BytesType), uint64(len(weights)+size))
	graph = append(graph, weights...)
	tail := bytesField(nil, 2, []byte("after the weights"))
	head := protowire.AppendVarint(protowire.AppendTag(nil, 7, protowire.BytesType), uint64(len(graph)+size+len(tail)))
	head = append(head, graph...)
	f, err := os.Create(filepath.Join(t.TempDir(), "large.onnx")) // sparse: it takes no room
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(head); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(tail, int64(len(head))+size); err != nil {
		t.Skipf("no file of 2 GiB can be made here: %v", err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	c := &counted{File: f}
	g, err := Read(c)
	if err != nil {
		t.Fatal(err)
	}
	if g.Name != "after the weights" || len(g.Initializers) != 1 || g.Initializers[0].Elems() != size/4 {
		t.Errorf("read %+v", g)
	}
	if c.bytes > 256<<10 {
		t.Errorf("%d KiB read of a file whose description takes %d bytes", c.bytes>>10, len(head)+len(tail))
	}
}

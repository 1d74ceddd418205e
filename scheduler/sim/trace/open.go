package trace

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
)

// Limits on what is read, against files that are small only until unpacked.
const (
	maxBytes   = 4 << 30  // of one file, unpacked
	freeBytes  = 64 << 20 // always allowed, however little is packed
	maxRatio   = 200      // beyond that: unpacked to packed
	maxLine    = 1 << 20
	maxRows    = 50_000_000
	maxColumns = 1024
)

// errBomb is the error for a file that unpacks to too much.
var errBomb = errors.New("unpacks to far more than a trace would")

// open returns the text of a file, unpacked if it is gzip.
func open(path string) (io.Reader, io.Closer, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	r, err := unpack(f)
	if err != nil {
		f.Close()
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, f, nil
}

// unpack looks at the first bytes of r and unpacks it if it is gzip.
func unpack(r io.Reader) (io.Reader, error) { return unpackLines(r, maxLine) }

// unpackLines bounds how long a line may be.
func unpackLines(r io.Reader, longest int) (io.Reader, error) {
	packed := &counter{r: r}
	b := bufio.NewReaderSize(packed, 64<<10)
	head, err := b.Peek(2)
	if err != nil && err != io.EOF {
		return nil, err
	}
	if !bytes.Equal(head, []byte{0x1f, 0x8b}) {
		return &guard{r: b, packed: packed, longest: longest}, nil
	}
	z, err := gzip.NewReader(b)
	if err != nil {
		return nil, err
	}
	return &guard{r: z, packed: packed, longest: longest, ratio: true}, nil
}

// counter counts what was read of the packed file.
type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// guard ends a read that yields too much, or a line that has no end.
type guard struct {
	r      io.Reader
	packed *counter
	ratio  bool
	n      int64
	line   int

	longest int
}

func (g *guard) Read(p []byte) (int, error) {
	n, err := g.r.Read(p)
	g.n += int64(n)
	if g.n > maxBytes || g.ratio && g.n > freeBytes && g.n > maxRatio*g.packed.n {
		return 0, errBomb
	}
	if i := bytes.LastIndexByte(p[:n], '\n'); i >= 0 {
		g.line = n - i - 1
	} else {
		g.line += n
	}
	if g.line > g.longest {
		return 0, fmt.Errorf("a line is longer than %d bytes", g.longest)
	}
	return n, err
}

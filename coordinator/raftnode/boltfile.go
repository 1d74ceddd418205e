package raftnode

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
)

// This file reads bbolt's pages without bbolt. bbolt trusts its file: a damaged
// page makes it panic, partly in goroutines where nothing can recover, or read
// outside the file's map, which ends the process. So every page that it will follow
// is checked before it sees the file, down to the exact place of each key. The
// layout is that of bbolt 1.3 to 1.5, https://pkg.go.dev/go.etcd.io/bbolt: little
// endian here, and page size as the file says.

const (
	pageHeaderBytes  = 16
	pageElementBytes = 16
	boltMagic        = 0xED0CDAED
	boltVersion      = 2
	flagBranch       = 0x01
	flagLeaf         = 0x02
	flagFreelist     = 0x10
	leafIsBucket     = 0x01
	noFreelist       = 1<<64 - 1
	maxDepth         = 32
)

// boltMeta is one of the two roots of the file; the newer counts.
type boltMeta struct {
	pageSize uint32
	root     uint64
	freelist uint64
	pages    uint64 // high-water mark
	txid     uint64
}

// parseMeta reads the meta in the first bytes of a page.
func parseMeta(page []byte) (boltMeta, error) {
	if len(page) < pageHeaderBytes+64 {
		return boltMeta{}, errors.New("cut short")
	}
	b := page[pageHeaderBytes:]
	h := fnv.New64a()
	_, _ = h.Write(b[:56])
	le := binary.LittleEndian
	switch {
	case le.Uint32(b) != boltMagic || le.Uint32(b[4:]) != boltVersion:
		return boltMeta{}, errors.New("not the head of a log file")
	case h.Sum64() != le.Uint64(b[56:]):
		return boltMeta{}, errors.New("wrong checksum")
	}
	m := boltMeta{
		pageSize: le.Uint32(b[8:]), root: le.Uint64(b[16:]), freelist: le.Uint64(b[32:]),
		pages: le.Uint64(b[40:]), txid: le.Uint64(b[48:]),
	}
	if m.pageSize < 1024 || m.pageSize > 1<<16 || m.pageSize&(m.pageSize-1) != 0 {
		return boltMeta{}, fmt.Errorf("page size %d", m.pageSize)
	}
	return m, nil
}

// boltWalk visits all pages that are in use.
type boltWalk struct {
	r       io.ReaderAt
	meta    boltMeta
	seen    map[uint64]struct{}
	buckets map[string]func(key, value []byte) error
}

// walkBolt checks the structure of a bbolt file of size bytes and calls the
// function of each top-level bucket with its pairs in order; keys and values
// are valid until it returns. A bucket without a function is an error, and so
// is a missing one.
func walkBolt(r io.ReaderAt, size int64, buckets map[string]func(key, value []byte) error) error {
	meta, err := readMetas(r, size)
	if err != nil {
		return err
	}
	w := &boltWalk{r: r, meta: meta, seen: map[uint64]struct{}{}, buckets: buckets}
	if meta.freelist != noFreelist {
		p, err := w.page(meta.freelist)
		if err != nil {
			return fmt.Errorf("free list: %w", err)
		}
		if binary.LittleEndian.Uint16(p[8:]) != flagFreelist || binary.LittleEndian.Uint16(p[10:]) != 0 {
			return errors.New("free list: not empty, though none is ever written")
		}
	}
	found := 0
	err = w.tree(meta.root, bounds{}, maxDepth, func(e leafElement) error {
		visit := buckets[string(e.key)]
		if visit == nil || e.flags != leafIsBucket {
			return fmt.Errorf("unknown table %q", e.key)
		}
		found++
		return w.bucket(e.value, visit)
	})
	if err != nil {
		return err
	}
	if found != len(buckets) {
		return fmt.Errorf("%d tables, should be %d", found, len(buckets))
	}
	return nil
}

// readMetas returns the newer meta. Both must be good: bbolt falls back on the
// older one, which silently undoes the last write. A meta is far smaller than a
// disk's sector, so a power cut does not tear one.
func readMetas(r io.ReaderAt, size int64) (boltMeta, error) {
	buf := make([]byte, pageHeaderBytes+64)
	if _, err := r.ReadAt(buf, 0); err != nil {
		return boltMeta{}, fmt.Errorf("head 0: %w", err)
	}
	a, err := parseMeta(buf)
	if err != nil {
		return boltMeta{}, fmt.Errorf("head 0: %w", err)
	}
	if _, err := r.ReadAt(buf, int64(a.pageSize)); err != nil {
		return boltMeta{}, fmt.Errorf("head 1: %w", err)
	}
	b, err := parseMeta(buf)
	if err != nil {
		return boltMeta{}, fmt.Errorf("head 1: %w", err)
	}
	if a.txid < b.txid {
		a, b = b, a
	}
	if a.txid != b.txid+1 || a.pageSize != b.pageSize {
		return boltMeta{}, fmt.Errorf("heads are of transactions %d and %d, which do not follow each other", b.txid, a.txid)
	}
	if a.pages > uint64(size)/uint64(a.pageSize) {
		return boltMeta{}, fmt.Errorf("file is cut short: %d bytes, should be at least %d pages of %d", size, a.pages, a.pageSize)
	}
	return a, nil
}

// page reads page id with its overflow pages, and marks it as in use.
func (w *boltWalk) page(id uint64) ([]byte, error) {
	if id < 2 || id >= w.meta.pages {
		return nil, fmt.Errorf("page %d is outside the file's %d pages", id, w.meta.pages)
	}
	ps := int64(w.meta.pageSize)
	p := make([]byte, ps)
	if _, err := w.r.ReadAt(p, int64(id)*ps); err != nil {
		return nil, fmt.Errorf("page %d: %w", id, err)
	}
	le := binary.LittleEndian
	if got := le.Uint64(p); got != id {
		return nil, fmt.Errorf("page %d says it is page %d", id, got)
	}
	more := uint64(le.Uint32(p[12:]))
	if more >= w.meta.pages-id {
		return nil, fmt.Errorf("page %d reaches beyond the end of the file", id)
	}
	for i := id; i <= id+more; i++ {
		if _, dup := w.seen[i]; dup {
			return nil, fmt.Errorf("page %d is used twice", i)
		}
		w.seen[i] = struct{}{}
	}
	if more > 0 {
		p = append(p, make([]byte, int64(more)*ps)...)
		if _, err := w.r.ReadAt(p[ps:], (int64(id)+1)*ps); err != nil {
			return nil, fmt.Errorf("page %d: %w", id, err)
		}
	}
	return p, nil
}

// bounds are the keys that a subtree may hold: from lo, below hi; nil is open.
type bounds struct{ lo, hi []byte }

func (b bounds) hold(key []byte) bool {
	return (b.lo == nil || bytes.Compare(key, b.lo) >= 0) && (b.hi == nil || bytes.Compare(key, b.hi) < 0)
}

type leafElement struct {
	flags      uint32
	key, value []byte
}

// tree checks the pages under id and visits its leaves' elements.
func (w *boltWalk) tree(id uint64, in bounds, depth int, visit func(leafElement) error) error {
	if depth == 0 {
		return fmt.Errorf("page %d is too deep in the tree", id)
	}
	p, err := w.page(id)
	if err != nil {
		return err
	}
	switch flags := binary.LittleEndian.Uint16(p[8:]); flags {
	case flagLeaf:
		err = leaf(p, in, visit)
	case flagBranch:
		err = w.branch(p, in, depth, visit)
	default:
		err = fmt.Errorf("unexpected kind %#x", flags)
	}
	if err != nil {
		return fmt.Errorf("page %d: %w", id, err)
	}
	return nil
}

// leaf checks one leaf page. bbolt writes keys and values without gaps, in
// order, right behind the elements; anything else is damage.
func leaf(p []byte, in bounds, visit func(leafElement) error) error {
	le := binary.LittleEndian
	n := int(le.Uint16(p[10:]))
	next := pageHeaderBytes + n*pageElementBytes
	if next > len(p) {
		return fmt.Errorf("%d elements do not fit", n)
	}
	var last []byte
	for i := range n {
		at := pageHeaderBytes + i*pageElementBytes
		flags, pos, ks, vs := le.Uint32(p[at:]), int(le.Uint32(p[at+4:])), int(le.Uint32(p[at+8:])), int(le.Uint32(p[at+12:]))
		if at+pos != next || ks == 0 || ks+vs > len(p)-next {
			return fmt.Errorf("element %d is out of place", i)
		}
		e := leafElement{flags: flags, key: p[next : next+ks], value: p[next+ks : next+ks+vs]}
		next += ks + vs
		if !in.hold(e.key) || last != nil && bytes.Compare(last, e.key) >= 0 {
			return fmt.Errorf("key of element %d is out of order", i)
		}
		last = e.key
		if err := visit(e); err != nil {
			return err
		}
	}
	return nil
}

// branch checks one branch page and what is under it.
func (w *boltWalk) branch(p []byte, in bounds, depth int, visit func(leafElement) error) error {
	le := binary.LittleEndian
	n := int(le.Uint16(p[10:]))
	next := pageHeaderBytes + n*pageElementBytes
	if n == 0 || next > len(p) {
		return fmt.Errorf("%d elements do not fit", n)
	}
	keys, ids := make([][]byte, n), make([]uint64, n)
	for i := range n {
		at := pageHeaderBytes + i*pageElementBytes
		pos, ks := int(le.Uint32(p[at:])), int(le.Uint32(p[at+4:]))
		if at+pos != next || ks == 0 || ks > len(p)-next {
			return fmt.Errorf("element %d is out of place", i)
		}
		keys[i], ids[i] = p[next:next+ks], le.Uint64(p[at+8:])
		next += ks
		if !in.hold(keys[i]) || i > 0 && bytes.Compare(keys[i-1], keys[i]) >= 0 {
			return fmt.Errorf("key of element %d is out of order", i)
		}
	}
	for i := range n {
		sub := bounds{lo: keys[i], hi: in.hi}
		if i+1 < n {
			sub.hi = keys[i+1]
		}
		if err := w.tree(ids[i], sub, depth-1, visit); err != nil {
			return err
		}
	}
	return nil
}

// bucket visits a bucket, which is a separate tree or, while small, a page within
// value.
func (w *boltWalk) bucket(value []byte, visit func(key, value []byte) error) error {
	if len(value) < 16 {
		return errors.New("table is cut short")
	}
	pair := func(e leafElement) error {
		if e.flags != 0 {
			return fmt.Errorf("record %x is of unknown kind %d", e.key, e.flags)
		}
		return visit(e.key, e.value)
	}
	if root := binary.LittleEndian.Uint64(value); root != 0 {
		return w.tree(root, bounds{}, maxDepth, pair)
	}
	p := value[16:]
	if len(p) < pageHeaderBytes || binary.LittleEndian.Uint16(p[8:]) != flagLeaf {
		return errors.New("table holds no leaf")
	}
	return leaf(p, bounds{}, pair)
}

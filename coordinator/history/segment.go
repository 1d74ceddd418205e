package history

import (
	"bytes"
	"cmp"
	"compress/flate"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sort"

	"github.com/berth-scheduler/berth/cluster"
)

// A segment is an immutable file of finished jobs. Its rows are in order of user
// and then of end, and records of neighbouring rows are together in compressed
// blocks: a query for one user reads few of them. After the magic come blocks,
// rows, places of blocks, texts, ids, and a footer that has each part's place and
// checksum. Numbers are little endian.
const (
	segmentMagic   = "BERTHHS1"
	footerBytes    = 8*8 + 5*16 + 4 + 8
	recordsPerPack = 16
	packBytes      = 8 + 4 + 4
	idBytes        = 8 + 4
	maxSegmentRows = 1 << 20
	maxPack        = recordsPerPack * (maxRecord + 16)
)

// The parts of a segment, in the order of the file. The blocks are checked one
// by one.
const (
	partPacks = iota
	partRows
	partIndex
	partTexts
	partIDs
	parts
)

type part struct {
	off, len uint64
	sum      uint32
}

// segment is what is held in memory of one: its footer.
type segment struct {
	path string
	// from and to: it has everything that ended after from and up to to.
	from, to         uint64
	n                int
	firstEnd, endMax cluster.Time // of its jobs
	minID, maxID     cluster.JobID
	size             int64
	part             [parts]part
}

func segmentName(from, to uint64) string { return fmt.Sprintf("seg-%020d-%020d", from, to) }

// encodeSegment encodes all jobs that ended after from and up to to.
func encodeSegment(from, to uint64, entries []entry) ([]byte, *segment, error) {
	es := slices.Clone(entries)
	slices.SortFunc(es, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.row.UID, b.row.UID), compareEnds(&a.row, &b.row))
	})
	g := &segment{from: from, to: to, n: len(es), minID: math.MaxUint64, firstEnd: math.MaxInt64}
	b := []byte(segmentMagic)
	b, index, err := encodePacks(b, es)
	if err != nil {
		return nil, nil, err
	}
	g.part[partPacks] = part{off: uint64(len(segmentMagic)), len: uint64(len(b) - len(segmentMagic))}
	put := func(p int, data []byte) {
		g.part[p] = part{uint64(len(b)), uint64(len(data)), checksum(data)}
		b = append(b, data...)
	}
	rows, texts := encodeRows(es)
	put(partRows, rows)
	put(partIndex, index)
	put(partTexts, texts)
	put(partIDs, encodeIDs(es))
	for i := range es {
		r := &es[i].row
		g.minID, g.maxID = min(g.minID, r.first()), max(g.maxID, r.ID)
		g.firstEnd, g.endMax = min(g.firstEnd, r.Ended), max(g.endMax, r.Ended)
	}
	b = g.footer(b)
	g.size = int64(len(b))
	return b, g, nil
}

func encodePacks(b []byte, es []entry) (out, index []byte, err error) {
	var packed bytes.Buffer
	z, err := flate.NewWriter(&packed, flate.DefaultCompression)
	if err != nil {
		return nil, nil, err
	}
	var raw []byte
	for pack := range slices.Chunk(es, recordsPerPack) {
		raw = raw[:0]
		for i := range pack {
			raw = binary.AppendUvarint(raw, uint64(len(pack[i].record)))
			raw = append(raw, pack[i].record...)
		}
		packed.Reset()
		z.Reset(&packed)
		if _, err := z.Write(raw); err != nil {
			return nil, nil, err
		}
		if err := z.Close(); err != nil {
			return nil, nil, err
		}
		index = binary.LittleEndian.AppendUint64(index, uint64(len(b)))
		index = binary.LittleEndian.AppendUint32(index, uint32(packed.Len()))
		index = binary.LittleEndian.AppendUint32(index, checksum(packed.Bytes()))
		b = append(b, packed.Bytes()...)
	}
	return b, index, nil
}

func encodeRows(es []entry) (rows, texts []byte) {
	places := map[string]uint32{}
	ref := func(s string) uint32 {
		at, ok := places[s]
		if !ok {
			at = uint32(len(places))
			places[s] = at
			texts = binary.AppendUvarint(texts, uint64(len(s)))
			texts = append(texts, s...)
		}
		return at
	}
	rows = make([]byte, len(es)*rowBytes)
	for i := range es {
		es[i].row.put(rows[i*rowBytes:], ref)
	}
	return rows, texts
}

func encodeIDs(es []entry) []byte {
	order := make([]int, len(es))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(es[a].row.ID, es[b].row.ID) })
	var b []byte
	for _, i := range order {
		b = binary.LittleEndian.AppendUint64(b, uint64(es[i].row.ID))
		b = binary.LittleEndian.AppendUint32(b, uint32(i))
	}
	return b
}

func (g *segment) footer(b []byte) []byte {
	at, le := len(b), binary.LittleEndian
	for _, v := range [8]uint64{
		g.from, g.to, uint64(g.n), uint64(g.firstEnd), uint64(g.endMax), uint64(g.minID), uint64(g.maxID), uint64(at),
	} {
		b = le.AppendUint64(b, v)
	}
	for _, p := range g.part {
		b = le.AppendUint64(b, p.off)
		b = le.AppendUint32(b, uint32(p.len))
		b = le.AppendUint32(b, p.sum)
	}
	b = le.AppendUint32(b, checksum(b[at:]))
	return append(b, segmentMagic...)
}

// openSegment reads and checks a footer. What it points to is checked when it
// is read.
func openSegment(path string) (*segment, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	g := &segment{path: path, size: st.Size()}
	if g.size < int64(footerBytes+len(segmentMagic)) {
		return nil, errCutShort
	}
	b := make([]byte, footerBytes)
	if _, err := f.ReadAt(b, g.size-footerBytes); err != nil {
		return nil, err
	}
	return g, g.parse(b)
}

func (g *segment) parse(b []byte) error {
	le := binary.LittleEndian
	sum := footerBytes - 4 - len(segmentMagic)
	u := func(i int) uint64 { return le.Uint64(b[8*i:]) }
	if string(b[sum+4:]) != segmentMagic || le.Uint32(b[sum:]) != checksum(b[:sum]) {
		return errors.New("footer: wrong checksum")
	}
	g.from, g.to, g.n = u(0), u(1), int(min(u(2), maxSegmentRows+1))
	g.firstEnd, g.endMax, g.minID, g.maxID = cluster.Time(u(3)), cluster.Time(u(4)), cluster.JobID(u(5)), cluster.JobID(u(6))
	end := uint64(g.size) - footerBytes
	if u(7) != end || g.to < g.from || g.n > maxSegmentRows {
		return errors.New("footer does not belong to the file")
	}
	at := uint64(len(segmentMagic))
	for i := range g.part {
		p := b[64+16*i:]
		g.part[i] = part{le.Uint64(p), uint64(le.Uint32(p[8:])), le.Uint32(p[12:])}
		if g.part[i].off != at {
			return errors.New("parts are not one behind the other")
		}
		at += g.part[i].len
	}
	packs := uint64((g.n + recordsPerPack - 1) / recordsPerPack)
	if at != end || g.part[partRows].len != uint64(g.n)*rowBytes || g.part[partIDs].len != uint64(g.n)*idBytes || g.part[partIndex].len != packs*packBytes {
		return errors.New("parts do not belong together")
	}
	return nil
}

// damaged means that a file does not hold what was written.
type damaged struct {
	path string
	err  error
}

func (d *damaged) Error() string { return fmt.Sprintf("%s: %v", filepath.Base(d.path), d.err) }

func (d *damaged) Unwrap() error { return d.err }

// opened is a segment that is being read.
type opened struct {
	*segment
	f     *os.File
	texts []string
	rows  []byte
	index []byte
	packs map[int][][]byte // those that were read
}

func (g *segment) open() (*opened, error) {
	f, err := os.Open(g.path)
	if err != nil {
		return nil, err
	}
	return &opened{segment: g, f: f, packs: map[int][][]byte{}}, nil
}

func (o *opened) close() { _ = o.f.Close() }

func (o *opened) read(p part, buf []byte) ([]byte, error) {
	if uint64(cap(buf)) < p.len {
		buf = make([]byte, p.len)
	}
	buf = buf[:p.len]
	if _, err := o.f.ReadAt(buf, int64(p.off)); err != nil {
		return nil, &damaged{o.path, err}
	}
	if checksum(buf) != p.sum {
		return nil, &damaged{o.path, errors.New("wrong checksum")}
	}
	return buf, nil
}

// load reads rows and texts. The rows go into buf if it is large enough.
func (o *opened) load(buf []byte) error {
	var err error
	if o.rows, err = o.read(o.part[partRows], buf); err != nil {
		return err
	}
	texts, err := o.read(o.part[partTexts], nil)
	if err != nil {
		return err
	}
	r, all := reader{b: texts}, string(texts) // one allocation for all
	for len(r.b) > 0 {
		n := int(min(r.uvarint(), maxRecord))
		if r.err != nil || n > len(r.b) {
			return &damaged{o.path, errCutShort}
		}
		at := len(all) - len(r.b)
		o.texts = append(o.texts, all[at:at+n])
		r.b = r.b[n:]
	}
	return nil
}

func (o *opened) text(i uint32) string {
	if int(i) >= len(o.texts) {
		return ""
	}
	return o.texts[i]
}

func (o *opened) row(i int, r *Row) error {
	if err := r.get(o.rows[i*rowBytes:(i+1)*rowBytes], o.text); err != nil {
		return &damaged{o.path, err}
	}
	return nil
}

// record returns the record of a row. Those of one block are cheap together.
func (o *opened) record(i int) ([]byte, error) {
	if o.index == nil {
		var err error
		if o.index, err = o.read(o.part[partIndex], nil); err != nil {
			return nil, err
		}
	}
	p := i / recordsPerPack
	data, ok := o.packs[p]
	if !ok {
		var err error
		if data, err = o.unpack(p); err != nil {
			return nil, err
		}
		o.packs[p] = data
	}
	if k := i % recordsPerPack; k < len(data) {
		return data[k], nil
	}
	return nil, &damaged{o.path, errCutShort}
}

func (o *opened) unpack(p int) ([][]byte, error) {
	le := binary.LittleEndian
	at := o.index[p*packBytes:]
	where := part{le.Uint64(at), uint64(le.Uint32(at[8:])), le.Uint32(at[12:])}
	if packs := o.part[partPacks]; where.off < packs.off || where.off+where.len > packs.off+packs.len {
		return nil, &damaged{o.path, errors.New("block out of bounds")}
	}
	packed, err := o.read(where, nil)
	if err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(packed)), maxPack))
	if err != nil {
		return nil, &damaged{o.path, err}
	}
	var data [][]byte
	for r := (reader{b: raw}); len(r.b) > 0; {
		data = append(data, r.bytes())
		if r.err != nil {
			return nil, &damaged{o.path, r.err}
		}
	}
	return data, nil
}

// find returns the row of a job, or -1.
func (o *opened) find(id cluster.JobID) (int, error) {
	ids, err := o.read(o.part[partIDs], nil)
	if err != nil {
		return -1, err
	}
	le := binary.LittleEndian
	lo := sort.Search(o.n, func(i int) bool { return cluster.JobID(le.Uint64(ids[i*idBytes:])) >= id })
	if lo == o.n || cluster.JobID(le.Uint64(ids[lo*idBytes:])) != id {
		return -1, nil
	}
	if row := int(le.Uint32(ids[lo*idBytes+8:])); row < o.n {
		return row, nil
	}
	return -1, &damaged{o.path, errors.New("ids out of bounds")}
}

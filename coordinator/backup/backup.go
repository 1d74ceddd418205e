// Package backup reads and writes the file that holds a copy of the
// coordinators' state: a header that tools can read, the state as snapshots
// hold it, and a checksum over both.
//
//	"BERTHBAK" | length of the header, 4 bytes LE | header, JSON | state | SHA-256 of all before it
package backup

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm"
)

const (
	magic = "BERTHBAK"
	// Format is the version of the files written here. Newer ones are refused.
	Format = 1
	// maxHeader bounds what is read for a damaged length.
	maxHeader = 64 << 10
)

// Header describes a file.
type Header struct {
	Format      int    `json:"format"`
	ClusterID   string `json:"cluster_id"`
	ClusterName string `json:"cluster_name"`
	// Index and Term are those of the last log entry in the state.
	Index uint64 `json:"index"`
	Term  uint64 `json:"term"`
	// EntryVersion is the highest version of an entry in the log until then.
	EntryVersion uint32        `json:"entry_version"`
	NextJob      cluster.JobID `json:"next_job"`
	StateHash    string        `json:"state_hash"`
	// Version is that of the program that wrote it, Saved the time.
	Version string    `json:"version"`
	Saved   time.Time `json:"saved"`
}

// ErrDamaged matches files that are not what was written: cut short, changed, or no
// backup at all.
var ErrDamaged = errors.New("it is damaged or no backup of Berth's; take another copy")

// Write writes a file with the state c. The header's figures about the state come
// from c.
func Write(w io.Writer, h Header, c *fsm.Capture) error {
	h.Format, h.Index, h.Term, h.EntryVersion, h.NextJob = Format, c.Index, c.Term, c.EntryVersion, c.NextJob
	h.StateHash = fmt.Sprintf("%x", c.Hash)
	head, err := json.Marshal(h)
	if err != nil {
		return fmt.Errorf("write backup: %w", err)
	}
	sum := sha256.New()
	out := io.MultiWriter(w, sum)
	if _, err := out.Write(append(binary.LittleEndian.AppendUint32([]byte(magic), uint32(len(head))), head...)); err != nil {
		return fmt.Errorf("write backup: %w", err)
	}
	if err := c.Write(out); err != nil {
		return fmt.Errorf("write backup: %w", err)
	}
	if _, err := w.Write(sum.Sum(nil)); err != nil {
		return fmt.Errorf("write backup: %w", err)
	}
	return nil
}

// ReadHeader reads a file's beginning. It trusts nothing there; only Check proves
// the header.
func ReadHeader(r io.Reader) (Header, error) {
	fixed := make([]byte, len(magic)+4)
	if _, err := io.ReadFull(r, fixed); err != nil || string(fixed[:len(magic)]) != magic {
		return Header{}, fmt.Errorf("it does not begin as a backup does: %w", orDamaged(err))
	}
	n := binary.LittleEndian.Uint32(fixed[len(magic):])
	if n > maxHeader {
		return Header{}, fmt.Errorf("a header of %d bytes, at most %d are allowed: %w", n, maxHeader, ErrDamaged)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(r, text); err != nil {
		return Header{}, fmt.Errorf("header: %w", orDamaged(err))
	}
	var h Header
	if err := json.Unmarshal(text, &h); err != nil {
		return Header{}, fmt.Errorf("header: %v: %w", err, ErrDamaged)
	}
	switch {
	case h.Format > Format:
		return Header{}, fmt.Errorf("it is of format %d, written by berth %s; this berth reads formats up to %d: use that release or a later one", h.Format, h.Version, Format)
	case h.Format < 1 || h.ClusterID == "" || h.Index == 0:
		return Header{}, fmt.Errorf("header without format, cluster or index: %w", ErrDamaged)
	case h.EntryVersion > fsm.EntryVersion:
		return Header{}, fmt.Errorf("it holds log entries of version %d, written by berth %s; this berth reads versions up to %d: use that release or a later one", h.EntryVersion, h.Version, fsm.EntryVersion)
	}
	return h, nil
}

// orDamaged distinguishes disk errors from files that end too early.
func orDamaged(err error) error {
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return ErrDamaged
	}
	return err
}

// Check reads a whole file of size bytes and compares its checksum. It keeps none
// of it.
func Check(r io.Reader, size int64) (Header, error) {
	sum := sha256.New()
	body := bufio.NewReaderSize(io.TeeReader(io.LimitReader(r, size-sha256.Size), sum), 256<<10)
	h, err := ReadHeader(body)
	if err != nil {
		return h, err
	}
	if _, err := io.Copy(io.Discard, body); err != nil {
		return h, err
	}
	want := make([]byte, sha256.Size)
	if _, err := io.ReadFull(r, want); err != nil {
		return h, orDamaged(err)
	}
	if !bytes.Equal(sum.Sum(nil), want) {
		return h, fmt.Errorf("its checksum is wrong: %w", ErrDamaged)
	}
	return h, nil
}

// Load reads the state of a file, which Check has passed: as it is, or for a
// cluster that is restored from it.
func Load(r io.Reader, revival *fsm.Revival) (Header, *fsm.Capture, error) {
	h, err := ReadHeader(r)
	if err != nil {
		return h, nil, err
	}
	c, err := fsm.Load(r, fsm.Options{Version: h.Version}, revival)
	if err != nil {
		return h, nil, err
	}
	if c.Index != h.Index || revival == nil && fmt.Sprintf("%x", c.Hash) != h.StateHash {
		return h, nil, fmt.Errorf("the state is not the one that the header describes: %w", ErrDamaged)
	}
	return h, c, nil
}

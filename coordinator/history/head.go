package history

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const (
	headMagic  = "BERTHHH1"
	headerSize = len(headMagic) + 8 + 4
)

func headName(from uint64) string { return fmt.Sprintf("head-%020d", from) }

// head is the newest part of the history: a file to which frames are appended, also
// entirely in memory, until there is enough for a segment.
type head struct {
	path       string
	f          *os.File
	size       int64 // of complete frames
	from, upTo uint64
	entries    []entry // append-only
}

// createHead creates an empty head for what ends after an index.
func createHead(path string, from uint64) (*head, error) {
	b := binary.LittleEndian.AppendUint64([]byte(headMagic), from)
	b = binary.LittleEndian.AppendUint32(b, checksum(b))
	if err := writeFile(path, b); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	return &head{path: path, f: f, size: int64(len(b)), from: from, upTo: from}, nil
}

// openHead reads a head and cuts off what was being written when its process ended.
// cut is how many bytes that was.
func openHead(path string) (h *head, cut int64, err error) {
	if h, cut, err = readHead(path); err != nil {
		return nil, 0, err
	}
	if h.f, err = os.OpenFile(path, os.O_RDWR, 0); err != nil {
		return nil, 0, err
	}
	if cut > 0 {
		if err := h.f.Truncate(h.size); err != nil {
			return nil, 0, errors.Join(err, h.f.Close())
		}
	}
	return h, cut, nil
}

// readHead reads a head without its file; cut is how many bytes at its end are
// incomplete.
func readHead(path string) (h *head, cut int64, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, 0, err
	}
	if len(b) < headerSize || string(b[:len(headMagic)]) != headMagic ||
		binary.LittleEndian.Uint32(b[headerSize-4:]) != checksum(b[:headerSize-4]) {
		return nil, 0, &damaged{path, errors.New("wrong header")}
	}
	h = &head{path: path, from: binary.LittleEndian.Uint64(b[len(headMagic):]), size: int64(headerSize)}
	h.upTo = h.from
	for rest := b[headerSize:]; len(rest) > 0; {
		f, next, err := decodeFrame(rest)
		if err == nil && f.upTo < h.upTo {
			err = errors.New("goes back")
		}
		var es []entry
		if err == nil {
			es, err = entriesOf(f.records, h.upTo, f.upTo)
		}
		if err != nil { // what follows is useless without it
			cut = int64(len(rest))
			break
		}
		h.size += int64(len(rest) - len(next))
		h.entries, h.upTo, rest = append(h.entries, es...), f.upTo, next
	}
	return h, cut, nil
}

// write makes a frame durable and returns by how much the file grew, which the
// caller adds to size. After an error the file must be reopened.
func (h *head) write(f *frame) (grew int64, err error) {
	b := f.encode(nil)
	if _, err := h.f.WriteAt(b, h.size); err != nil {
		return 0, err
	}
	if err := unix.Fdatasync(int(h.f.Fd())); err != nil {
		return 0, &os.PathError{Op: "fdatasync", Path: h.path, Err: err}
	}
	return int64(len(b)), nil
}

// check compares the file with what is in memory.
func (h *head) check() error {
	b := make([]byte, h.size)
	if _, err := h.f.ReadAt(b, 0); err != nil {
		return err
	}
	again, err := os.ReadFile(h.path) // by its name, too: it may have been removed
	if err == nil && !bytes.HasPrefix(again, b) {
		err = errors.New("is another file")
	}
	if err == nil && binary.LittleEndian.Uint32(b[headerSize-4:]) != checksum(b[:headerSize-4]) {
		err = errors.New("wrong header")
	}
	n := 0
	for rest := b[headerSize:]; err == nil && len(rest) > 0; {
		var f frame
		f, rest, err = decodeFrame(rest)
		n += len(f.records)
	}
	if err == nil && n != len(h.entries) {
		err = fmt.Errorf("has %d jobs of %d", n, len(h.entries))
	}
	return err
}

func (h *head) close() {
	if h != nil && h.f != nil {
		_ = h.f.Close()
	}
}

// writeFile puts a whole file in place, or none of it: its bytes are on the disk
// before its name is.
func writeFile(path string, data []byte) error {
	tmp := path + ".tmp"
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return syncDir(path)
}

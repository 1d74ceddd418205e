package fsm

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/fsm/table"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// maxRecordBytes bounds one record, so that a corrupt length allocates little.
const maxRecordBytes = 16 << 20

// What is read at once: so many records, or so many bytes if that is fewer.
const (
	batchRecords = 1024
	batchBytes   = 1 << 20
)

// appendFrame appends a message, after its length. The end of its encoding is given.
func appendFrame(buf []byte, m proto.Message, end []byte) ([]byte, error) {
	opt := proto.MarshalOptions{Deterministic: true, UseCachedSize: true}
	size := opt.Size(m) + len(end)
	if size > maxRecordBytes {
		return buf, fmt.Errorf("record of %d bytes, at most %d can be read back", size, maxRecordBytes)
	}
	buf, err := opt.MarshalAppend(binary.AppendUvarint(buf, uint64(size)), m)
	return append(buf, end...), err
}

// framer writes messages, each prefixed with its length.
type framer struct {
	w        *bufio.Writer
	together table.Together
	bufs     [table.Lanes][]byte
	shared   [table.Lanes][]byte // the last shared part
}

func (f *framer) put(m proto.Message) (err error) {
	if f.bufs[0], err = appendFrame(f.bufs[0][:0], m, nil); err != nil {
		return err
	}
	_, err = f.w.Write(f.bufs[0])
	return err
}

// many writes records in order, which are encoded several at a time. What one shares
// with the one before is not encoded again; the bytes are the same.
func (f *framer) many(rs *table.Records) error {
	var errs [table.Lanes]error
	opt := proto.MarshalOptions{Deterministic: true}
	f.together.Split(rs.N, func(lane, from, to int) {
		buf, end := f.bufs[lane][:0], f.shared[lane][:0]
		for i := from; i < to && errs[lane] == nil; i++ {
			if rs.Shared == nil {
				buf, errs[lane] = appendFrame(buf, rs.Whole(i), nil)
				continue
			}
			if i == from || !rs.Same(i-1, i) {
				end, errs[lane] = opt.MarshalAppend(end[:0], rs.Shared(i))
			}
			if errs[lane] == nil {
				buf, errs[lane] = appendFrame(buf, rs.Own(i), end)
			}
		}
		f.bufs[lane], f.shared[lane] = buf, end
	})
	for lane, buf := range f.bufs {
		if errs[lane] != nil {
			return errs[lane]
		}
		if _, err := f.w.Write(buf); err != nil {
			return err
		}
		f.bufs[lane] = buf[:0]
	}
	return nil
}

// frames reads what a framer wrote.
type frames struct {
	r        *bufio.Reader
	together table.Together
	raw      []byte
	ends     []int // of each message in raw
}

// next appends one message to raw. At the end of the input its error is io.EOF.
func (f *frames) next() error {
	size, err := binary.ReadUvarint(f.r)
	if err != nil {
		return err
	}
	if size > maxRecordBytes {
		return fmt.Errorf("record of %d bytes, at most %d are read", size, maxRecordBytes)
	}
	at := len(f.raw)
	f.raw = append(f.raw, make([]byte, size)...)
	if _, err := io.ReadFull(f.r, f.raw[at:]); err != nil {
		return errors.Join(io.ErrUnexpectedEOF, err)
	}
	f.ends = append(f.ends, len(f.raw))
	return nil
}

// one reads one message.
func (f *frames) one(m proto.Message) error {
	f.raw, f.ends = f.raw[:0], f.ends[:0]
	if err := f.next(); err != nil {
		return err
	}
	return proto.Unmarshal(f.raw, m)
}

// batch reads the next records, while beside runs. The error is that of the record
// after those returned.
func (f *frames) batch(beside func()) ([]*logv1.Record, error) {
	f.raw, f.ends = f.raw[:0], f.ends[:0]
	var err error
	for len(f.ends) < batchRecords && len(f.raw) < batchBytes && err == nil {
		err = f.next()
	}
	out, errs := make([]*logv1.Record, len(f.ends)), make([]error, len(f.ends))
	f.together.Split(len(out), func(_, from, to int) {
		for i := from; i < to; i++ {
			start := 0
			if i > 0 {
				start = f.ends[i-1]
			}
			out[i] = new(logv1.Record)
			errs[i] = proto.Unmarshal(f.raw[start:f.ends[i]], out[i])
		}
	}, beside)
	for i, bad := range errs {
		if bad != nil {
			return out[:i], bad
		}
	}
	return out, err
}

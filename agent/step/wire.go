package step

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
)

// Kind is the kind of a frame between srun and the tasks of a node.
type Kind byte

// The kinds of frames. To the node: first Begin, whose data is a Config in JSON, then the
// others in any order. From the node: what each task writes, and finally how it ended.
const (
	Begin    Kind = 'b'
	Input    Kind = 'i' // for all tasks that read it
	InputEnd Kind = 'z'
	Signal   Kind = 's' // its number, one byte
	Stdout   Kind = 'o'
	Stderr   Kind = 'e'
	Words    Kind = 'w' // a message of the node itself
	Exit     Kind = 'x' // code, signal and whether it dumped core, a byte each
)

// MaxData bounds the data of a frame, except that of Begin, which may have maxBegin.
const (
	MaxData  = 31 << 10
	maxBegin = 8 << 20
)

// Frame is one message. Task is the task's number among those of the node.
type Frame struct {
	Kind Kind
	Task uint32
	Data []byte
}

// Writer writes frames; it is safe for concurrent use.
type Writer struct {
	mu sync.Mutex
	w  io.Writer
}

// NewWriter returns a Writer to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Write writes one frame.
func (w *Writer) Write(f Frame) error {
	buf := make([]byte, 9+len(f.Data))
	buf[0] = byte(f.Kind)
	binary.BigEndian.PutUint32(buf[1:], f.Task)
	binary.BigEndian.PutUint32(buf[5:], uint32(len(f.Data)))
	copy(buf[9:], f.Data)
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err := w.w.Write(buf)
	return err
}

// errFrame says that the data received is no frame.
var errFrame = errors.New("step: damaged frame")

// Read reads one frame; io.EOF between frames is the end.
func Read(r io.Reader) (Frame, error) {
	var head [9]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return Frame{}, err
	}
	f := Frame{Kind: Kind(head[0]), Task: binary.BigEndian.Uint32(head[1:])}
	n, most := binary.BigEndian.Uint32(head[5:]), uint32(MaxData)
	if f.Kind == Begin {
		most = maxBegin
	}
	if n > most {
		return Frame{}, fmt.Errorf("%w: %d bytes of kind %q", errFrame, n, head[0])
	}
	f.Data = make([]byte, n)
	if _, err := io.ReadFull(r, f.Data); err != nil {
		return Frame{}, fmt.Errorf("%w: %w", errFrame, io.ErrUnexpectedEOF)
	}
	return f, nil
}

package link

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/net/http2/hpack"
)

// HTTP/2 as defined by RFC 9113, as far as a gRPC client needs it.
const (
	preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

	headLen   = 9
	maxFrame  = 16 << 10 // of either side: neither announces more
	maxWindow = 1<<31 - 1
	anyWindow = 64<<10 - 1 // a stream's default before any setting
	// wholeAnswer lets a whole answer arrive without flow control: it is kept anyway.
	wholeAnswer = maxWindow
	// maxHeaders bounds one block of an answer's headers.
	maxHeaders = 1 << 20
	// mostUse is how many bytes of answers one connection carries: well below the
	// most that it may carry in all.
	mostUse = 1 << 30
)

// Frames.
const (
	frameData byte = iota
	frameHeaders
	framePriority
	frameReset
	frameSettings
	framePromise
	framePing
	frameGoAway
	frameWindow
	frameContinuation
)

// Flags of frames: the same bit ends a call's direction and acknowledges
// settings or a ping.
const (
	flagEnd        byte = 0x1
	flagAck        byte = 0x1
	flagEndHeaders byte = 0x4
	flagPadded     byte = 0x8
	flagPriority   byte = 0x20
)

// Settings.
const (
	settingPush   = 2
	settingWindow = 4
)

// errNoHTTP2 is for a server that speaks another protocol.
var errNoHTTP2 = errors.New("what listens there is not a coordinator: it does not speak gRPC")

// link is one connection. One goroutine reads from it; any may write.
type link struct {
	nc  net.Conn
	r   *bufio.Reader
	id  uint32 // of the last call
	bye bool   // the server accepts no more calls
	got int    // bytes of answers

	writing sync.Mutex
	late    []byte // sent with the next frame

	mu    sync.Mutex // guards what follows, and the fields of a call that say so
	first int64      // what a call may send before the server accepts any
	room  int64      // of all calls together

	headers *hpack.Decoder
}

func newLink(nc net.Conn) *link {
	return &link{nc: nc, r: bufio.NewReaderSize(nc, 4<<10), first: anyWindow, room: anyWindow}
}

func (l *link) close() { _ = l.nc.Close() } // nothing is lost that a caller waits for

// interrupt makes reads and writes fail.
func (l *link) interrupt() { _ = l.nc.SetDeadline(time.Unix(1, 0)) }

// again reports whether another call may follow.
func (l *link) again() bool { return !l.bye && l.got < mostUse && l.id < 1<<20 }

// greet begins the connection and reads the server's settings.
func (l *link) greet(window uint32) error {
	b := append(make([]byte, 0, 64), preface...)
	b = frame(b, frameSettings, 0, 0, 12)
	b = binary.BigEndian.AppendUint16(b, settingPush)
	b = binary.BigEndian.AppendUint32(b, 0)
	b = binary.BigEndian.AppendUint16(b, settingWindow)
	b = binary.BigEndian.AppendUint32(b, window)
	b = frame(b, frameWindow, 0, 0, 4)
	b = binary.BigEndian.AppendUint32(b, maxWindow-anyWindow)
	if err := l.write(b); err != nil {
		return err
	}
	head, err := l.r.Peek(headLen)
	switch {
	case timedOut(err):
		return err
	case err != nil && len(head) == 0:
		return fmt.Errorf("the connection broke before it was taken: %w", err)
	case err != nil, head[3] != frameSettings, head[4] != 0, binary.BigEndian.Uint32(head[5:]) != 0:
		return errNoHTTP2
	}
	return l.step(nil)
}

// alive reports whether an idle connection is still alive.
func (l *link) alive() bool {
	for {
		if l.r.Buffered() == 0 {
			if l.nc.SetReadDeadline(time.Unix(1, 0)) != nil {
				return false
			}
			_, err := l.r.Peek(1)
			if l.nc.SetReadDeadline(time.Time{}) != nil {
				return false
			}
			if timedOut(err) {
				return l.again()
			}
			if err != nil {
				return false
			}
		}
		if l.step(nil) != nil {
			return false
		}
	}
}

func timedOut(err error) bool {
	ne, ok := errors.AsType[net.Error](err)
	return ok && ne.Timeout()
}

// frame appends the head of a frame of n bytes.
func frame(b []byte, kind, flags byte, id uint32, n int) []byte {
	b = append(b, byte(n>>16), byte(n>>8), byte(n), kind, flags)
	return binary.BigEndian.AppendUint32(b, id)
}

// write sends frames, preceded by postponed ones.
func (l *link) write(b []byte) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	if len(l.late) > 0 {
		b, l.late = append(l.late, b...), nil
	}
	_, err := l.nc.Write(b)
	return err
}

// postpone keeps frames until something is sent.
func (l *link) postpone(b []byte) {
	l.writing.Lock()
	defer l.writing.Unlock()
	l.late = append(l.late, b...)
}

// step reads one frame and applies it, to k if a call is in progress.
func (l *link) step(k *call) error {
	head, err := l.r.Peek(headLen)
	if err != nil {
		return whole(err)
	}
	n := int(head[0])<<16 | int(head[1])<<8 | int(head[2])
	kind, flags, id := head[3], head[4], binary.BigEndian.Uint32(head[5:])&maxWindow
	_, _ = l.r.Discard(headLen) // it is buffered
	if n > maxFrame {
		return fmt.Errorf("the answer has a frame of %d bytes", n)
	}
	own := k // nil if the frame is not the call's
	if k != nil && id != k.id {
		own = nil
	}
	if kind == frameData && own != nil {
		return l.data(own, n, flags)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(l.r, body); err != nil {
		return whole(err)
	}
	switch kind {
	case frameHeaders:
		return l.headersOf(own, id, body, flags)
	case framePromise, frameContinuation:
		return fmt.Errorf("the answer has a frame of kind %d, which nothing asked for", kind)
	case frameSettings:
		if id != 0 || flags&flagAck == 0 && n%6 != 0 {
			return errors.New("the server's settings are malformed")
		}
		return l.settings(k, body, flags)
	case framePing:
		if flags&flagAck != 0 || n != 8 {
			return nil
		}
		return l.write(append(frame(nil, framePing, flagAck, 0, n), body...))
	case frameGoAway:
		return l.goAway(k, body)
	case frameWindow:
		return l.widen(k, own, id, body)
	case frameReset:
		if own == nil || n != 4 {
			return nil
		}
		return own.reset(binary.BigEndian.Uint32(body))
	}
	return nil // HTTP/2 permits ignoring the rest
}

// whole converts the error of a truncated frame.
func whole(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the connection broke")
	}
	return err
}

// data reads the content of an answer.
func (l *link) data(k *call, n int, flags byte) error {
	pad := 0
	if flags&flagPadded != 0 {
		b, err := l.r.ReadByte()
		if err != nil {
			return whole(err)
		}
		pad = int(b)
		if n -= 1 + pad; n < 0 {
			return errors.New("the answer has a frame of more padding than bytes")
		}
	}
	l.got += n
	if err := k.take(l.r, n); err != nil {
		return err
	}
	if _, err := l.r.Discard(pad); err != nil {
		return whole(err)
	}
	if flags&flagEnd != 0 {
		k.end()
	}
	return nil
}

// headersOf reads the headers or trailers of a call, from all their frames.
func (l *link) headersOf(k *call, id uint32, b []byte, flags byte) error {
	if flags&flagPadded != 0 {
		if len(b) == 0 || int(b[0]) >= len(b) {
			return errors.New("the answer's headers are malformed")
		}
		b = b[1 : len(b)-int(b[0])]
	}
	if flags&flagPriority != 0 {
		if len(b) < 5 {
			return errors.New("the answer's headers are malformed")
		}
		b = b[5:]
	}
	for last := flags; last&flagEndHeaders == 0; {
		var head [headLen]byte
		if _, err := io.ReadFull(l.r, head[:]); err != nil {
			return whole(err)
		}
		n := int(head[0])<<16 | int(head[1])<<8 | int(head[2])
		if head[3] != frameContinuation || n > maxFrame || binary.BigEndian.Uint32(head[5:])&maxWindow != id || len(b)+n > maxHeaders {
			return errors.New("the answer's headers are malformed")
		}
		more := make([]byte, n)
		if _, err := io.ReadFull(l.r, more); err != nil {
			return whole(err)
		}
		b, last = append(b, more...), head[4]
	}
	if l.headers == nil {
		l.headers = hpack.NewDecoder(4<<10, nil)
		l.headers.SetMaxStringLength(maxHeaders)
	}
	size := 0
	l.headers.SetEmitFunc(func(f hpack.HeaderField) {
		// A few bytes may refer to a long value again and again.
		if size += len(f.Name) + len(f.Value); k != nil && size <= maxHeaders {
			k.field(f.Name, f.Value)
		}
	})
	if _, err := l.headers.Write(b); err != nil {
		return fmt.Errorf("the answer's headers: %w", err)
	}
	if err := l.headers.Close(); err != nil {
		return fmt.Errorf("the answer's headers: %w", err)
	}
	if k != nil && flags&flagEnd != 0 {
		k.end()
	}
	return nil
}

// settings applies the server's; the acknowledgement goes out with the next frame.
func (l *link) settings(k *call, b []byte, flags byte) error {
	if flags&flagAck != 0 {
		return nil
	}
	for ; len(b) >= 6; b = b[6:] {
		if binary.BigEndian.Uint16(b) != settingWindow {
			continue
		}
		w := int64(binary.BigEndian.Uint32(b[2:]))
		if w > maxWindow {
			return errors.New("the server's settings are malformed")
		}
		l.mu.Lock()
		if k != nil {
			k.room += w - l.first
		}
		l.first = w
		l.mu.Unlock()
		k.wake()
	}
	l.postpone(frame(nil, frameSettings, flagAck, 0, 0))
	return nil
}

// widen lets more be sent, on one call or on all.
func (l *link) widen(k, own *call, id uint32, b []byte) error {
	if len(b) != 4 {
		return errors.New("the server's window is malformed")
	}
	more := int64(binary.BigEndian.Uint32(b) & maxWindow)
	l.mu.Lock()
	switch {
	case id == 0:
		l.room = min(l.room+more, maxWindow)
	case own != nil:
		own.room = min(own.room+more, maxWindow)
	}
	l.mu.Unlock()
	k.wake()
	return nil
}

// goAway handles a stopping server: calls after the one it names were not begun.
func (l *link) goAway(k *call, b []byte) error {
	l.bye = true
	if len(b) < 8 {
		return errors.New("the server's goodbye is malformed")
	}
	last := binary.BigEndian.Uint32(b) & maxWindow
	if k != nil && !k.ended && last < k.id {
		k.refused = true
		return errors.New("the coordinator stops, and did not begin this")
	}
	return nil
}

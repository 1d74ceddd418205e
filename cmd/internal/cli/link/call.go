package link

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// mostAhead bounds the bytes that are allocated for an answer when it
// announces its length.
const mostAhead = 8 << 20

// call is one call on a connection.
type call struct {
	link *link
	id   uint32
	most int // limit for a message of the answer, in bytes
	// inline says that the sender also reads: no other goroutine does.
	inline bool
	// refused says that the server did not begin it.
	refused bool

	// What follows is guarded by link.mu while another goroutine reads.
	room    int64 // what may be sent before the server accepts any
	buf     []byte
	ended   bool
	err     error // why nothing more will arrive, for a call that did not end
	changed *sync.Cond

	http, code, msg string // from the headers
	details         string
}

// begin returns the next call of a connection.
func (l *link) begin(most int) *call {
	if l.id == 0 {
		l.id = 1
	} else {
		l.id += 2
	}
	return &call{link: l, id: l.id, most: most, inline: true, room: l.first, changed: sync.NewCond(&l.mu)}
}

// framed fills in the first five bytes of data, gRPC's head of a message.
func framed(data []byte) []byte {
	binary.BigEndian.PutUint32(data[1:Head], uint32(len(data)-Head)) // #nosec G115 -- the server takes far less
	return data
}

// open sends a call's headers, and its only request unless data is nil.
func (k *call) open(ctx context.Context, method string, header [][2]string, data []byte) error {
	h := []byte{0x83, 0x86} // POST, http: from HPACK's table
	h = literal(h, ":path", method)
	h = literal(h, ":authority", "localhost")
	h = literal(h, "content-type", "application/grpc")
	h = literal(h, "te", "trailers")
	if end, ok := ctx.Deadline(); ok {
		h = literal(h, "grpc-timeout", timeout(time.Until(end)))
	}
	for _, f := range header {
		h = literal(h, f[0], f[1])
	}
	b := append(frame(make([]byte, 0, headLen+len(h)+headLen+min(len(data), anyWindow)+64), frameHeaders, flagEndHeaders, k.id, len(h)), h...)
	if data == nil {
		return k.link.write(b)
	}
	return k.send(b, data, true)
}

// literal appends a header in HPACK's form that need not be indexed.
func literal(b []byte, name, value string) []byte {
	b = append(b, 0)
	for _, s := range [...]string{name, value} {
		if n := len(s); n < 127 {
			b = append(b, byte(n))
		} else {
			b = append(b, 127)
			for n -= 127; n >= 128; n >>= 7 {
				b = append(b, byte(n&127|128))
			}
			b = append(b, byte(n))
		}
		b = append(b, s...)
	}
	return b
}

// timeout formats the remaining time for gRPC, which allows eight digits. It
// is rounded up: the server must not give up first.
func timeout(d time.Duration) string {
	const most = 99_999_999
	if us := (max(d, 1) + time.Microsecond - 1).Microseconds(); us <= most {
		return strconv.FormatInt(us, 10) + "u"
	}
	return strconv.FormatInt(min((d+time.Millisecond-1).Milliseconds(), most), 10) + "m"
}

// send sends b, which is frames, and data in as many frames as the server
// accepts. last ends the request.
func (k *call) send(b, data []byte, last bool) error {
	for {
		n, err := k.may(min(len(data), maxFrame))
		if err != nil {
			return err
		}
		if n == 0 && len(data) > 0 { // the server must accept what there is
			if len(b) > 0 {
				if err := k.link.write(b); err != nil {
					return err
				}
				b = b[:0]
			}
			if err := k.wait(); err != nil {
				return err
			}
			continue
		}
		var end byte
		if last && n == len(data) {
			end = flagEnd
		}
		b = append(frame(b, frameData, end, k.id, n), data[:n]...)
		if data = data[n:]; len(data) == 0 {
			return k.link.write(b)
		}
		if len(b) >= anyWindow {
			if err := k.link.write(b); err != nil {
				return err
			}
			b = b[:0]
		}
	}
}

// may returns how many of n bytes may be sent now; io.EOF when the call has ended.
func (k *call) may(n int) (int, error) {
	l := k.link
	l.mu.Lock()
	defer l.mu.Unlock()
	if k.ended || k.err != nil {
		return 0, io.EOF
	}
	got := max(min(int64(n), k.room, l.room), 0)
	k.room -= got
	l.room -= got
	return int(got), nil
}

// wait waits for something to happen to the call.
func (k *call) wait() error {
	if k.inline {
		return k.link.step(k)
	}
	k.link.mu.Lock()
	defer k.link.mu.Unlock()
	for !k.ended && k.err == nil && min(k.room, k.link.room) <= 0 {
		k.changed.Wait()
	}
	return nil
}

// wake wakes a waiter. k may be nil.
func (k *call) wake() {
	if k != nil {
		k.changed.Broadcast()
	}
}

// take reads n bytes of the answer.
func (k *call) take(r *bufio.Reader, n int) error {
	if !k.inline { // meanwhile a receiver takes what is there
		b := make([]byte, n)
		if _, err := io.ReadFull(r, b); err != nil {
			return whole(err)
		}
		k.link.mu.Lock()
		defer k.link.mu.Unlock()
		if len(k.buf)+n > streamWindow {
			return errors.New("the coordinator sent more than was requested")
		}
		k.buf = append(k.buf, b...)
		k.changed.Broadcast()
		return nil
	}
	have := len(k.buf)
	k.buf = slices.Grow(k.buf, n)[:have+n]
	if _, err := io.ReadFull(r, k.buf[have:]); err != nil {
		return whole(err)
	}
	if have < 5 && have+n >= 5 {
		all, err := k.length(k.buf)
		if err != nil {
			return err
		}
		k.buf = slices.Grow(k.buf, max(0, min(Head+all, mostAhead)-len(k.buf))) // once, instead of frame by frame
	}
	if have+n > k.most+5 {
		return statusf(Exhausted, "the answer has more than %d bytes", k.most)
	}
	return nil
}

// length returns that of the message at the start of b, which has at least five bytes.
func (k *call) length(b []byte) (int, error) {
	n := binary.BigEndian.Uint32(b[1:])
	switch {
	case b[0] != 0:
		return 0, statusf(Internal, "the answer is compressed, which was not requested")
	case int64(n) > int64(k.most):
		return 0, statusf(Exhausted, "the answer has %d bytes; this program takes %d", n, k.most)
	}
	return int(n), nil
}

func (k *call) end() {
	k.link.mu.Lock()
	defer k.link.mu.Unlock()
	k.ended = true
	k.changed.Broadcast()
}

// field handles one of the answer's headers or trailers.
func (k *call) field(name, value string) {
	switch name {
	case ":status":
		k.http = value
	case "grpc-status":
		k.code = value
	case "grpc-message":
		k.msg = value
	case "grpc-status-details-bin":
		k.details = value
	}
}

// reset ends a call that the server aborted.
func (k *call) reset(why uint32) error {
	const noError, refused, cancelled, calm = 0, 7, 8, 11
	switch {
	case k.ended:
		return nil
	case why == refused:
		k.refused = true
		return statusf(Unavailable, "the coordinator did not begin this")
	case why == cancelled:
		return statusf(Canceled, "the coordinator gave up")
	case why == calm:
		return statusf(Exhausted, "the coordinator is overloaded")
	case why == noError && k.code != "":
		k.end()
		return nil
	}
	return statusf(Internal, "the coordinator gave up, with HTTP/2's error %d", why)
}

// status returns how the call ended, nil for success.
func (k *call) status() error {
	n, err := strconv.ParseUint(k.code, 10, 31)
	switch {
	case k.code == "" && k.http != "" && k.http != "200":
		return statusf(Unknown, "the answer is HTTP's %s, and no answer to a call", k.http)
	case err != nil:
		return statusf(Internal, "the answer has no status")
	case n == 0:
		return nil
	}
	st := &Status{Code: uint32(n), Msg: unescape(k.msg)} // #nosec G115 -- 31 bits at most
	if raw, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(k.details, "=")); err == nil && len(raw) > 0 {
		st.Details = raw
	}
	return st
}

// unescape decodes a message as gRPC encodes it in a header.
func unescape(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if x, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				b.WriteByte(byte(x))
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// answer returns the one message of an ended call.
func (k *call) answer() ([]byte, error) {
	if err := k.status(); err != nil {
		return nil, err
	}
	if len(k.buf) < Head {
		return nil, statusf(Internal, "the answer is empty")
	}
	n, err := k.length(k.buf)
	if err != nil {
		return nil, err
	}
	if len(k.buf) != Head+n {
		return nil, statusf(Internal, "the answer does not have the length it claims")
	}
	return k.buf[Head:], nil
}

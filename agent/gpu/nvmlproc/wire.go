package nvmlproc

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/berth-scheduler/berth/agent/gpu"
)

// The two processes speak in frames: a header of 12 bytes, big-endian, and a
// body in JSON.
//
//	0  2  "BN"
//	2  1  version of the protocol
//	3  1  kind
//	4  4  id: an answer has that of its question; 0 for what was not asked
//	8  4  length of the body
//
// A question has no body, but for a tune or a cut. Both ends are the same program, so another version
// is an error and nothing is negotiated.
const (
	wireVersion = 1
	headerSize  = 12
	maxBody     = 4 << 20
	// maxCards and maxProcesses bound the contents of a body.
	maxCards     = 256 // instances of MIG count in a look at use
	maxProcesses = 1 << 14
	maxClocks    = 1 << 10
)

var magic = [2]byte{'B', 'N'}

// kind is the kind of a frame.
type kind uint8

const (
	kindHello kind = iota + 1 // from the child, first
	kindInventory
	kindUsage
	kindHealth
	kindEvent // from the child, unasked
	kindTune  // a question with a body
	kindCut   // likewise
	kindEnd   // one more than the last
)

func (k kind) String() string {
	switch k {
	case kindHello:
		return "hello"
	case kindInventory:
		return "inventory"
	case kindUsage:
		return "usage"
	case kindHealth:
		return "health"
	case kindEvent:
		return "event"
	case kindTune:
		return "power and clock"
	case kindCut:
		return "cut"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// frame is one message.
type frame struct {
	kind kind
	id   uint32
	body []byte
}

// errFrame says that the data read is no frame of this protocol.
var errFrame = errors.New("malformed frame")

// write sends f in one write.
func (f frame) write(w io.Writer) error {
	if len(f.body) > maxBody {
		return fmt.Errorf("%w: %s of %d bytes, at most %d are allowed", errFrame, f.kind, len(f.body), maxBody)
	}
	b := make([]byte, headerSize, headerSize+len(f.body))
	b[0], b[1], b[2], b[3] = magic[0], magic[1], wireVersion, byte(f.kind)
	binary.BigEndian.PutUint32(b[4:], f.id)
	binary.BigEndian.PutUint32(b[8:], uint32(len(f.body)))
	_, err := w.Write(append(b, f.body...))
	return err
}

// readFrame reads one frame. It returns io.EOF between frames, and otherwise an error of
// errFrame or of r. A length that is not followed by that many bytes costs no memory.
func readFrame(r io.Reader) (frame, error) {
	var h [headerSize]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return frame{}, fmt.Errorf("%w: half a header", errFrame)
		}
		return frame{}, err
	}
	f := frame{kind: kind(h[3]), id: binary.BigEndian.Uint32(h[4:])}
	n := binary.BigEndian.Uint32(h[8:])
	switch {
	case h[0] != magic[0] || h[1] != magic[1]:
		return f, fmt.Errorf("%w: begins with %q", errFrame, h[:2])
	case h[2] != wireVersion:
		return f, fmt.Errorf("%w: version %d, this end speaks %d", errFrame, h[2], wireVersion)
	case f.kind < kindHello || f.kind >= kindEnd:
		return f, fmt.Errorf("%w: %s", errFrame, f.kind)
	case n > maxBody:
		return f, fmt.Errorf("%w: %s of %d bytes, at most %d are allowed", errFrame, f.kind, n, maxBody)
	}
	var body bytes.Buffer
	if _, err := io.CopyN(&body, r, int64(n)); err != nil {
		return f, fmt.Errorf("%w: %d of %d bytes: %w", errFrame, body.Len(), n, err)
	}
	f.body = body.Bytes()
	return f, nil
}

// hello is a child's first message: it loaded the library, or it says why not.
type hello struct {
	Driver, CUDA string
	// Error is why it cannot be queried; NoDriver says that it wraps gpu.ErrNoDriver.
	Error    string `json:",omitempty"`
	NoDriver bool   `json:",omitempty"`
}

// answer is the child's answer to a question. One of the lists is set.
type answer struct {
	Cards  []gpu.Card   `json:",omitempty"`
	Usage  []gpu.Usage  `json:",omitempty"`
	Health []gpu.Health `json:",omitempty"`
	Faults []fault      `json:",omitempty"`
	Tuning gpu.Tuning   `json:",omitzero"`
}

// tune asks for the power limit and clocks of one GPU, after setting the limit to SetMilliW
// if that is above 0, or the clock to LockMHz, with 0 to unlock it.
type tune struct {
	UUID      string
	SetMilliW int64  `json:",omitempty"`
	LockMHz   *int64 `json:",omitempty"`
}

// fault is one of the errors joined to an answer. Index is negative when it concerns no
// single GPU.
type fault struct {
	Index int
	UUID  string `json:",omitempty"`
	Text  string
	Lost  bool `json:",omitempty"`
}

// faultsOf splits the errors that a Provider joined.
func faultsOf(err error) []fault {
	if err == nil {
		return nil
	}
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		var out []fault
		for _, e := range many.Unwrap() {
			out = append(out, faultsOf(e)...)
		}
		return out
	}
	f := fault{Index: -1, Text: err.Error(), Lost: errors.Is(err, gpu.ErrLost)}
	if ce, ok := errors.AsType[*gpu.CardError](err); ok {
		f.Index, f.UUID, f.Text = ce.Index, ce.UUID, ce.Err.Error()
	}
	return []fault{f}
}

// err restores the error from which f was made, as far as callers can tell.
func (f fault) err() error {
	e := error(&remoteError{text: f.Text, lost: f.Lost})
	if f.Index >= 0 {
		e = &gpu.CardError{Index: f.Index, UUID: f.UUID, Err: e}
	}
	return e
}

// remoteError is an error of the child.
type remoteError struct {
	text string
	lost bool
}

func (e *remoteError) Error() string { return e.text }

// Is makes a lost GPU match gpu.ErrLost.
func (e *remoteError) Is(target error) bool { return e.lost && target == gpu.ErrLost }

func decodeHello(f frame) (hello, error) {
	var h hello
	if err := decode(f, &h); err != nil {
		return h, err
	}
	if len(h.Driver) > 128 || len(h.CUDA) > 128 {
		return h, fmt.Errorf("%w: versions that long are none", errFrame)
	}
	return h, nil
}

// decodeAnswer decodes the answer to a question of f's kind.
func decodeAnswer(f frame) (answer, error) {
	var a answer
	if err := decode(f, &a); err != nil {
		return a, err
	}
	uuids := map[string]struct{}{}
	card := func(uuid string) error {
		if uuid == "" || len(uuid) > 128 {
			return fmt.Errorf("%w: %s with a UUID of %d bytes", errFrame, f.kind, len(uuid))
		}
		if _, twice := uuids[uuid]; twice {
			return fmt.Errorf("%w: %s names a card twice", errFrame, f.kind)
		}
		uuids[uuid] = struct{}{}
		return nil
	}
	var errs []error
	for i := range a.Cards {
		errs = append(errs, card(a.Cards[i].UUID))
	}
	clear(uuids)
	procs := 0
	for i := range a.Usage {
		errs = append(errs, card(a.Usage[i].UUID))
		procs += len(a.Usage[i].Processes)
		for _, pr := range a.Usage[i].Processes {
			if pr.PID <= 0 {
				errs = append(errs, fmt.Errorf("%w: a process with pid %d", errFrame, pr.PID))
			}
		}
	}
	clear(uuids)
	for i := range a.Health {
		errs = append(errs, card(a.Health[i].UUID))
	}
	if len(a.Tuning.ClocksMHz) > maxClocks || len(a.Cards) > maxCards || len(a.Usage) > maxCards || len(a.Health) > maxCards || procs > maxProcesses {
		errs = append(errs, fmt.Errorf("%w: %s of %d cards and %d processes", errFrame, f.kind, max(len(a.Cards), len(a.Usage), len(a.Health)), procs))
	}
	return a, errors.Join(errs...)
}

// decodeTune decodes a question about power and clock.
func decodeTune(f frame) (tune, error) {
	var q tune
	if err := decode(f, &q); err != nil {
		return q, err
	}
	if q.UUID == "" || len(q.UUID) > 128 || q.SetMilliW < 0 || q.SetMilliW > math.MaxUint32 || q.LockMHz != nil && (*q.LockMHz < 0 || *q.LockMHz > math.MaxUint32) {
		return q, fmt.Errorf("%w: %s out of bounds", errFrame, f.kind)
	}
	return q, nil
}

// decodeCut decodes a request to replace instances.
func decodeCut(f frame) (gpu.Cut, error) {
	var c gpu.Cut
	if err := decode(f, &c); err != nil {
		return c, err
	}
	if err := c.Check(); err != nil {
		return c, fmt.Errorf("%w: %w", errFrame, err)
	}
	return c, nil
}

func decodeEvent(f frame) (gpu.Event, error) {
	var e gpu.Event
	if err := decode(f, &e); err != nil {
		return e, err
	}
	if e.UUID == "" || len(e.UUID) > 128 || e.Kind < gpu.EventXid || e.Kind > gpu.EventRemap || len(e.Detail) > 1024 {
		return e, fmt.Errorf("%w: an event of %s", errFrame, e.Kind)
	}
	return e, nil
}

func decode(f frame, to any) error {
	if err := json.Unmarshal(f.body, to); err != nil {
		return fmt.Errorf("%w: %s: %w", errFrame, f.kind, err)
	}
	return nil
}

// encode makes a frame of a value, which JSON can always encode.
func encode(k kind, id uint32, v any) (frame, error) {
	body, err := json.Marshal(v)
	return frame{kind: k, id: id, body: body}, err
}

// oneLine makes text from another process safe for a log.
func oneLine(s string, atMost int) string {
	if len(s) > atMost {
		s = s[:atMost]
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
}

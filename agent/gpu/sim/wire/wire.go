// Package wire is the protocol between simulated GPUs and the processes that use them: frames
// of a 4-byte big-endian length and that many bytes of JSON, over a unix stream socket. The
// client sends Requests, the server Replies with the same ID. A run is answered by any number
// of CodeProgress replies and one final reply; every other request by exactly one. Unknown JSON
// fields are ignored, so that programs built earlier keep working after an agent's upgrade.
package wire

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// Version is the protocol version a Hello carries.
const Version = 1

// Limits of the protocol. A message that exceeds them ends the connection.
const (
	MaxFrame  = 64 << 10 // bytes of JSON in a frame
	MaxAllocs = 1024     // live allocations of one client
	MaxCards  = 16       // GPUs of one client
)

// Names of the environment variables by which a job finds its GPUs. The GPUs themselves come
// from BERTH_GPU_UUIDS.
const (
	EnvSocket  = "BERTH_SIM_SOCKET"
	EnvAttempt = "BERTH_SIM_ATTEMPT"
)

// Op is the operation that a request asks for.
type Op string

// The operations.
const (
	OpHello Op = "hello" // first on a connection: opens a context on each GPU
	OpAlloc Op = "alloc"
	OpFree  Op = "free"
	OpRun   Op = "run"  // one at a time
	OpStop  Op = "stop" // ends the run; its final reply reports how far it came
)

// Request is one message of a client. Exactly the field named by Op is set; OpFree uses
// Alloc.ID, OpStop none.
type Request struct {
	ID    uint64 `json:"id"`
	Op    Op     `json:"op"`
	Hello *Hello `json:"hello,omitempty"`
	Alloc *Alloc `json:"alloc,omitempty"`
	Run   *Run   `json:"run,omitempty"`
}

// Hello opens a client's contexts. After losing its connection, the client restates what it
// holds, and gets all of it back or nothing.
type Hello struct {
	Version int      `json:"v"`
	Attempt string   `json:"attempt"`
	Cards   []string `json:"cards"` // UUIDs; later messages name a GPU by its position here
	Held    []Alloc  `json:"held,omitempty"`
}

// Alloc is one allocation; the client chooses its ID.
type Alloc struct {
	ID    uint32 `json:"i"`
	Card  int    `json:"c,omitempty"`
	Bytes int64  `json:"b,omitempty"`
}

// Run is work on all the client's GPUs at once. Work and Done are seconds on the reference GPU,
// in nanoseconds; Done is what was already done on an earlier connection.
type Run struct {
	UtilMilli int64         `json:"util"`
	Work      time.Duration `json:"work"`
	Done      time.Duration `json:"done,omitempty"`
}

// Code is the kind of a reply.
type Code string

// The codes.
const (
	CodeOK       Code = "ok"
	CodeProgress Code = "progress"
	// CodeOOM: out of memory, on the GPU or under the attempt's cap.
	CodeOOM Code = "oom"
	// CodeUnknown: no such attempt here, perhaps not yet. Try again: an agent that has just
	// started may not have granted again what it adopts.
	CodeUnknown Code = "unknown-attempt"
	CodeDenied  Code = "denied" // another user's attempt, or a GPU outside the grant
	CodeBad     Code = "bad"    // the request is invalid
)

// Reply is one message of the server.
type Reply struct {
	ID   uint64 `json:"id"`
	Code Code   `json:"code"`
	Msg  string `json:"msg,omitempty"`
	// Cards answers a Hello.
	Cards []Card `json:"cards,omitempty"`
	// Memory is set with CodeOOM, and after alloc and free.
	Memory *Memory `json:"mem,omitempty"`
	// Done and SpeedMilli describe a run: reference nanoseconds done, and speed in thousandths
	// of the reference GPU without neighbours.
	Done       time.Duration `json:"done,omitempty"`
	SpeedMilli int64         `json:"speed,omitempty"`
}

// Card is a GPU as the client sees it.
type Card struct {
	UUID         string `json:"uuid"`
	Type         string `json:"type"`
	Name         string `json:"name"`
	TotalBytes   int64  `json:"total"`
	ContextBytes int64  `json:"context"`
	SpeedMilli   int64  `json:"speed"` // of the reference GPU, without neighbours on this one
}

// Memory is the state of one GPU at an allocation.
type Memory struct {
	Card       int   `json:"c,omitempty"`
	TotalBytes int64 `json:"total"`
	FreeBytes  int64 `json:"free"` // of the GPU
	// AskedBytes is the size of what was refused, with CodeOOM; for a hello, the context or the
	// restated allocation.
	AskedBytes int64 `json:"asked,omitempty"`
	// HeldBytes is what the attempt holds, contexts included. CapBytes is the most it may hold,
	// 0 when only the GPU limits it.
	HeldBytes int64 `json:"held"`
	CapBytes  int64 `json:"cap,omitempty"`
}

// ErrFrame says that the data on the connection is no frame of this protocol.
var ErrFrame = errors.New("bad frame")

// Write sends v as one frame, in one call of w.Write.
func Write(w io.Writer, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode frame: %w", err)
	}
	if len(body) > MaxFrame {
		return fmt.Errorf("%w: %d bytes to send, at most %d", ErrFrame, len(body), MaxFrame)
	}
	frame := make([]byte, 4, 4+len(body))
	binary.BigEndian.PutUint32(frame, uint32(len(body)))
	_, err = w.Write(append(frame, body...))
	return err
}

// ReadRequest reads and checks one request. It returns io.EOF only between frames, and an error
// wrapping ErrFrame for data that is no valid request.
func ReadRequest(r io.Reader) (Request, error) {
	var q Request
	if err := read(r, &q); err != nil {
		return Request{}, err
	}
	return q, q.check()
}

// ReadReply reads one reply; errors as for ReadRequest.
func ReadReply(r io.Reader) (Reply, error) {
	var p Reply
	if err := read(r, &p); err != nil {
		return Reply{}, err
	}
	if p.Code == "" {
		return Reply{}, fmt.Errorf("%w: reply without a code", ErrFrame)
	}
	return p, nil
}

// read decodes one frame into v. Nothing is allocated beyond MaxFrame.
func read(r io.Reader, v any) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n == 0 || n > MaxFrame {
		return fmt.Errorf("%w: length %d is outside 1-%d", ErrFrame, n, MaxFrame)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("%w: %w", ErrFrame, err)
	}
	return nil
}

// check rejects requests whose parts are missing or out of range, so that the server need check
// only what depends on its own state.
func (q *Request) check() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s: %s", ErrFrame, q.Op, fmt.Sprintf(format, args...))
	}
	switch q.Op {
	case OpHello:
		return q.checkHello(bad)
	case OpAlloc:
		if q.Alloc == nil {
			return bad("no allocation")
		}
		return q.Alloc.check(MaxCards, bad)
	case OpFree:
		if q.Alloc == nil {
			return bad("no allocation")
		}
	case OpRun:
		if q.Run == nil {
			return bad("no run")
		}
		if q.Run.UtilMilli < 1 || q.Run.UtilMilli > 1000 {
			return bad("utilization %d is outside 1-1000", q.Run.UtilMilli)
		}
		if q.Run.Work < 0 || q.Run.Work > MaxWork || q.Run.Done < 0 || q.Run.Done > q.Run.Work {
			return bad("work %d of %d ns is outside 0-%d", q.Run.Done, q.Run.Work, int64(MaxWork))
		}
	case OpStop:
	default:
		return fmt.Errorf("%w: unknown operation %.20q", ErrFrame, q.Op)
	}
	return nil
}

// MaxWork bounds one run, so that its arithmetic stays far from overflow.
const MaxWork = 400 * 24 * time.Hour

// Block is the granularity of allocation, as in CUDA's memory manager: each allocation is
// charged as a multiple of it.
const Block = 2 << 20

// MaxBytes bounds one allocation; no GPU comes near it.
const MaxBytes = 1 << 44

func (q *Request) checkHello(bad func(string, ...any) error) error {
	h := q.Hello
	if h == nil {
		return bad("no hello")
	}
	if h.Version != Version {
		return bad("protocol version %d, this agent speaks %d", h.Version, Version)
	}
	if len(h.Cards) == 0 || len(h.Cards) > MaxCards {
		return bad("%d cards, outside 1-%d", len(h.Cards), MaxCards)
	}
	if len(h.Held) > MaxAllocs {
		return bad("%d allocations, at most %d", len(h.Held), MaxAllocs)
	}
	seen := make(map[uint32]struct{}, len(h.Held))
	for i := range h.Held {
		if err := h.Held[i].check(len(h.Cards), bad); err != nil {
			return err
		}
		if _, dup := seen[h.Held[i].ID]; dup {
			return bad("allocation %d named twice", h.Held[i].ID)
		}
		seen[h.Held[i].ID] = struct{}{}
	}
	return nil
}

func (a *Alloc) check(cards int, bad func(string, ...any) error) error {
	if a.Card < 0 || a.Card >= cards {
		return bad("card %d is outside 0-%d", a.Card, cards-1)
	}
	if a.Bytes < 1 || a.Bytes > MaxBytes {
		return bad("%d bytes is outside 1-%d", a.Bytes, int64(MaxBytes))
	}
	return nil
}

package calls

import (
	"context"
	"runtime"

	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec that is wrapped
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/limit"
)

// Encoded is a message in wire format: an answer of the leader that another
// coordinator forwards unchanged, or one that was encoded in a turn.
type Encoded struct {
	data []byte
	of   *unread // nil if it is not counted
}

// unread is an answer in memory until its caller has read it. It is a
// mem.BufferPool that supplies nothing and gets back the one buffer.
type unread struct{ read func() }

// Get implements mem.BufferPool.
func (*unread) Get(n int) *[]byte { b := make([]byte, n); return &b }

// Put implements mem.BufferPool: the answer was written, or its stream ended.
func (u *unread) Put(*[]byte) { u.read() }

// leastBuffer is how large a buffer must be for gRPC to report that it is done with
// it.
const leastBuffer = 1 << 10

// codec is gRPC's protobuf codec, but leaves encoded messages unchanged.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2("proto")} }

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if e, ok := v.(*Encoded); ok {
		if e.of == nil {
			return mem.BufferSlice{mem.SliceBuffer(e.data)}, nil
		}
		return mem.BufferSlice{mem.NewBuffer(&e.data, e.of)}, nil
	}
	return c.CodecV2.Marshal(v)
}

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if e, ok := v.(*Encoded); ok {
		e.data = data.Materialize()
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}

// Turn waits until a call may compute for long, and charges the time to its user.
// The error is the context's.
func (c *Calls) Turn(ctx context.Context) (*limit.Turn, error) {
	var call *limit.Call
	if a := admittedOf(ctx); a != nil {
		call = a.call
	}
	return c.turns.Take(ctx, call)
}

// MayWork refuses a call while its user's calls took too much of the coordinator's time.
func (c *Calls) MayWork(ctx context.Context) error { return counted(ctx, (*limit.Call).MayWork) }

// Brings counts what the request of a context brings into memory in addition to
// what was sent: a few bytes may name megabytes.
func (c *Calls) Brings(ctx context.Context, bytes int64) error {
	return counted(ctx, func(c *limit.Call) error { return c.Brings(int(bytes)) })
}

// Holds counts what the answer to a request takes in memory until its caller has
// read it.
func (c *Calls) Holds(ctx context.Context, bytes int64) error {
	return counted(ctx, func(c *limit.Call) error { return c.Holds(bytes) })
}

func counted(ctx context.Context, count func(*limit.Call) error) error {
	a := admittedOf(ctx)
	if a == nil {
		return nil
	}
	if err := count(a.call); err != nil {
		return refused(err)
	}
	return nil
}

// Encode returns m in wire format.
func Encode(m proto.Message) (*Encoded, error) {
	data, err := proto.Marshal(m)
	if err != nil {
		return nil, cluster.Errorf(cluster.CodeInternal, "answer: %v", err)
	}
	return &Encoded{data: data}, nil
}

// counting returns an answer to a user that is counted until it was read.
func (a *admitted) counting(resp any) (any, error) {
	e, ok := resp.(*Encoded)
	if !ok {
		m, isMessage := resp.(proto.Message)
		if !isMessage {
			return resp, nil
		}
		data, err := proto.MarshalOptions{}.MarshalAppend(make([]byte, 0, max(leastBuffer, proto.Size(m))), m)
		if err != nil {
			return nil, cluster.Errorf(cluster.CodeInternal, "answer: %v", err)
		}
		e = &Encoded{data: data}
	}
	if cap(e.data) < leastBuffer {
		e.data = append(make([]byte, 0, leastBuffer), e.data...)
	}
	read, err := a.call.Unread(len(e.data))
	if err != nil {
		return nil, refused(err)
	}
	e.of = &unread{read}
	// A connection that breaks leaves buffers to the garbage collector.
	runtime.AddCleanup(e.of, func(read func()) { read() }, read)
	return e, nil
}

// encodeInTurn encodes a large answer.
func (c *Calls) encodeInTurn(ctx context.Context, resp any) (any, error) {
	m, ok := resp.(proto.Message)
	if !ok {
		return resp, nil
	}
	turn, err := c.Turn(ctx)
	if err != nil {
		return nil, err
	}
	defer turn.End()
	e, err := Encode(m)
	if err != nil {
		return nil, err
	}
	return e, nil
}

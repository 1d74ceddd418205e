package calls

import (
	"context"

	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec that is wrapped
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/limit"
)

// Encoded is a message in the form that goes over the wire: an answer of the
// leader's that another coordinator passes on as it is, or one that was encoded in
// a turn.
type Encoded struct{ data []byte }

// codec is gRPC's for protobuf, which leaves encoded messages as they are.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2("proto")} }

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if e, ok := v.(*Encoded); ok {
		return mem.BufferSlice{mem.SliceBuffer(e.data)}, nil
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

// Turn waits until a call may compute for long. What it takes is charged to its
// user. The error is the context's.
func (c *Calls) Turn(ctx context.Context) (*limit.Turn, error) {
	var call *limit.Call
	if a := admittedOf(ctx); a != nil {
		call = a.call
	}
	return c.turns.Take(ctx, call)
}

// Brings counts what the request of a context brings into memory beside what was sent: a few
// bytes may name megabytes.
func (c *Calls) Brings(ctx context.Context, bytes int64) error {
	a := admittedOf(ctx)
	if a == nil {
		return nil
	}
	if err := a.call.Brings(int(bytes)); err != nil {
		return refused(err)
	}
	return nil
}

// Encode is m in the form that goes over the wire.
func Encode(m proto.Message) (*Encoded, error) {
	data, err := proto.Marshal(m)
	if err != nil {
		return nil, cluster.Errorf(cluster.CodeInternal, "answer: %v", err)
	}
	return &Encoded{data}, nil
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

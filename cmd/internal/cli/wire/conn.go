package wire

import (
	"context"
	"errors"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/cmd/internal/cli/link"
)

// Conn makes calls over one socket. It is safe for concurrent use.
type Conn struct{ link.Conn }

// Invoke makes a unary call. The error is a gRPC status; a connection that
// breaks is codes.Unavailable, as with gRPC's own client.
func (c *Conn) Invoke(ctx context.Context, method string, req, resp proto.Message) error {
	data, err := message(req)
	if err != nil {
		return err
	}
	data, err = c.Conn.Invoke(ctx, method, data)
	if err != nil {
		return typed(err)
	}
	return decode(data, resp)
}

// Stream is a streaming call; see link.Stream.
type Stream struct{ *link.Stream }

// Stream begins a streaming call.
func (c *Conn) Stream(ctx context.Context, method string) (*Stream, error) {
	s, err := c.Conn.Stream(ctx, method)
	if err != nil {
		return nil, typed(err)
	}
	return &Stream{s}, nil
}

// Send sends a message; see link.Stream.
func (s *Stream) Send(m proto.Message) error {
	data, err := message(m)
	if err != nil {
		return err
	}
	return s.Stream.Send(data)
}

// Recv receives a message; io.EOF when the call has ended well.
func (s *Stream) Recv(m proto.Message) error {
	data, err := s.Stream.Recv()
	if err != nil {
		return typed(err)
	}
	if err := decode(data, m); err != nil {
		s.Break()
		return err
	}
	return nil
}

// message encodes m with room for gRPC's head.
func message(m proto.Message) ([]byte, error) {
	b := make([]byte, link.Head, link.Head+proto.Size(m))
	b, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(b, m)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "the request: %v", err)
	}
	return b, nil
}

func decode(data []byte, m proto.Message) error {
	if err := proto.Unmarshal(data, m); err != nil {
		return status.Errorf(codes.Internal, "the answer: %v", err)
	}
	return nil
}

// typed converts a *link.Status to gRPC's status.
func typed(err error) error {
	s, ok := errors.AsType[*link.Status](err)
	if !ok {
		return err
	}
	var st spb.Status
	if len(s.Details) > 0 && proto.Unmarshal(s.Details, &st) == nil && uint32(st.GetCode()) == s.Code { // #nosec G115 -- compared alone
		return status.FromProto(&st).Err()
	}
	return status.Error(codes.Code(s.Code), s.Msg)
}

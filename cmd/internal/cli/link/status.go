package link

import "fmt"

// Head is how many bytes gRPC puts before each message.
const Head = 5

// Codes of gRPC that a client says by itself.
const (
	Canceled         = 1
	Unknown          = 2
	DeadlineExceeded = 4
	Exhausted        = 8
	Internal         = 13
	Unavailable      = 14
)

// Status is how a call ended that did not end well, in gRPC's terms.
type Status struct {
	Code uint32
	Msg  string
	// Details is an encoded google.rpc.Status, nil if none came.
	Details []byte
}

// Error implements error.
func (s *Status) Error() string { return s.Msg }

func statusf(code uint32, format string, args ...any) error {
	return &Status{Code: code, Msg: fmt.Sprintf(format, args...)}
}

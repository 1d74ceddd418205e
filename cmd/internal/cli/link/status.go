package link

import "fmt"

// Head is how many bytes gRPC puts before each message.
const Head = 5

// The gRPC codes that a client produces itself.
const (
	Canceled         = 1
	Unknown          = 2
	DeadlineExceeded = 4
	Exhausted        = 8
	Internal         = 13
	Unavailable      = 14
)

// Status is how a call failed, in gRPC's terms.
type Status struct {
	Code uint32
	Msg  string
	// Details is an encoded google.rpc.Status, nil if none arrived.
	Details []byte
}

// Error implements error.
func (s *Status) Error() string { return s.Msg }

func statusf(code uint32, format string, args ...any) error {
	return &Status{Code: code, Msg: fmt.Sprintf(format, args...)}
}

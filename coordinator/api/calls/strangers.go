package calls

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
)

// What a machine without a certificate may use of a coordinator: a request to join
// is a token and a certificate request, some 1 KiB, and answered at once.
const (
	// MaxStrangers is how many such connections are open at once,
	// MaxStrangersPerHost how many from one address.
	MaxStrangers        = 128
	MaxStrangersPerHost = 16

	strangerStreams = 1
	strangerMessage = 64 << 10
	strangerHeaders = 8 << 10
	strangerLife    = 10 * time.Second
	strangerGrace   = time.Second
)

// JoinServer serves peers without a certificate. It is a separate server, so that
// whatever they send is bounded before any of it is examined.
func (c *Calls) JoinServer() *grpc.Server {
	s := grpc.NewServer(
		grpc.Creds(c.cfg.Credentials), grpc.ConnectionTimeout(strangerLife/2),
		grpc.MaxRecvMsgSize(strangerMessage), grpc.MaxConcurrentStreams(strangerStreams), grpc.MaxHeaderListSize(strangerHeaders),
		grpc.InitialWindowSize(strangerMessage), grpc.InitialConnWindowSize(strangerMessage),
		grpc.ReadBufferSize(4<<10), grpc.WriteBufferSize(4<<10),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionAge: strangerLife, MaxConnectionAgeGrace: strangerGrace}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: strangerLife}),
		grpc.UnaryInterceptor(c.unary),
		grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error {
			return status.Error(codes.Unauthenticated, "a client certificate is needed; without one a machine may only join")
		}),
	)
	return s
}

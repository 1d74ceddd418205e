package tlsconf

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
)

// connectTime is how long another daemon has to accept a connection.
const connectTime = 5 * time.Second

// Dialer returns a function that connects to daemons of the given role with
// this daemon's certificate. Connections are made on first use.
func Dialer(src *Source, want Role, more ...grpc.DialOption) func(addr string) (*grpc.ClientConn, error) {
	return func(addr string) (*grpc.ClientConn, error) {
		cfg := ClientConfig(src, want)
		cfg.NextProtos = []string{ProtoGRPC}
		return grpc.NewClient("passthrough:///"+addr, append([]grpc.DialOption{
			grpc.WithTransportCredentials(credentials.NewTLS(cfg)),
			// An address where nothing answers must not hold up those after it for
			// long: an address learned by gossip may be anybody's.
			grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: connectTime}),
			grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 5 * time.Second, Timeout: 5 * time.Second}),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64 << 20)),
			// Fixed windows, so that a stream with a slow reader buffers no more.
			grpc.WithInitialWindowSize(256 << 10), grpc.WithInitialConnWindowSize(4 << 20),
		}, more...)...)
	}
}

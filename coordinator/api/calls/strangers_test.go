package calls

import (
	"context"
	"io"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berth-scheduler/berth/coordinator/figures"
	"github.com/berth-scheduler/berth/coordinator/nodes"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/berth/node/v1/noderpc"
)

// strangers serves those without a certificate until the test ends.
func strangers(t *testing.T) *bufconn.Listener {
	log := slog.New(slog.DiscardHandler)
	c := New(Config{Credentials: insecure.NewCredentials()}, Needs{Figures: figures.New(time.Time{}), Registry: prometheus.NewRegistry(), Log: log})
	ln, srv := bufconn.Listen(1<<20), c.JoinServer()
	nodes.New(nodes.Config{}, nodes.Needs{Log: log}).RegisterJoin(srv)
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(ln) }()
	t.Cleanup(func() { srv.Stop(); <-done })
	return ln
}

func TestStrangersMayJoinAndNothingElse(t *testing.T) {
	ln := strangers(t)
	cc, err := grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return ln.Dial() }))
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	node := noderpc.NewNodeServiceClient(cc)
	if _, err := node.Join(t.Context(), &nodev1.JoinRequest{Node: "n1"}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("join: %v, want the handler's own refusal for want of a CA key", err)
	}
	if _, err := node.Join(t.Context(), &nodev1.JoinRequest{Csr: make([]byte, strangerMessage)}); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("join with 64 KiB: %v, want ResourceExhausted", err)
	}
	if _, err := node.Renew(t.Context(), &nodev1.RenewRequest{}); status.Code(err) != codes.Unauthenticated {
		t.Errorf("renew: %v, want Unauthenticated", err)
	}
	if _, err := apirpc.NewClusterServiceClient(cc).GetStatus(t.Context(), &apiv1.GetStatusRequest{}); status.Code(err) != codes.Unauthenticated {
		t.Errorf("status: %v, want Unauthenticated", err)
	}
	s, err := node.Session(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); status.Code(err) != codes.Unauthenticated {
		t.Errorf("session: %v, want Unauthenticated", err)
	}
}

// TestStrangersDoNotStay: whether they say nothing at all, or begin to speak
// HTTP/2 and then fall silent.
func TestStrangersDoNotStay(t *testing.T) {
	const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + "\x00\x00\x00\x04\x00\x00\x00\x00\x00" // empty SETTINGS
	for name, says := range map[string]string{"silent": "", "idle": preface} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ln := strangers(t)
				conn, err := ln.Dial()
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				if _, err := io.WriteString(conn, says); err != nil {
					t.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, conn) // until the server ends it
				if d := time.Since(began); d > strangerLife*11/10+2*strangerGrace {
					t.Errorf("kept for %s", d)
				}
				conn.Close()
			})
		})
	}
}

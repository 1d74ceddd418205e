package tlsconf

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// The type argument makes the method sets equal without an import here.
var _ raft.StreamLayer = (*StreamLayer[raft.ServerAddress])(nil)

// muxFixture is a Mux on loopback with an echo server on the raft side and a
// health service on the gRPC side that tells who called.
type muxFixture struct {
	ca     *CA
	mux    *Mux
	addr   string
	layer  *StreamLayer[string]
	called chan string
}

// Check implements grpc_health_v1.HealthServer.
func (f *muxFixture) Check(ctx context.Context, _ *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	who, _, err := FromContext(ctx)
	if err != nil {
		return nil, status.Error(codes.Unauthenticated, err.Error())
	}
	f.called <- who.String()
	return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}, nil
}

type healthService struct {
	grpc_health_v1.UnimplementedHealthServer
	*muxFixture
}

func (h healthService) Check(ctx context.Context, r *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	return h.muxFixture.Check(ctx, r)
}

func startMux(t *testing.T, change func(*MuxConfig)) *muxFixture {
	t.Helper()
	f := &muxFixture{ca: testCA(t, "one"), called: make(chan string, 16)}
	src := testSource(t, f.ca, RoleCoordinator, "c1")
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.addr = ln.Addr().String()
	cfg := MuxConfig{Listener: ln, Log: discard(), Protocols: map[string]*tls.Config{
		ProtoRaft: ServerConfig(src, RoleCoordinator),
		ProtoGRPC: JoinServerConfig(src, RoleCoordinator, RoleAgent, RoleGate),
	}}
	if change != nil {
		change(&cfg)
	}
	if f.mux, err = NewMux(cfg); err != nil {
		t.Fatal(err)
	}
	f.layer = NewStreamLayer[string](f.mux.Listener(ProtoRaft), src, f.addr)
	server := grpc.NewServer(grpc.Creds(HandshakenCredentials()))
	grpc_health_v1.RegisterHealthServer(server, healthService{muxFixture: f})

	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := f.mux.Run(ctx); err != nil {
			t.Errorf("mux: %v", err)
		}
	})
	wg.Go(func() {
		if err := server.Serve(f.mux.Listener(ProtoGRPC)); err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, grpc.ErrServerStopped) {
			t.Errorf("grpc: %v", err)
		}
	})
	wg.Go(func() { echoAll(f.layer) })
	t.Cleanup(func() {
		cancel()
		server.Stop()
		wg.Wait()
	})
	return f
}

// echoAll answers each connection with what it sends, until ln closes.
func echoAll(ln net.Listener) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		wg.Go(func() {
			defer conn.Close()
			io.Copy(conn, conn) // ends when the client closes
		})
	}
}

func (f *muxFixture) check(t *testing.T, cfg *tls.Config) error {
	t.Helper()
	conn, err := grpc.NewClient(f.addr, grpc.WithTransportCredentials(credentials.NewTLS(cfg)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	_, err = grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
	return err
}

// echo sends a message through the raft side and reads it back.
func (f *muxFixture) echo(t *testing.T, src *Source) error {
	t.Helper()
	layer := NewStreamLayer[string](f.mux.Listener(ProtoRaft), src, f.addr)
	conn, err := layer.Dial(f.addr, time.Minute)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	msg := bytes.Repeat([]byte("append entries "), 10_000)
	sent := make(chan error, 1)
	go func() { _, err := conn.Write(msg); sent <- err }()
	got := make([]byte, len(msg))
	if _, err := io.ReadFull(conn, got); err != nil {
		return errors.Join(err, <-sent)
	}
	if !bytes.Equal(got, msg) {
		t.Error("the echo differs")
	}
	return <-sent
}

func TestMuxSplitsRaftAndGRPC(t *testing.T) {
	f := startMux(t, nil)
	coordinator, agent := testSource(t, f.ca, RoleCoordinator, "c2"), testSource(t, f.ca, RoleAgent, "n1")

	if f.layer.Addr().String() != f.addr || f.layer.Addr().Network() != "tcp" {
		t.Errorf("stream layer at %v, want %s", f.layer.Addr(), f.addr)
	}
	if err := f.echo(t, coordinator); err != nil {
		t.Errorf("raft as coordinator: %v", err)
	}
	if err := f.check(t, ClientConfig(agent, RoleCoordinator)); err != nil {
		t.Fatalf("grpc as agent: %v", err)
	}
	if who := <-f.called; who != "spiffe://one/agent/n1" {
		t.Errorf("the service saw %s", who)
	}
	// An agent may speak gRPC but not Raft, and a stranger neither.
	if err := f.echo(t, agent); err == nil {
		t.Error("an agent came in on the raft side")
	}
	stranger := testSource(t, testCA(t, "one"), RoleCoordinator, "c2")
	if err := f.echo(t, stranger); !errors.Is(err, ErrOtherCluster) {
		t.Errorf("stranger: %v, want ErrOtherCluster", err)
	}
	// A joining node comes in on the gRPC side only, and as nobody.
	if err := f.check(t, ClientConfigPinned(f.ca.Hash())); status.Code(err) != codes.Unauthenticated {
		t.Errorf("joining node: %v, want Unauthenticated from the service itself", err)
	}
}

func TestMuxRefusesOtherProtocols(t *testing.T) {
	f := startMux(t, nil)
	src := testSource(t, f.ca, RoleCoordinator, "c2")
	for name, protos := range map[string][]string{"none": nil, "http": {"http/1.1"}} {
		cfg := ClientConfig(src, RoleCoordinator)
		cfg.NextProtos = protos
		conn, err := tls.Dial("tcp", f.addr, cfg)
		if err == nil {
			_, err = conn.Read(make([]byte, 1))
			conn.Close()
		}
		if err == nil {
			t.Errorf("%s: came in", name)
		}
	}
	// Plain HTTP gets no answer but an end.
	raw, err := net.Dial("tcp", f.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	if _, err := raw.Write([]byte("GET / HTTP/1.0\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	expectEnd(t, raw)
}

// expectEnd waits until the other side ends conn.
func expectEnd(t *testing.T, conn net.Conn) {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	_, err := io.Copy(io.Discard, conn)
	if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
		t.Fatal("the connection was kept open")
	}
}

// TestMuxEndsSilentClients: clients that connect and say nothing are cut
// after the deadline, and do not keep others out.
func TestMuxEndsSilentClients(t *testing.T) {
	f := startMux(t, func(c *MuxConfig) { c.HandshakeTimeout = 300 * time.Millisecond; c.MaxHandshakes = 8 })
	var silent []net.Conn
	for range 40 {
		conn, err := net.Dial("tcp", f.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		silent = append(silent, conn)
	}
	for _, conn := range silent {
		expectEnd(t, conn)
	}
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		f.mux.mu.Lock()
		hosts, pending := len(f.mux.perHost)+len(f.mux.waiting)+f.mux.waits, len(f.mux.pending)
		f.mux.mu.Unlock()
		if hosts == 0 && pending == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("still counted: %d hosts, %d connections", hosts, pending)
		}
	}
	src := testSource(t, f.ca, RoleCoordinator, "c2")
	for deadline := time.Now().Add(2 * time.Minute); ; { // a busy machine may not shake hands in that time, but once it does
		err := f.echo(t, src)
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after the silent ones: %v", err)
		}
	}
}

// TestMuxBoundsHandshakes: at no time do more goroutines shake hands than
// allowed, however many clients there are.
func TestMuxBoundsHandshakes(t *testing.T) {
	f := startMux(t, func(c *MuxConfig) { c.MaxHandshakes = 8 })
	src := testSource(t, f.ca, RoleCoordinator, "c2")
	stop := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			f.mux.mu.Lock()
			n := f.mux.perHost["127.0.0.1"]
			f.mux.mu.Unlock()
			if n > 2 { // a quarter of 8 for one address
				t.Errorf("%d handshakes of one address at once", n)
				return
			}
		}
	})
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 50 { // those over the bound are refused and come again
				if f.echo(t, src) == nil {
					return
				}
			}
			t.Error("a client never came in")
		})
	}
	wg.Wait()
	close(stop)
	watch.Wait()
}

func TestMuxClose(t *testing.T) {
	f := startMux(t, nil)
	silent, err := net.Dial("tcp", f.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	open, err := f.layer.Dial(f.addr, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	roundTrip := func() {
		if _, err := open.Write([]byte("x")); err != nil {
			t.Fatalf("write: %v", err)
		}
		if _, err := io.ReadFull(open, make([]byte, 1)); err != nil {
			t.Fatalf("read: %v", err)
		}
	}
	roundTrip()

	if err := f.mux.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.mux.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	expectEnd(t, silent) // cut at once, not after 5 s
	if _, err := f.mux.Listener(ProtoRaft).Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept: %v, want net.ErrClosed", err)
	}
	if conn, err := net.Dial("tcp", f.addr); err == nil {
		conn.Close()
		t.Error("the port still accepts")
	}
	roundTrip() // belongs to raft, not to the mux
	open.Close()
}

// TestMuxCloseOfOneProtocol: the other goes on.
func TestMuxCloseOfOneProtocol(t *testing.T) {
	f := startMux(t, nil)
	if err := f.layer.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.echo(t, testSource(t, f.ca, RoleCoordinator, "c2")); err == nil {
		t.Error("the closed side answers")
	}
	if err := f.check(t, ClientConfig(testSource(t, f.ca, RoleAgent, "n1"), RoleCoordinator)); err != nil {
		t.Errorf("the open side: %v", err)
	}
}

func TestNewMuxRefuses(t *testing.T) {
	if _, err := NewMux(MuxConfig{}); err == nil {
		t.Error("an empty configuration was accepted")
	}
	f := startMux(t, nil)
	if ln := f.mux.Listener("gopher"); ln != nil {
		t.Error("a listener for a protocol that is not served")
	}
}

func TestStreamLayerDialTimesOut(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0") // accepts by its backlog, never speaks
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	layer := NewStreamLayer[string](ln, testSource(t, testCA(t, "one"), RoleCoordinator, "c1"), "c1:7070")
	start := time.Now()
	_, err = layer.Dial(ln.Addr().String(), 200*time.Millisecond)
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > time.Minute {
		t.Errorf("got %v after %v, want a deadline", err, time.Since(start))
	}
}

func TestHandshakenCredentials(t *testing.T) {
	c := HandshakenCredentials().Clone()
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	if _, _, err := c.ServerHandshake(here); err == nil {
		t.Error("a plain connection was taken for a verified one")
	}
	if _, _, err := c.ServerHandshake(tls.Server(here, &tls.Config{})); err == nil {
		t.Error("a connection before its handshake was taken for a verified one")
	}
	if _, _, err := c.ClientHandshake(t.Context(), "", here); err == nil {
		t.Error("served as a client's credentials")
	}
	if _, _, err := FromContext(t.Context()); !errors.Is(err, ErrNoCertificate) {
		t.Errorf("context without a peer: %v, want ErrNoCertificate", err)
	}
}

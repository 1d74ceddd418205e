package link_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/berth-scheduler/berth/cmd/internal/cli/link"
	"github.com/berth-scheduler/berth/cmd/internal/cli/wire"
)

// served is a gRPC server that answers by handle until the test ends, and how it is
// called.
type served struct {
	*wire.Conn
	srv                  *grpc.Server
	dials, sent, unsents atomic.Int32
}

func serve(t *testing.T, handle func(grpc.ServerStream) error, opts ...grpc.ServerOption) *served {
	t.Helper()
	ln := bufconn.Listen(32 << 10)
	opts = append(opts, grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error { return handle(s) }), grpc.MaxRecvMsgSize(64<<20), grpc.MaxSendMsgSize(64<<20))
	s := &served{srv: grpc.NewServer(opts...)}
	done := make(chan struct{})
	go func() { defer close(done); _ = s.srv.Serve(ln) }()
	t.Cleanup(func() { s.Close(); s.srv.Stop(); <-done })
	s.Conn = &wire.Conn{Conn: link.Conn{
		Dial:   func(ctx context.Context) (net.Conn, error) { s.dials.Add(1); return ln.DialContext(ctx) },
		Header: [][2]string{{"user-agent", "test"}, {"berth-thing", strings.Repeat("x", 300)}},
		Most:   48 << 20, Sent: func() { s.sent.Add(1) }, Unsent: func() { s.unsents.Add(1) },
	}}
	return s
}

// echo sends back what comes, until nothing does.
func echo(s grpc.ServerStream) error {
	for {
		var m wrapperspb.BytesValue
		switch err := s.RecvMsg(&m); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if err := s.SendMsg(&m); err != nil {
			return err
		}
	}
}

func (s *served) call(ctx context.Context, data []byte) ([]byte, error) {
	var out wrapperspb.BytesValue
	err := s.Invoke(ctx, "/x.Y/Z", wrapperspb.Bytes(data), &out)
	return out.GetValue(), err
}

// TestCalls: requests and answers of any size come whole, on one connection.
func TestCalls(t *testing.T) {
	t.Parallel()
	s := serve(t, echo)
	for _, n := range []int{0, 1, 16<<10 - 10, 16 << 10, 1 << 20, 40 << 20, 3} {
		data := bytes.Repeat([]byte{byte(n), 1, 2}, n/3+1)[:n]
		got, err := s.call(t.Context(), data)
		if err != nil || !bytes.Equal(got, data) {
			t.Fatalf("%d bytes: %d came, %v", n, len(got), err)
		}
	}
	if s.dials.Load() != 1 || s.sent.Load() != 7 || s.unsents.Load() != 0 {
		t.Errorf("%d connections for 7 calls, told of %d, %d not begun", s.dials.Load(), s.sent.Load(), s.unsents.Load())
	}
}

// TestOverUnixSocket: a kernel's socket, and calls at once.
func TestOverUnixSocket(t *testing.T) {
	t.Parallel()
	s := serve(t, echo)
	path := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = s.srv.Serve(ln) }() // ends with the server
	s.Dial = func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}
	ends := make(chan error)
	for i := range 8 {
		go func() {
			data := bytes.Repeat([]byte{byte(i)}, i<<17)
			got, err := s.call(t.Context(), data)
			if err == nil && !bytes.Equal(got, data) {
				err = errors.New("another answer came")
			}
			ends <- err
		}()
	}
	for range 8 {
		if err := <-ends; err != nil {
			t.Error(err)
		}
	}
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	var md metadata.MD
	var left time.Duration
	s := serve(t, func(s grpc.ServerStream) error {
		md, _ = metadata.FromIncomingContext(s.Context())
		end, _ := s.Context().Deadline()
		left = time.Until(end)
		return echo(s)
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	if _, err := s.call(ctx, nil); err != nil {
		t.Fatal(err)
	}
	if got := md.Get("berth-thing"); len(got) != 1 || len(got[0]) != 300 || md.Get("user-agent")[0] != "test" {
		t.Errorf("the server saw %v", md)
	}
	if left < 59*time.Minute || left > time.Hour {
		t.Errorf("the server has %s, want an hour", left)
	}
}

func TestStatuses(t *testing.T) {
	t.Parallel()
	rich, err := status.New(codes.FailedPrecondition, "was „drained“ 100%\nnow").WithDetails(&errdetails.ErrorInfo{Reason: "CONFLICT"})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]*status.Status{
		"plain":   status.New(codes.NotFound, "no such job"),
		"escaped": status.New(codes.Internal, "50 % of\n„this“"),
		"rich":    rich,
		"long":    status.New(codes.Aborted, strings.Repeat("long ", 10_000)),
	} {
		s := serve(t, func(grpc.ServerStream) error { return want.Err() })
		_, err := s.call(t.Context(), make([]byte, 5<<20)) // the answer comes before it was sent
		got := status.Convert(err)
		if got.Code() != want.Code() || got.Message() != want.Message() || len(got.Details()) != len(want.Details()) {
			t.Errorf("%s: %v", name, err)
		}
		stream, err := s.Stream(t.Context(), "/x.Y/Z")
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Recv(&wrapperspb.BytesValue{}); status.Convert(err).Message() != want.Message() {
			t.Errorf("%s, of a stream: %v", name, err)
		}
	}
}

// TestTimeouts: a server that is silent is left when the time is over, whether or not
// it took the connection.
func TestTimeouts(t *testing.T) {
	for name, handle := range map[string]func(grpc.ServerStream) error{
		"in a call": func(s grpc.ServerStream) error { <-s.Context().Done(); return s.Context().Err() },
		"before it": nil,
	} {
		synctest.Test(t, func(t *testing.T) {
			s := serve(t, handle)
			if handle == nil {
				silent := bufconn.Listen(1 << 10)
				s.Dial = silent.DialContext
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			began := time.Now()
			_, err := s.call(ctx, nil)
			if status.Code(err) != codes.DeadlineExceeded || time.Since(began) != 5*time.Second {
				t.Errorf("%s: %v after %s", name, err, time.Since(began))
			}
			if want := int32(0); handle == nil && s.sent.Load() != want {
				t.Errorf("%s: a call was sent", name)
			}
		})
	}
}

// TestServerStartsAgain: a connection that the server closed is no reason for a call
// to fail.
func TestServerStartsAgain(t *testing.T) {
	t.Parallel()
	s := serve(t, echo)
	if _, err := s.call(t.Context(), []byte("a")); err != nil {
		t.Fatal(err)
	}
	next := serve(t, echo)
	s.Dial = next.Dial
	s.srv.Stop()
	for range 2 {
		if got, err := s.call(t.Context(), []byte("b")); err != nil || string(got) != "b" {
			t.Fatalf("%q, %v", got, err)
		}
	}
	if next.dials.Load() != 1 {
		t.Errorf("%d connections", next.dials.Load())
	}
}

// TestPings: who follows a stream that is quiet, and who waits for an answer, is known
// to be there.
func TestPings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, func(s grpc.ServerStream) error { time.Sleep(time.Hour); return echo(s) },
			grpc.KeepaliveParams(keepalive.ServerParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}))
		stream, err := s.Stream(t.Context(), "/x.Y/Z")
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(wrapperspb.Bytes([]byte("c"))); err != nil {
			t.Fatal(err)
		}
		if got, err := s.call(t.Context(), []byte("d")); err != nil || string(got) != "d" {
			t.Errorf("a call: %q, %v", got, err)
		}
		var m wrapperspb.BytesValue
		if err := stream.Recv(&m); err != nil || string(m.GetValue()) != "c" {
			t.Errorf("a stream: %q, %v", m.GetValue(), err)
		}
	})
}

// TestStreams sends far more than the windows while nobody receives, and receives it.
func TestStreams(t *testing.T) {
	t.Parallel()
	s := serve(t, echo, grpc.InitialWindowSize(256<<10))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := s.Stream(ctx, "/x.Y/Z")
	if err != nil {
		t.Fatal(err)
	}
	const many, size = 100, 90 << 10
	go func() {
		for i := range many {
			if stream.Send(wrapperspb.Bytes(bytes.Repeat([]byte{byte(i)}, size))) != nil {
				return
			}
		}
		_ = stream.CloseSend()
	}()
	for i := range many {
		var m wrapperspb.BytesValue
		if err := stream.Recv(&m); err != nil || len(m.GetValue()) != size || m.GetValue()[size-1] != byte(i) {
			t.Fatalf("message %d: %d bytes, %v", i, len(m.GetValue()), err)
		}
	}
	if err := stream.Recv(&wrapperspb.BytesValue{}); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
	if err := stream.Send(wrapperspb.Bytes(nil)); !errors.Is(err, io.EOF) {
		t.Errorf("sending after it: %v", err)
	}
}

// TestSlowReceiverHoldsTheSender: nothing is queued beyond the windows.
func TestSlowReceiverHoldsTheSender(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent := 0
		s := serve(t, func(s grpc.ServerStream) error {
			for {
				if err := s.SendMsg(wrapperspb.Bytes(make([]byte, 8<<10))); err != nil {
					return err
				}
				sent++
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		stream, err := s.Stream(ctx, "/x.Y/Z")
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := sent * 8 << 10; n < link.StreamWindow || n > link.StreamWindow+256<<10 {
			t.Errorf("%d bytes are under way, of a window of %d", n, link.StreamWindow)
		}
		cancel()
		<-stream.Over()
		for err == nil {
			err = stream.Recv(&wrapperspb.BytesValue{})
		}
		if status.Code(err) != codes.Canceled {
			t.Errorf("after it was cancelled: %v", err)
		}
	})
}

// says is a server that says one thing, whatever it is told, and then listens to the end.
func says(t *testing.T, text []byte) *served {
	s := &served{}
	s.Conn = &wire.Conn{Conn: link.Conn{Most: 1 << 20, Sent: func() { s.sent.Add(1) }, Unsent: func() { s.unsents.Add(1) }}}
	s.Dial = func(context.Context) (net.Conn, error) {
		pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		var ends [2]net.Conn
		for i, fd := range pair {
			f := os.NewFile(uintptr(fd), "pair")
			ends[i], err = net.FileConn(f)
			if f.Close(); err != nil {
				return nil, err
			}
		}
		here, there := ends[0], ends[1]
		go func() {
			defer there.Close()
			_, _ = there.Write(text)
			_ = there.(*net.UnixConn).CloseWrite()
			_, _ = io.Copy(io.Discard, there)
		}()
		return here, nil
	}
	t.Cleanup(s.Close)
	return s
}

var greeting = link.Frame(nil, link.FrameSettings, 0, 0, 0)

// TestNothingWasBegun: what a server did not begin is told apart from what it may
// have done.
func TestNothingWasBegun(t *testing.T) {
	t.Parallel()
	goAway := append(link.Frame(nil, link.FrameGoAway, 0, 0, 8), 0, 0, 0, 0, 0, 0, 0, 0)
	for name, tc := range map[string]struct {
		says         []byte
		sent, unsent int32
	}{
		"nothing":           {nil, 0, 0},
		"HTTP/1":            {[]byte("HTTP/1.1 400 Bad Request\r\n\r\n"), 0, 0},
		"closes":            {greeting, 1, 0},
		"stops":             {append(greeting[:9:9], goAway...), 1, 1},
		"refuses":           {append(link.Frame(greeting[:9:9], link.FrameReset, 0, 1, 4), 0, 0, 0, 7), 1, 1},
		"gives up":          {append(link.Frame(greeting[:9:9], link.FrameReset, 0, 1, 4), 0, 0, 0, 8), 1, 0},
		"lies of a length":  {append(link.Frame(greeting[:9:9], link.FrameData, 0, 1, 5), 0, 255, 255, 255, 255), 1, 0},
		"ends in a promise": {link.Frame(greeting[:9:9], link.FramePromise, 0, 1, 0), 1, 0},
	} {
		s := says(t, tc.says)
		_, err := s.call(t.Context(), nil)
		if err == nil || s.sent.Load() != tc.sent || s.unsents.Load() != tc.unsent {
			t.Errorf("%s: %v, sent %d, not begun %d", name, err, s.sent.Load(), s.unsents.Load())
		}
	}
}

// FuzzAnswer: whatever a server says, a call ends, and what it gives is an answer or
// an error.
func FuzzAnswer(f *testing.F) {
	trailers := []byte{0x88, 0, 11, 'g', 'r', 'p', 'c', '-', 's', 't', 'a', 't', 'u', 's', 1, '0'}
	whole := append(link.Frame(greeting[:9:9], link.FrameData, 0, 1, 7), 0, 0, 0, 0, 2, 0x0a, 0)
	whole = append(link.Frame(whole, link.FrameHeaders, link.FlagEnd|link.FlagEndHeaders, 1, len(trailers)), trailers...)
	f.Add(whole)
	f.Add(append(link.Frame(greeting[:9:9], link.FrameHeaders, link.FlagPadded|link.FlagPriority, 1, 3), 1, 2, 3))
	f.Add(append(link.Frame(greeting[:9:9], link.FrameSettings, 0, 0, 6), 0, 4, 255, 255, 255, 255))
	f.Add(append(link.Frame(greeting[:9:9], link.FrameData, link.FlagPadded, 1, 2), 9, 9))
	f.Fuzz(func(t *testing.T, text []byte) {
		s := says(t, text)
		if _, err := s.call(t.Context(), []byte("x")); err != nil {
			if _, ok := status.FromError(err); !ok {
				t.Errorf("no status: %v", err)
			}
		}
		s = says(t, text)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stream, err := s.Stream(ctx, "/x.Y/Z")
		for err == nil {
			err = stream.Recv(&wrapperspb.BytesValue{})
		}
		if stream != nil {
			cancel()
			<-stream.Over()
		}
	})
}

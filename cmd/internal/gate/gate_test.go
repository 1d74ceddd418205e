package gate

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

// user is who connects: the tests' kernel takes its word.
type user struct{ credentials.CommonAuthInfo }

// AuthType implements credentials.AuthInfo.
func (user) AuthType() string { return "test" }

type kernel struct {
	credentials.TransportCredentials
}

// ServerHandshake implements credentials.TransportCredentials.
func (kernel) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return c, user{credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}}, nil
}

// opened is a gate without coordinators, for uid 1001, who has a job or has none.
func opened(t *testing.T, hasJob bool) *bufconn.Listener {
	t.Helper()
	return openedTo(t, hasJob, nil)
}

// openedTo is opened with a coordinator, if there is a way to one.
func openedTo(t *testing.T, hasJob bool, to func(string) (*grpc.ClientConn, error)) *bufconn.Listener {
	t.Helper()
	var addrs []string
	if to != nil {
		addrs = []string{"c"}
	}
	g := New(func() []string { return addrs }, to, func(credentials.AuthInfo) (uid, gid uint32, ok bool) { return 1001, 1001, true },
		func(uint32) bool { return hasJob }, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	ln := bufconn.Listen(1 << 20)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = g.Serve(ctx, ln, kernel{insecure.NewCredentials()}) }()
	t.Cleanup(func() { cancel(); <-done })
	return ln
}

func dial(t *testing.T, ln *bufconn.Listener) *grpc.ClientConn {
	t.Helper()
	cc, err := grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return ln.Dial() }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cc.Close() })
	return cc
}

const submit = "/berth.api.v1.JobService/SubmitJobs"

// begin opens a call, of which nothing but the headers is sent.
func begin(t *testing.T, cc *grpc.ClientConn) grpc.ClientStream {
	t.Helper()
	s, err := cc.NewStream(t.Context(), &desc, submit, grpc.ForceCodec(raw{}))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestWhoHasNoJobIsNotRead: the refusal comes before anything is sent.
func TestWhoHasNoJobIsNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m []byte
		err := begin(t, dial(t, opened(t, false))).RecvMsg(&m)
		if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "no job on this node") {
			t.Errorf("got %v, want PermissionDenied with the reason", err)
		}
	})
}

// TestConnectionsOfOneUserAreBounded: one too many is ended at once, and idle
// ones do not stay.
func TestConnectionsOfOneUserAreBounded(t *testing.T) {
	for hasJob, want := range map[bool]int{false: connsWithout, true: connsWithJob} {
		synctest.Test(t, func(t *testing.T) {
			ln := opened(t, hasJob)
			ended := make(chan struct{}, 100)
			for range 100 {
				conn, err := ln.Dial()
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { conn.Close() })
				go func() { // says nothing
					_, _ = conn.Read(make([]byte, 1<<10))
					for err == nil {
						_, err = conn.Read(make([]byte, 1<<10))
					}
					ended <- struct{}{}
				}()
			}
			synctest.Wait()
			if got := 100 - len(ended); got != want {
				t.Errorf("has a job %v: %d connections are open, want %d", hasJob, got, want)
			}
			time.Sleep(2 * connStart)
			synctest.Wait()
			if got := 100 - len(ended); got != 0 {
				t.Errorf("%d silent connections stay", got)
			}
		})
	}
}

// TestRequestsThatDoNotArrive: as many are kept as may arrive at once, for as
// long as they may take; the rest are refused at once, with a time to ask again.
func TestRequestsThatDoNotArrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc := dial(t, opened(t, true))
		ends := make(chan error, 100)
		for range 100 {
			s := begin(t, cc)
			go func() { var m []byte; ends <- s.RecvMsg(&m) }()
		}
		synctest.Wait()
		refused := len(ends)
		if refused < 90 || refused == 100 {
			t.Errorf("%d of 100 are refused at once", refused)
		}
		for range refused {
			if _, again := apiconv.RetryAfter(<-ends); !again {
				t.Fatal("refused without a time to ask again")
			}
		}
		time.Sleep(arrival)
		synctest.Wait()
		if len(ends) != 100-refused {
			t.Errorf("%d of %d ended with the time for their message", len(ends), 100-refused)
		}
	})
}

// coordinatorOf answers every call of a gate with an empty message, and keeps the
// metadata that it came with.
func coordinatorOf(t *testing.T) (dial func(string) (*grpc.ClientConn, error), last func() metadata.MD) {
	t.Helper()
	ln := bufconn.Listen(1 << 20)
	seen := make(chan metadata.MD, 10)
	srv := grpc.NewServer(grpc.ForceServerCodec(raw{}), grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		md, _ := metadata.FromIncomingContext(s.Context())
		seen <- md
		return s.SendMsg(&[]byte{})
	}))
	go func() { _ = srv.Serve(ln) }()
	t.Cleanup(srv.Stop)
	return func(string) (*grpc.ClientConn, error) {
		return grpc.NewClient("passthrough:///c", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return ln.Dial() }))
	}, func() metadata.MD { return <-seen }
}

// TestWhatAGatePassesOn: who the kernel says it is, the credential that they show,
// and nothing else that they say of themselves.
func TestWhatAGatePassesOn(t *testing.T) {
	credential := "j7-a2." + strings.Repeat("ab", 32)
	for name, c := range map[string]struct{ shown, want []string }{
		"a credential": {[]string{credential}, []string{credential}},
		"none":         {nil, nil},
		"two":          {[]string{credential, credential}, nil},
		"a large one":  {[]string{strings.Repeat("x", 4000)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			to, last := coordinatorOf(t)
			cc := dial(t, openedTo(t, true, to))
			ctx := metadata.AppendToOutgoingContext(t.Context(), "berth-forwarded", "c1", "berth-on-behalf-of-uid", "0", "berth-plain", "1")
			for _, x := range c.shown {
				ctx = metadata.AppendToOutgoingContext(ctx, cluster.CredentialKey, x)
			}
			if err := cc.Invoke(ctx, submit, &[]byte{}, &[]byte{}, grpc.ForceCodec(raw{})); err != nil {
				t.Fatal(err)
			}
			md := last()
			if d := cmp.Diff(c.want, md.Get(cluster.CredentialKey)); d != "" {
				t.Error(d)
			}
			if d := cmp.Diff([]string{"1001"}, md.Get("berth-on-behalf-of-uid")); d != "" || len(md.Get("berth-forwarded"))+len(md.Get("berth-plain")) > 0 {
				t.Errorf("it passes on %v", md)
			}
		})
	}
}

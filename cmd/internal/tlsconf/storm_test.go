package tlsconf

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestTheNewestIsNext: of those that wait, and of no others.
func TestTheNewestIsNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order []uint64
		turns := turns{free: 1}
		come := func(no uint64, patience time.Duration) {
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				if turns.take(ctx, no) {
					order = append(order, no)
					time.Sleep(time.Second)
					turns.give()
				}
			}()
			synctest.Wait()
		}
		for _, no := range []uint64{1, 3, 2, 4} {
			come(no, time.Minute)
		}
		come(5, 500*time.Millisecond)
		time.Sleep(time.Minute)
		come(6, time.Minute)
		time.Sleep(time.Minute)
		if want := []uint64{1, 4, 3, 2, 6}; !slices.Equal(order, want) {
			t.Errorf("they came on as %v, want %v", order, want)
		}
	})
}

// virtual is a listener without a network, and its address.
type virtual struct {
	conns chan net.Conn
	done  chan struct{}
	close func()
}

func (v *virtual) Accept() (net.Conn, error) {
	select {
	case c := <-v.conns:
		return c, nil
	case <-v.done:
		return nil, net.ErrClosed
	}
}

func (v *virtual) Close() error   { v.close(); return nil }
func (v *virtual) Addr() net.Addr { return hostAddr("c1:1") }

// from is a connection with an address.
type from struct {
	net.Conn
	addr hostAddr
}

func (f from) RemoteAddr() net.Addr { return f.addr }

// TestStormEnds: when more clients connect at once than can be served before they give
// up and come again, nearly all the time goes to those that still wait.
func TestStormEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const clients, cost, patience = 200, 100 * time.Millisecond, 5 * time.Second
		ca := testCA(t, "one")
		server := ServerConfig(testSource(t, ca, RoleCoordinator, "c1"), RoleAgent)
		core, certificate := make(chan struct{}, 1), server.GetCertificate
		server.GetCertificate = func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
			core <- struct{}{}
			time.Sleep(cost)
			<-core
			return certificate(h)
		}
		ln := &virtual{conns: make(chan net.Conn, clients), done: make(chan struct{})}
		ln.close = sync.OnceFunc(func() { close(ln.done) })
		mux, err := NewMux(MuxConfig{Listener: ln, Log: discard(), Protocols: map[string]*tls.Config{ProtoGRPC: server}, MaxComputing: 1})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running, storm sync.WaitGroup
		running.Go(func() { _ = mux.Run(ctx) })
		running.Go(func() {
			for {
				if _, err := mux.Listener(ProtoGRPC).Accept(); err != nil {
					return
				}
			}
		})
		config := ClientConfig(testSource(t, ca, RoleAgent, "n1"), RoleCoordinator)
		config.NextProtos = []string{ProtoGRPC}
		began := time.Now()
		for i := range clients {
			storm.Go(func() {
				for time.Since(began) < 10*time.Minute {
					mine, its := net.Pipe()
					ln.conns <- from{its, hostAddr(fmt.Sprintf("n%d:1", i))}
					ctx, cancel := context.WithTimeout(ctx, patience)
					err := tls.Client(mine, config).HandshakeContext(ctx)
					cancel()
					if err == nil {
						return
					}
					mine.Close()
					time.Sleep(time.Second)
				}
			})
		}
		storm.Wait()
		if took := time.Since(began); took > clients*cost*5/4 {
			t.Errorf("%d clients came in after %s, which could be served in %s", clients, took, clients*cost)
		}
		cancel()
		running.Wait()
	})
}

// TestHangingUpIsSeen although what the client said is unread.
func TestHangingUpIsSeen(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("no way is known elsewhere")
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	client, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := client.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if hungUp(conn) {
		t.Error("a client that waits has hung up")
	}
	client.Close()
	for !hungUp(conn) { // it is on its way
		runtime.Gosched()
	}
	if n, err := conn.Read(make([]byte, 8)); n != 5 || err != nil {
		t.Errorf("read %d bytes, %v", n, err)
	}
}

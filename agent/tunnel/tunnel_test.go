package tunnel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTarget(t *testing.T) {
	for _, c := range []struct{ text, network, address string }{
		{"/tmp/x/sock", "unix", "/tmp/x/sock"}, {"8888", "tcp", "127.0.0.1:8888"}, {"65535", "tcp", "127.0.0.1:65535"},
		{"0", "", ""}, {"65536", "", ""}, {"host:80", "", ""}, {"sock", "", ""}, {"", "", ""}, {"-1", "", ""},
	} {
		network, address, err := Target(c.text)
		if network != c.network || address != c.address || (err != nil) != (c.network == "") {
			t.Errorf("%q: %s %s %v", c.text, network, address, err)
		}
	}
}

// pair has a tunnel to what serve answers; dial makes a connection through it,
// and cut breaks the stream.
func pair(t *testing.T, serve func(net.Conn)) (dial func() net.Conn, cut func()) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sock")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			all.Go(func() { defer c.Close(); serve(c) })
		}
	})
	toJob, fromUser := io.Pipe()
	toUser, fromJob := io.Pipe()
	all.Go(func() {
		var errs bytes.Buffer
		if code := Main([]string{path}, toJob, fromJob, &errs); code != 0 {
			t.Errorf("the end in the job: %d %s", code, errs.String())
		}
		fromJob.Close()
	})
	conns := make(chan net.Conn)
	ended := make(chan struct{})
	all.Go(func() {
		defer close(ended)
		if err := Carry(conns, toUser, fromUser); err != nil {
			t.Errorf("the user's end: %v", err)
		}
	})
	var once sync.Once
	cut = func() { once.Do(func() { fromUser.Close() }) }
	near, err := net.Listen("unix", path+"-near")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cut(); ln.Close(); near.Close(); all.Wait() })
	return func() net.Conn {
		t.Helper()
		c, err := net.Dial("unix", path+"-near")
		if err != nil {
			t.Fatal(err)
		}
		far, err := near.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
			t.Fatal(err)
		}
		select {
		case conns <- far:
		case <-ended:
			t.Fatal("the tunnel has ended")
		}
		t.Cleanup(func() { c.Close() })
		return c
	}, cut
}

// TestManyAtOnce carries much both ways, over connections that each end by one
// side saying that it has no more.
func TestManyAtOnce(t *testing.T) {
	dial, _ := pair(t, func(c net.Conn) {
		all, _ := io.ReadAll(c)
		_, _ = c.Write(bytes.ToUpper(all))
	})
	var clients sync.WaitGroup
	for i := range 20 {
		c := dial()
		clients.Go(func() {
			text := strings.Repeat(fmt.Sprintf("line %d\n", i), 20_000*(i%3)+1) // below and above a window
			if _, err := io.WriteString(c, text); err != nil {
				t.Error(err)
			}
			if err := c.(*net.UnixConn).CloseWrite(); err != nil {
				t.Error(err)
			}
			got, err := io.ReadAll(c)
			if err != nil || string(got) != strings.ToUpper(text) {
				t.Errorf("connection %d: %d bytes of %d, %v", i, len(got), len(text), err)
			}
		})
	}
	clients.Wait()
}

// TestOneThatNobodyReads holds up no other.
func TestOneThatNobodyReads(t *testing.T) {
	dial, _ := pair(t, func(c net.Conn) {
		word := make([]byte, 4)
		if _, err := io.ReadFull(c, word); err != nil {
			return
		}
		if string(word) == "much" {
			_, _ = io.Copy(c, bytes.NewReader(make([]byte, 16<<20)))
			return
		}
		_, _ = c.Write(word)
	})
	slow, quick := dial(), dial()
	if _, err := io.WriteString(slow, "much"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(slow, make([]byte, 1<<20)); err != nil { // it flows
		t.Fatal(err)
	}
	if _, err := io.WriteString(quick, "ping"); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(quick); string(got) != "ping" || err != nil {
		t.Errorf("beside a slow one: %q %v", got, err)
	}
	if n, err := io.Copy(io.Discard, slow); n != 15<<20 || err != nil {
		t.Errorf("the slow one has %d bytes more, %v", n, err)
	}
}

// TestBrokenStream closes what was open; a socket that nobody listens on is a
// connection that ends.
func TestBrokenStream(t *testing.T) {
	dial, cut := pair(t, func(c net.Conn) { _, _ = io.Copy(c, c) })
	c := dial()
	if _, err := io.WriteString(c, "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	cut()
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("a connection outlives its stream")
	}
}

// TestConnectionAtTheEnd offers connections while the stream ends: each is closed
// and its goroutine has ended when Carry returns. The race detector finds one that
// is added while the end waits for all.
func TestConnectionAtTheEnd(t *testing.T) {
	for range 300 {
		conns, stop := make(chan net.Conn), make(chan struct{})
		from, to := io.Pipe()
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				for {
					user, ours := net.Pipe()
					select {
					case conns <- ours:
						_, _ = user.Read(make([]byte, 1)) // returns when it is closed
						user.Close()
					case <-stop:
						user.Close()
						ours.Close()
						return
					}
				}
			})
		}
		all.Go(func() { to.Close() })
		if err := Carry(conns, from, io.Discard); err != nil {
			t.Error(err)
		}
		close(stop)
		all.Wait()
	}
}

func TestNobodyListens(t *testing.T) {
	m := newMux(io.Discard)
	m.dial = func(context.Context) (net.Conn, error) { return nil, errors.New("connection refused") }
	if !m.add(1, (*conn).answer) {
		t.Fatal("it is not taken")
	}
	m.serving.Wait()
	if m.find(1) != nil {
		t.Error("it is still known")
	}
	var errs bytes.Buffer
	if code := Main([]string{"nonsense"}, strings.NewReader(""), io.Discard, &errs); code != 125 || !strings.Contains(errs.String(), "absolute path") {
		t.Errorf("%d %s", code, errs.String())
	}
}

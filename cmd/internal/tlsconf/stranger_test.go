package tlsconf

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// TestMuxBoundsStrangers: of 50 connections without a certificate two stay,
// those with one are let in beside them, and who leaves makes room.
func TestMuxBoundsStrangers(t *testing.T) {
	f := startMux(t, func(c *MuxConfig) { c.Strangers = Strangers{Total: 8, PerHost: 2} })
	in := make(chan net.Conn, 50)
	go func() {
		for {
			conn, err := f.mux.Listener(ProtoJoin).Accept()
			if err != nil {
				return
			}
			in <- conn
		}
	}()
	dial := func() *tls.Conn {
		conn, err := tls.Dial("tcp", f.addr, ClientConfigPinned(f.ca.Hash()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if err := conn.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	var stay []net.Conn
	for range 2 {
		dial()
		stay = append(stay, <-in)
	}
	for range 48 {
		if _, err := io.Copy(io.Discard, dial()); err != nil {
			if ne, ok := err.(net.Error); ok && ne.Timeout() {
				t.Fatal("a third connection of one address was kept")
			}
		}
	}
	if len(in) != 0 {
		t.Errorf("%d more were handed out", len(in))
	}
	if err := f.check(t, ClientConfig(testSource(t, f.ca, RoleAgent, "n1"), RoleCoordinator)); err != nil {
		t.Errorf("with a certificate: %v", err)
	}
	stay[0].Close()
	stay[0].Close() // counted once
	dial()
	stay = append(stay, <-in)
	f.mux.mu.Lock()
	n := f.mux.nguests
	f.mux.mu.Unlock()
	if n != 2 {
		t.Errorf("%d are counted, want 2", n)
	}
	for _, conn := range stay {
		conn.Close()
	}
	f.mux.mu.Lock()
	defer f.mux.mu.Unlock()
	if f.mux.nguests != 0 || len(f.mux.guests) != 0 {
		t.Errorf("%d of %v are counted after all left", f.mux.nguests, f.mux.guests)
	}
}

// TestMuxCut: of two connections that are open, that of the denied ends.
func TestMuxCut(t *testing.T) {
	f := startMux(t, nil)
	dial := func(id string) net.Conn {
		conn, err := NewStreamLayer[string](nil, testSource(t, f.ca, RoleCoordinator, id), f.addr).Dial(f.addr, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if err := conn.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	say := func(conn net.Conn) error {
		_, err := conn.Write([]byte("x"))
		if err == nil {
			_, err = io.ReadFull(conn, make([]byte, 1))
		}
		return err
	}
	gone, stays := dial("c2"), dial("c3")
	if err := errors.Join(say(gone), say(stays)); err != nil {
		t.Fatal(err)
	}
	f.mux.Cut(func(who Identity, _ string) bool { return who.ID == "c2" })
	if _, err := gone.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the denied: %v", err)
	}
	if err := say(stays); err != nil {
		t.Errorf("the other: %v", err)
	}
	stays.Close()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Millisecond) {
		f.mux.mu.Lock()
		n := len(f.mux.known)
		f.mux.mu.Unlock()
		if n == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d connections are remembered after all ended", n)
		}
	}
}

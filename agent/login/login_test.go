package login

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// one is a node on which user 7 has job 12.
type one struct{}

func (one) Resident(w Who) (string, error) {
	if w.UID == 7 || w.Name == "ann" {
		return "12", nil
	}
	return "", errors.New("you have no running job on this node")
}

func (o one) Adopt(w Who, pid int) (string, error) {
	job, err := o.Resident(w)
	return fmt.Sprintf("%s with %d", job, pid), err
}

func serve(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "login") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, SocketName)
	ln, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = Serve(ctx, ln, one{}, slog.New(slog.DiscardHandler))
	}()
	t.Cleanup(func() { cancel(); <-done })
	return path
}

// TestAsk: the agent's word comes back, and where there is none that is said.
func TestAsk(t *testing.T) {
	t.Parallel()
	path := serve(t)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket has mode %v (%v), want 0600", info.Mode(), err)
	}
	for _, c := range []struct {
		q    Question
		want Answer
	}{
		{Question{Who: Who{UID: 7}}, Answer{Job: "12"}},
		{Question{Who: Who{UID: -1, Name: "ann"}, PID: 44}, Answer{Job: "12 with 44"}},
		{Question{Who: Who{UID: 8}, PID: 44}, Answer{Refused: "you have no running job on this node"}},
	} {
		if got, err := Ask(path, c.q); err != nil || got != c.want {
			t.Errorf("%+v: %+v, %v; want %+v", c.q, got, err, c.want)
		}
	}
	if _, err := Ask(path+"-gone", Question{}); !errors.Is(err, ErrNoAgent) {
		t.Errorf("no socket: %v", err)
	}
}

// TestNonsense: whatever comes on the socket, the next one is answered.
func TestNonsense(t *testing.T) {
	t.Parallel()
	path := serve(t)
	for _, text := range []string{"", "\n", "{", "[]\n", `{"who":1}` + "\n", strings.Repeat("x", 2*maxLine)} {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = conn.Write([]byte(text)) // it may be closed before all is there
		conn.Close()
	}
	if got, err := Ask(path, Question{Who: Who{UID: 7}}); err != nil || got.Job != "12" {
		t.Errorf("after nonsense: %+v, %v", got, err)
	}
}

// TestAMuteAgent: one that takes the question and goes away is none.
func TestAMuteAgent(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Skip(err) // the path is too long here
	}
	defer ln.Close()
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
	if a, err := Ask(path, Question{}); !errors.Is(err, ErrNoAgent) {
		t.Errorf("%+v, %v", a, err)
	}
}

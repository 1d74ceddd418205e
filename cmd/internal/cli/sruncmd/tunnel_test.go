package sruncmd_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/agent/tunnel"
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// jobEnd is the end in the job, which echoes; broken makes the stream break at
// the first byte that goes in.
func jobEnd(s clitest.AttachEnd, target string, broken bool) error {
	first := clitest.Opened(1, 0)
	first.GetOpened().Session = "s"
	if err := clitest.Say(s, first); err != nil {
		return err
	}
	in, toJob := io.Pipe()
	fromJob, out := io.Pipe()
	var all sync.WaitGroup
	defer all.Wait()
	defer toJob.Close()
	ended := make(chan error, 2)
	all.Go(func() {
		tunnel.Main([]string{target}, in, out, io.Discard)
		in.Close()
		out.Close()
	})
	all.Go(func() {
		buf := make([]byte, 8<<10)
		for {
			n, err := fromJob.Read(buf)
			if err != nil && broken {
				return
			}
			if err != nil {
				ended <- clitest.Say(s, clitest.EndedBy(&apiv1.AttachEnded{}))
				return
			}
			if err := clitest.Say(s, &apiv1.AttachResponse{Kind: &apiv1.AttachResponse_Stdout{Stdout: append([]byte(nil), buf[:n]...)}}); err != nil {
				fromJob.Close()
				ended <- err
				return
			}
		}
	})
	all.Go(func() {
		for {
			m, err := s.Recv()
			if err != nil || m.GetDetach() != nil || broken && m.GetStdin() != nil {
				toJob.Close()
				if broken {
					ended <- clitest.Refuse(cluster.CodeUnavailable, "the agent is gone")
				}
				return
			}
			if m.GetStdin() != nil {
				_, _ = toJob.Write(m.GetStdin()) // it ends before us at times
			}
		}
	})
	return <-ended
}

// TestTunnel loses its way into the job for good once, and finds another.
func TestTunnel(t *testing.T) {
	t.Parallel()
	w := clitest.NewWorld(t)
	dir, err := os.MkdirTemp("", "berth-tunnel-") // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	far, err := net.Listen("unix", filepath.Join(dir, "far"))
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	go func() { // ends with the listener
		for {
			c, err := far.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); _, _ = io.Copy(c, c) }()
		}
	}()
	fresh := 0
	a := w.ServeAttach("/a", clitest.NewFake(), func(o *apiv1.AttachOpen, s clitest.AttachEnd) error {
		if o.GetExec().GetSession() != "" {
			return clitest.Refuse(cluster.CodeNotFound, "session s of job 12 is no longer on node n1")
		}
		fresh++
		return jobEnd(s, string(o.GetExec().GetCommand()[1]), fresh == 1)
	})
	near := filepath.Join(dir, "near")
	code := make(chan int, 1)
	ctx, stop := context.WithCancelCause(t.Context())
	interrupt := func() { stop(&console.Interruption{Sig: syscall.SIGINT}) }
	go func() { code <- w.RunCtx(ctx, "tunnel", "--socket", near, "12", filepath.Join(dir, "far")) }()
	deadline := time.Now().Add(2 * time.Minute)
	for {
		got, err := echo(near)
		if err == nil && got == "hello" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("nothing comes back: %q %v", got, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
	if st, err := os.Stat(near); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v %v", st, err)
	}
	interrupt()
	if got := <-code; got != 0 {
		t.Errorf("exit code %d: %s", got, w.Errs.String())
	}
	if x := a.Opens[0].GetExec(); !x.GetOwn() || string(x.GetCommand()[0]) != tunnel.Arg || x.GetKeep().AsDuration() < time.Minute {
		t.Errorf("asked for %v", a.Opens[0])
	}
	if errs := w.Errs.String(); !strings.Contains(errs, "no longer on node n1") || !strings.Contains(errs, "connected again") {
		t.Errorf("it says %q", errs)
	}
	if want := fmt.Sprintf(":%s ann@login\n", near); !strings.Contains(w.Out.String(), want) {
		t.Errorf("it prints %q, want %q", w.Out.String(), want)
	}
	if _, err := os.Lstat(near); err == nil {
		t.Error("the socket is left")
	}
}

func echo(path string) (string, error) {
	c, err := net.Dial("unix", path)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(c, "hello"); err != nil {
		return "", err
	}
	buf := make([]byte, 5)
	n, err := io.ReadFull(c, buf)
	return string(buf[:n]), err
}

func TestTunnelRefusals(t *testing.T) {
	t.Parallel()
	w := clitest.NewWorld(t)
	w.ServeAttach("/a", clitest.NewFake(), func(*apiv1.AttachOpen, clitest.AttachEnd) error {
		return clitest.Refuse(cluster.CodeDenied, "the job belongs to another user")
	})
	near := filepath.Join(t.TempDir(), "s")
	for _, c := range []struct {
		code int
		want string
		args []string
	}{
		{2, "6006", []string{"12"}},
		{2, "absolute path", []string{"12", "host:80"}},
		{2, "0 for a free one", []string{"--listen", "x", "12", "80"}},
		{2, "only one of them", []string{"--listen", "0", "--socket", near, "12", "80"}},
		{2, "want 1 to 65535", []string{"--local-port", "0", "12", "80"}},
		{1, "another user", []string{"--listen", "0", "12", "80"}},
	} {
		if code := w.Run(append([]string{"tunnel"}, c.args...)...); code != c.code || !strings.Contains(w.Errs.String(), c.want) {
			t.Errorf("%q: exit code %d: %s", c.args, code, w.Errs.String())
		}
	}
}

package client_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/wait"
	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/golden"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

func unavailable(context.Context, string) error {
	return cluster.Errorf(cluster.CodeUnavailable, "no leader now")
}

func TestAllDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := clitest.NewWorld(t)
		w.Vars["BERTH_SOCKET"] = "/run/a.sock, unix:///run/b.sock"
		start := time.Now()
		code := w.Run("submit", "--", "true")
		if d := time.Since(start); code != console.ExitUnavailable || d > 10*time.Second {
			t.Errorf("exit code %d after %s, want 4 within 10 s", code, d)
		}
		for _, want := range []string{"/run/a.sock: ", "/run/b.sock: ", "Is Berth running on this machine?", "trying again"} {
			if !strings.Contains(w.Errs.String(), want) {
				t.Errorf("want %q in:\n%s", want, w.Errs.String())
			}
		}
	})
}

func TestNoFolderOfASocketFailsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := clitest.NewWorld(t)
		w.Vars["BERTH_SOCKET"] = filepath.Join(t.TempDir(), "none", "berth.sock")
		start := time.Now()
		if code := w.Run("queue"); code != console.ExitUnavailable || time.Since(start) > 0 {
			t.Errorf("exit code %d after %s, want 4 at once", code, time.Since(start))
		}
		if got := w.Errs.String(); !strings.Contains(got, "berth dev") || strings.Contains(got, "trying again") {
			t.Errorf("printed:\n%s", got)
		}
	})
}

func TestSecondSocketAnswers(t *testing.T) {
	for name, first := range map[string]func(*clitest.World){
		"nothing listens":    func(*clitest.World) {},
		"says no leader":     func(w *clitest.World) { f := clitest.NewFake(); f.Hook = unavailable; w.Serve("/a", f) },
		"accepts and hangs":  func(w *clitest.World) { w.Sockets["/a"] = bufconn.Listen(1 << 16) },
		"is no gRPC server":  func(w *clitest.World) { serveHTTP(w, "/a") },
		"closes connections": func(w *clitest.World) { serveClosing(w, "/a") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := clitest.NewWorld(t)
				w.Vars["BERTH_SOCKET"] = "/a,/b"
				f := clitest.NewFake()
				first(w)
				w.Serve("/b", f)
				start := time.Now()
				if code := w.Run("submit", "--parsable", "--", "true"); code != 0 || w.Out.String() != "101\n" {
					t.Errorf("exit code %d: %s%s", code, w.Out.String(), w.Errs.String())
				}
				if d := time.Since(start); d > 6*time.Second {
					t.Errorf("took %s", d)
				}
				if len(f.Requests) != 1 {
					t.Errorf("%d requests, want 1", len(f.Requests))
				}
			})
		})
	}
}

// serveHTTP answers as a plain HTTP server would, serveClosing with nothing.
func serveHTTP(w *clitest.World, socket string) {
	accept(w, socket, func(c net.Conn) {
		_, _ = io.ReadFull(c, make([]byte, 16))
		_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
	})
}

func serveClosing(w *clitest.World, socket string) { accept(w, socket, func(net.Conn) {}) }

func accept(w *clitest.World, socket string, do func(net.Conn)) {
	l := bufconn.Listen(1 << 16)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			do(c)
			c.Close()
		}
	})
	w.T.Cleanup(func() { l.Close(); wg.Wait() })
	w.Sockets[socket] = l
}

func TestNotAGRPCServerIsUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := clitest.NewWorld(t)
		serveHTTP(w, "/a")
		if code := w.Run("submit", "--timeout", "5s", "--", "true"); code != console.ExitUnavailable || !strings.Contains(w.Errs.String(), "/a: ") {
			t.Errorf("nothing was sent, so nothing can have happened: exit code %d: %s", code, w.Errs.String())
		}
	})
}

// TestRetriesKeepTheRequestID loses the first answers after the server has
// done the work.
func TestRetriesKeepTheRequestID(t *testing.T) {
	for name, lost := range map[string]error{
		"server does not know":   &cluster.Error{Code: cluster.CodeUnknown, Msg: "leadership lost"},
		"no leader":              &cluster.Error{Code: cluster.CodeUnavailable, Msg: "no leader"},
		"connection broke":       status.Error(codes.Unavailable, "transport is closing"),
		"deadline of the server": status.Error(codes.DeadlineExceeded, "slow"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := clitest.NewWorld(t)
				f := clitest.NewFake()
				n := 0
				f.Hook = func(context.Context, string) error {
					if n++; n <= 3 {
						return lost
					}
					return nil
				}
				w.Serve("/a", f)
				if code := w.Run("submit", "--", "true"); code != 0 {
					t.Fatalf("exit code %d: %s", code, w.Errs.String())
				}
				if len(f.Submitted) != 1 || len(f.Requests) != 4 {
					t.Errorf("%d request ids in %d requests, want 1 in 4", len(f.Submitted), len(f.Requests))
				}
			})
		})
	}
}

func TestOutcomeUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := clitest.NewWorld(t)
		f := clitest.NewFake()
		f.Hook = func(ctx context.Context, _ string) error { <-ctx.Done(); return ctx.Err() }
		w.Serve("/a", f)
		start := time.Now()
		code := w.Run("submit", "--", "true")
		if d := time.Since(start); code != console.ExitUnknown || d > 61*time.Second {
			t.Errorf("exit code %d after %s, want 75 within 60 s", code, d)
		}
		// Pauses are jittered, so the last try is cut at one second or another.
		golden.Check(t, "unknown-submit", regexp.MustCompile(`within \d+s`).ReplaceAllString(w.Errs.String(), "within Ns"))
		if code := w.Run("cancel", "12"); code != console.ExitUnknown || !strings.Contains(w.Errs.String(), "berth cancel 12") {
			t.Errorf("cancel: exit code %d: %s", code, w.Errs.String())
		}
		if code := w.Run("queue"); code != console.ExitUnavailable {
			t.Errorf("a reading that fails is unavailable, not unknown: exit code %d", code)
		}
	})
}

// TestRefusedAfterUnknown: the job may be what fills the queue.
func TestRefusedAfterUnknown(t *testing.T) {
	for code, want := range map[cluster.Code]int{cluster.CodeExhausted: console.ExitUnknown, cluster.CodeInvalid: console.ExitUsage} {
		synctest.Test(t, func(t *testing.T) {
			w := clitest.NewWorld(t)
			f := clitest.NewFake()
			n := 0
			f.Hook = func(context.Context, string) error {
				if n++; n == 1 {
					return cluster.Errorf(cluster.CodeUnknown, "leadership lost")
				}
				return cluster.Errorf(code, "200000 jobs are waiting")
			}
			w.Serve("/a", f)
			if got := w.Run("submit", "--", "true"); got != want || !strings.Contains(w.Errs.String(), "200000 jobs are waiting") {
				t.Errorf("%v: exit code %d, want %d: %s", code, got, want, w.Errs.String())
			}
		})
	}
}

func TestInterrupt(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		sig  syscall.Signal
		hook func(context.Context, string) error
		want int
	}{
		"submit under way":   {[]string{"submit", "--", "true"}, syscall.SIGINT, hang, console.ExitUnknown},
		"submit, no leader":  {[]string{"submit", "--", "true"}, syscall.SIGINT, unavailable, console.ExitInterrupted},
		"queue under way":    {[]string{"queue"}, syscall.SIGINT, hang, console.ExitInterrupted},
		"queue --watch":      {[]string{"queue", "--watch"}, syscall.SIGINT, nil, console.ExitInterrupted},
		"wait":               {[]string{"wait", "12"}, syscall.SIGINT, nil, console.ExitInterrupted},
		"wait and SIGTERM":   {[]string{"wait", "12"}, syscall.SIGTERM, nil, 143},
		"logs -f of waiting": {[]string{"logs", "-f", "14"}, syscall.SIGINT, nil, console.ExitInterrupted},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := clitest.NewWorld(t)
				f := clitest.NewFake()
				f.Hook = tc.hook
				w.Serve("/a", f)
				ctx, cancel := context.WithCancelCause(t.Context())
				var wg sync.WaitGroup
				wg.Go(func() {
					wait.Sleep(t.Context(), 3*time.Second)
					cancel(&console.Interruption{Sig: tc.sig})
				})
				code := w.RunCtx(ctx, tc.args...)
				wg.Wait()
				if code != tc.want {
					t.Errorf("exit code %d, want %d: %s", code, tc.want, w.Errs.String())
				}
				if has := strings.Contains(w.Errs.String(), "--request-id 0123456789abcdef"); has != (tc.want == console.ExitUnknown) {
					t.Errorf("names the request id: %t:\n%s", has, w.Errs.String())
				}
			})
		})
	}
}

func TestTimeoutMustBePositive(t *testing.T) {
	t.Parallel()
	w := clitest.NewWorld(t)
	w.Serve("/a", clitest.NewFake())
	if code := w.Run("queue", "--timeout", "0s"); code != console.ExitUsage {
		t.Errorf("exit code %d: %s", code, w.Errs.String())
	}
}

func hang(ctx context.Context, _ string) error { <-ctx.Done(); return ctx.Err() }

func TestWaitFollowsChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := clitest.NewWorld(t)
		f := clitest.NewFake()
		w.Serve("/a", f)
		var wg sync.WaitGroup
		wg.Go(func() {
			wait.Sleep(t.Context(), 10*time.Minute) // longer than any one stream lives
			f.Change(func() { f.Jobs[2] = &apiv1.Job{Id: 14, State: "RUNNING", Node: "n1"} })
			wait.Sleep(t.Context(), time.Minute)
			code := int32(137)
			f.Change(func() { f.Jobs[2] = &apiv1.Job{Id: 14, State: "FAILED", Node: "n1", ExitCode: &code, Signal: 9} })
		})
		if code := w.Run("wait", "14"); code != 137 {
			t.Errorf("exit code %d, want 137: %s", code, w.Errs.String())
		}
		wg.Wait()
		if code := w.Run("wait", "14", "16"); code != 137 {
			t.Errorf("the first that failed decides: exit code %d", code)
		}
		if code := w.Run("wait", "99"); code != console.ExitNotFound {
			t.Errorf("unknown job: exit code %d", code)
		}
		if code := w.Run("wait", "--timeout", "90s", "12"); code != console.ExitUnknown || !strings.Contains(w.Errs.String(), "berth wait 12") {
			t.Errorf("time-out: exit code %d: %s", code, w.Errs.String())
		}
	})
}

func TestWaitOutlivesACoordinator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := clitest.NewWorld(t)
		w.Vars["BERTH_SOCKET"] = "/a,/b"
		a, b := clitest.NewFake(), clitest.NewFake()
		w.Serve("/a", a)
		w.Serve("/b", b)
		broken := false
		a.Hook = func(_ context.Context, m string) error {
			if broken {
				return cluster.Errorf(cluster.CodeUnavailable, "shutting down")
			}
			return nil
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			wait.Sleep(t.Context(), 10*time.Second)
			a.Change(func() { broken = true })
			b.Change(func() { b.Jobs[0] = &apiv1.Job{Id: 12, State: "COMPLETED"} })
		})
		if code := w.Run("wait", "12"); code != 0 {
			t.Errorf("exit code %d: %s", code, w.Errs.String())
		}
		wg.Wait()
	})
}

func TestSubmitAndWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := clitest.NewWorld(t)
		f := clitest.NewFake()
		w.Serve("/a", f)
		three := int32(3)
		f.Jobs = append(f.Jobs, &apiv1.Job{Id: 101, State: "FAILED", ExitCode: &three})
		if code := w.Run("submit", "--wait", "--parsable", "--", "true"); code != 3 || w.Out.String() != "101\n" {
			t.Errorf("exit code %d: %q", code, w.Out.String())
		}
	})
}

func TestSubmitSendsWhatWasAskedFor(t *testing.T) {
	t.Parallel()
	w := clitest.NewWorld(t)
	f := clitest.NewFake()
	f.Warnings, f.Promises = []string{"time limit is above the usual\x1b"}, []string{"deadline: it needs 2 GPUs"}
	w.Serve("/a", f)
	if code := w.Run("submit", "--gpu-mem", "10G", "-t", "90", "-c", "0.5", "-D", "sub/../x", "--count", "2", "--", "./a b.sh", "\xff\xfe"); code != 0 {
		t.Fatal(w.Errs.String())
	}
	if !strings.Contains(w.Errs.String(), `warning: time limit is above the usual\x1b`) {
		t.Errorf("the server's warnings: %s", w.Errs.String())
	}
	if !strings.Contains(w.Errs.String(), "berth: deadline: it needs 2 GPUs\n") {
		t.Errorf("what it was promised, which is no warning: %s", w.Errs.String())
	}
	jobs := f.Requests[0].GetJobs()
	s := jobs[0]
	switch {
	case len(jobs) != 2, s.GetName() != "a b.sh", s.GetGpus() != 1, s.GetGpuMemMib() != 10240, s.GetCpuMilli() != 500,
		s.GetTimeLimit().AsDuration() != 90*time.Minute, string(s.GetDir()) != "/home/ann/run/x", string(s.GetStdout()) != "berth-%j.out",
		!bytes.Equal(s.GetCommand()[1], []byte("\xff\xfe")), string(s.GetEnv()[0]) != "PATH=/usr/bin":
		t.Errorf("got %v", s)
	}
	if w.Run("submit", "--", "true"); f.Requests[1].GetJobs()[0].GetGpus() != 0 {
		t.Error("a job that asks nothing of a GPU got one")
	}
}

type failingWriter struct{ err error }

func (f failingWriter) Write([]byte) (int, error) { return 0, f.err }

func TestStandardOutputFails(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"full":        {syscall.ENOSPC, "write to standard output: no space left on device"},
		"reader gone": {syscall.EPIPE, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := clitest.NewWorld(t)
			w.Serve("/a", clitest.NewFake())
			w.Env.Stdout = failingWriter{tc.err}
			if code := w.Run("queue"); code != console.ExitFailed || tc.want == "" && w.Errs.Len() > 0 || !strings.Contains(w.Errs.String(), tc.want) {
				t.Errorf("queue: exit code %d: %s", code, w.Errs.String())
			}
			if code := w.Run("submit", "--", "true"); code != console.ExitFailed || !strings.Contains(w.Errs.String(), "submitted as 101, but") {
				t.Errorf("submit: exit code %d: %s", code, w.Errs.String())
			}
		})
	}
}

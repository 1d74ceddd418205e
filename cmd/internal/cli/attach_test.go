package cli

import (
	"bytes"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

type attachEnd = grpc.BidiStreamingServer[apiv1.AttachRequest, apiv1.AttachResponse]

// fakeAttach answers streams by a function of a test's.
type fakeAttach struct {
	apiv1.UnimplementedAttachServiceServer
	answer func(open *apiv1.AttachOpen, s attachEnd) error

	mu    sync.Mutex
	opens []*apiv1.AttachOpen
}

func (f *fakeAttach) Attach(s attachEnd) error {
	m, err := s.Recv()
	if err != nil {
		return err
	}
	f.mu.Lock()
	f.opens = append(f.opens, m.GetOpen())
	f.mu.Unlock()
	return f.answer(m.GetOpen(), s)
}

// serveAttach is serve with streams to jobs.
func (w *world) serveAttach(socket string, f *fakeServer, answer func(*apiv1.AttachOpen, attachEnd) error) *fakeAttach {
	l := bufconn.Listen(1 << 20)
	s, a := grpc.NewServer(), &fakeAttach{answer: answer}
	apiv1.RegisterJobServiceServer(s, f)
	apiv1.RegisterClusterServiceServer(s, f)
	apiv1.RegisterAttachServiceServer(s, a)
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Serve(l) })
	w.t.Cleanup(func() { s.Stop(); wg.Wait() })
	w.sockets[socket] = l
	return a
}

func say(s attachEnd, ms ...*apiv1.AttachResponse) error {
	for _, m := range ms {
		if err := s.Send(m); err != nil {
			return err
		}
	}
	return nil
}

func opened(attempt uint32, offset int64) *apiv1.AttachResponse {
	return &apiv1.AttachResponse{Kind: &apiv1.AttachResponse_Opened{Opened: &apiv1.AttachOpened{Attempt: attempt, Node: "n1", Offset: offset}}}
}

func chunk(offset int64, data string) *apiv1.AttachResponse {
	return &apiv1.AttachResponse{Kind: &apiv1.AttachResponse_Log{Log: &apiv1.LogChunk{Offset: offset, Data: []byte(data)}}}
}

func endedBy(e *apiv1.AttachEnded) *apiv1.AttachResponse {
	return &apiv1.AttachResponse{Kind: &apiv1.AttachResponse_Ended{Ended: e}}
}

func refuse(code cluster.Code, msg string) error {
	return conv.Status(cluster.Errorf(code, "%s", msg)).Err()
}

// TestLogsRemote has the stream break after every few bytes, as leaders come
// and go, and asks for every byte once.
func TestLogsRemote(t *testing.T) {
	t.Parallel()
	w, f := newWorld(t), newFake()
	text := strings.Repeat("0123456789abcdef\n", 700)
	n := 0
	a := w.serveAttach("/a", f, func(o *apiv1.AttachOpen, s attachEnd) error {
		l := o.GetLogs()
		off := l.GetOffset()
		if before := string(l.GetBefore()); !strings.HasSuffix(text[:off], before) || off > 0 && before == "" || len(before) > conv.MaxBefore {
			t.Errorf("at %d the client says that it has %d bytes: %.40q", off, len(before), before)
		}
		if err := say(s, opened(1, off)); err != nil {
			return err
		}
		for n++; ; {
			if n%2 == 0 && int(off) > n*1000 {
				return refuse(cluster.CodeUnavailable, "another leader")
			}
			if n%2 == 1 && int(off) > n*1000 {
				return nil // a coordinator that stops
			}
			part := text[off:min(int(off)+300, len(text))]
			if part == "" {
				return say(s, endedBy(&apiv1.AttachEnded{Complete: true}))
			}
			if err := say(s, chunk(off, part)); err != nil {
				return err
			}
			off += int64(len(part))
		}
	})
	if code := w.run("logs", "16"); code != 0 || w.out.String() != text {
		t.Errorf("exit code %d, %d bytes of %d: %s", code, w.out.Len(), len(text), w.errs.String())
	}
	if len(a.opens) < 5 {
		t.Errorf("the stream broke %d times only", len(a.opens)-1)
	}
}

func TestLogsRemoteBegins(t *testing.T) {
	t.Parallel()
	w, f := newWorld(t), newFake()
	a := w.serveAttach("/a", f, func(o *apiv1.AttachOpen, s attachEnd) error {
		return say(s, &apiv1.AttachResponse{Kind: &apiv1.AttachResponse_Notice{Notice: "it was \x1b[31mcut"}}, opened(1, 90), chunk(90, "x\n"), endedBy(&apiv1.AttachEnded{}))
	})
	for _, args := range [][]string{{"logs", "--tail", "3", "12"}, {"logs", "--since-offset", "70", "--stderr", "12"}} {
		if code := w.run(args...); code != 0 || w.out.String() != "x\n" || !strings.Contains(w.errs.String(), "berth: it was ") || strings.Contains(w.errs.String(), "\x1b") {
			t.Errorf("%q: exit code %d: %q %q", args, code, w.out.String(), w.errs.String())
		}
	}
	if l := a.opens[0].GetLogs(); l.GetTailLines() != 3 || l.TailLines == nil || l.GetOffset() != 0 || l.GetStderr() {
		t.Errorf("asked for %v", l)
	}
	if l := a.opens[1].GetLogs(); l.TailLines != nil || l.GetOffset() != 70 || !l.GetStderr() {
		t.Errorf("asked for %v", l)
	}
}

// TestLogsOfTheNextAttempt follows a job that is requeued.
func TestLogsOfTheNextAttempt(t *testing.T) {
	t.Parallel()
	w, f := newWorld(t), newFake()
	w.serveAttach("/a", f, func(o *apiv1.AttachOpen, s attachEnd) error {
		off := o.GetLogs().GetOffset()
		if off == 0 {
			err := say(s, opened(1, 0), chunk(0, "first\n"), endedBy(&apiv1.AttachEnded{Complete: true}))
			f.change(func() {
				f.jobs[0].Attempts = append(f.jobs[0].Attempts, &apiv1.Attempt{No: 2, State: "RUNNING", Node: "n1"})
			})
			return err
		}
		if o.GetAttempt() != 0 || off != 6 || string(o.GetLogs().GetBefore()) != "first\n" {
			t.Errorf("asked for %v", o)
		}
		err := say(s, opened(2, 6), chunk(6, "second\n"), endedBy(&apiv1.AttachEnded{Complete: true}))
		f.change(func() { f.jobs[0].State = "COMPLETED" })
		return err
	})
	if code := w.run("logs", "-f", "12"); code != 0 || w.out.String() != "first\nsecond\n" {
		t.Errorf("exit code %d: %q %s", code, w.out.String(), w.errs.String())
	}
}

// TestLogsWithoutTheNode shows a file of this machine, and says so.
func TestLogsWithoutTheNode(t *testing.T) {
	t.Parallel()
	w, f, dir := logWorld(t)
	w.env.Hostname = func() (string, error) { return "login", nil }
	code := cluster.CodeExhausted
	w.serveAttach("/a", f, func(*apiv1.AttachOpen, attachEnd) error { return refuse(code, "too many streams") })
	if got := w.run("logs", "12"); got != console.ExitFailed || !strings.Contains(w.errs.String(), "too many streams") {
		t.Errorf("no file: exit code %d: %s", got, w.errs.String())
	}
	write(t, filepath.Join(dir, "berth-12.out"), "one\ntwo\n")
	if got := w.run("logs", "--tail", "1", "12"); got != 0 || w.out.String() != "two\n" || !strings.Contains(w.errs.String(), "on this machine") {
		t.Errorf("exit code %d: %q %s", got, w.out.String(), w.errs.String())
	}
	if got := w.run("logs", "--local", "--since-offset", "2", "12"); got != 0 || w.out.String() != "e\ntwo\n" || w.errs.Len() > 0 {
		t.Errorf("--local: exit code %d: %q %s", got, w.out.String(), w.errs.String())
	}
	code = cluster.CodeNotFound // the node's word counts
	if got := w.run("logs", "12"); got != console.ExitNotFound || w.out.Len() > 0 {
		t.Errorf("the file is not on the node: exit code %d: %q", got, w.out.String())
	}
}

func TestExec(t *testing.T) {
	t.Parallel()
	out := func(s string) *apiv1.AttachResponse {
		return &apiv1.AttachResponse{Kind: &apiv1.AttachResponse_Stdout{Stdout: []byte(s)}}
	}
	bad := &apiv1.AttachResponse{Kind: &apiv1.AttachResponse_Stderr{Stderr: []byte("bad\n")}}
	for _, c := range []struct {
		name        string
		frames      []*apiv1.AttachResponse
		err         error
		code        int
		out, errors string
	}{
		{"done", []*apiv1.AttachResponse{opened(1, 0), out("a\n"), out("b\n"), bad, endedBy(&apiv1.AttachEnded{})}, nil, 0, "a\nb\n", "bad\n"},
		{"its own code", []*apiv1.AttachResponse{opened(1, 0), endedBy(&apiv1.AttachEnded{Code: 42})}, nil, 42, "", ""},
		{"a signal", []*apiv1.AttachResponse{opened(1, 0), endedBy(&apiv1.AttachEnded{Code: 137, Signal: 9})}, nil, 137, "", ""},
		{"with its job", []*apiv1.AttachResponse{opened(1, 0), endedBy(&apiv1.AttachEnded{Code: 129, Signal: 1, WithJob: true})}, nil, 129, "", "berth: job 12 has ended, and the command with it\n"},
		{"the leader goes", []*apiv1.AttachResponse{opened(1, 0), out("a\n")}, refuse(cluster.CodeUnavailable, "another leader"), console.ExitUnknown, "a\n", "lost its connection and is ended: another leader"},
		{"an end without a word", []*apiv1.AttachResponse{opened(1, 0)}, nil, console.ExitUnknown, "", "the coordinator ended the stream"},
		{"another user's", nil, refuse(cluster.CodeDenied, "the job belongs to another user"), console.ExitFailed, "", "another user"},
		{"no such job", nil, refuse(cluster.CodeNotFound, "job 12 is not known"), console.ExitNotFound, "", "not known"},
		{"unknown whether it ran", nil, refuse(cluster.CodeUnknown, "the connection broke"), console.ExitUnknown, "", "the connection broke"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.env.Stdin = strings.NewReader("")
			a := w.serveAttach("/a", newFake(), func(_ *apiv1.AttachOpen, s attachEnd) error {
				if err := say(s, c.frames...); err != nil {
					return err
				}
				return c.err
			})
			if code := w.run("exec", "12", "--", "ls", "-l"); code != c.code || w.out.String() != c.out || !strings.Contains(w.errs.String(), c.errors) {
				t.Errorf("exit code %d: %q %q, want %d", code, w.out.String(), w.errs.String(), c.code)
			}
			if len(a.opens) != 1 {
				t.Fatalf("asked %d times; a command runs once", len(a.opens))
			}
			if x := a.opens[0].GetExec(); a.opens[0].GetJob() != 12 || x.GetTerminal() || string(bytes.Join(x.GetCommand(), []byte(" "))) != "ls -l" {
				t.Errorf("asked for %v", a.opens[0])
			}
		})
	}
}

// TestExecInput sends more than may be on the way, to a command that takes it
// slowly.
func TestExecInput(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	text := strings.Repeat("0123456789abcde\n", 40_000)
	w.env.Stdin = strings.NewReader(text)
	var got []byte
	w.serveAttach("/a", newFake(), func(_ *apiv1.AttachOpen, s attachEnd) error {
		if err := say(s, opened(1, 0)); err != nil {
			return err
		}
		taken := 0
		for {
			m, err := s.Recv()
			if err != nil {
				return err
			}
			if m.GetStdinEnd() != nil {
				return say(s, endedBy(&apiv1.AttachEnded{Code: 3}))
			}
			got = append(got, m.GetStdin()...)
			if len(got)-taken > conv.MaxFrameData {
				t.Errorf("%d bytes on the way", len(got)-taken)
			}
			if len(got)-taken < conv.FrameData*2 && len(got) < len(text) {
				continue // it takes only when all that may be on the way is there
			}
			taken = len(got)
			if err := say(s, &apiv1.AttachResponse{Kind: &apiv1.AttachResponse_StdinTaken{StdinTaken: uint64(taken)}}); err != nil {
				return err
			}
		}
	})
	if code := w.run("exec", "12", "cat"); code != 3 || string(got) != text {
		t.Errorf("exit code %d, %d bytes of %d: %s", code, len(got), len(text), w.errs.String())
	}
}

// TestExecNoInput leaves standard input alone.
func TestExecNoInput(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	in := strings.NewReader("for somebody else")
	w.env.Stdin = in
	w.serveAttach("/a", newFake(), func(_ *apiv1.AttachOpen, s attachEnd) error {
		if err := say(s, opened(1, 0)); err != nil {
			return err
		}
		if m, err := s.Recv(); err != nil || m.GetStdinEnd() == nil {
			t.Errorf("got %v, %v, want the end of input", m, err)
		}
		return say(s, endedBy(&apiv1.AttachEnded{}))
	})
	if code := w.run("exec", "-n", "12", "true"); code != 0 {
		t.Errorf("exit code %d: %s", code, w.errs.String())
	}
	if rest, err := io.ReadAll(in); err != nil || string(rest) != "for somebody else" {
		t.Errorf("standard input has %q left, %v", rest, err)
	}
}

// TestLogsOverACoordinatorThatHangs has one that stops in the middle.
func TestLogsOverACoordinatorThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := newWorld(t), newFake()
		n := 0
		w.serveAttach("/a", f, func(o *apiv1.AttachOpen, s attachEnd) error {
			off := o.GetLogs().GetOffset()
			if n++; n == 1 {
				if err := say(s, opened(1, 0), chunk(0, "one\n"), &apiv1.AttachResponse{}); err != nil {
					return err
				}
				<-s.Context().Done()
				return s.Context().Err()
			}
			return say(s, opened(1, off), chunk(off, "two\n"), endedBy(&apiv1.AttachEnded{Complete: true}))
		})
		if code := w.run("logs", "16"); code != 0 || w.out.String() != "one\ntwo\n" || n != 2 {
			t.Errorf("exit code %d after %d streams: %q %s", code, n, w.out.String(), w.errs.String())
		}
	})
}

package enter_test

import (
	"bytes"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

// TestLogsRemote has the stream break after every few bytes, as leaders come
// and go, and asks for every byte once.
func TestLogsRemote(t *testing.T) {
	t.Parallel()
	w, f := clitest.NewWorld(t), clitest.NewFake()
	text := strings.Repeat("0123456789abcdef\n", 700)
	n := 0
	a := w.ServeAttach("/a", f, func(o *apiv1.AttachOpen, s clitest.AttachEnd) error {
		l := o.GetLogs()
		off := l.GetOffset()
		if before := string(l.GetBefore()); !strings.HasSuffix(text[:off], before) || off > 0 && before == "" || len(before) > apiconv.MaxBefore {
			t.Errorf("at %d the client says that it has %d bytes: %.40q", off, len(before), before)
		}
		if err := clitest.Say(s, clitest.Opened(1, off)); err != nil {
			return err
		}
		for n++; ; {
			if n%2 == 0 && int(off) > n*1000 {
				return clitest.Refuse(cluster.CodeUnavailable, "another leader")
			}
			if n%2 == 1 && int(off) > n*1000 {
				return nil // a coordinator that stops
			}
			part := text[off:min(int(off)+300, len(text))]
			if part == "" {
				return clitest.Say(s, clitest.EndedBy(&apiv1.AttachEnded{Complete: true}))
			}
			if err := clitest.Say(s, clitest.Chunk(off, part)); err != nil {
				return err
			}
			off += int64(len(part))
		}
	})
	if code := w.Run("logs", "16"); code != 0 || w.Out.String() != text {
		t.Errorf("exit code %d, %d bytes of %d: %s", code, w.Out.Len(), len(text), w.Errs.String())
	}
	if len(a.Opens) < 5 {
		t.Errorf("the stream broke %d times only", len(a.Opens)-1)
	}
}

func TestLogsRemoteBegins(t *testing.T) {
	t.Parallel()
	w, f := clitest.NewWorld(t), clitest.NewFake()
	a := w.ServeAttach("/a", f, func(o *apiv1.AttachOpen, s clitest.AttachEnd) error {
		return clitest.Say(s, &apiv1.AttachResponse{Kind: &apiv1.AttachResponse_Notice{Notice: "it was \x1b[31mcut"}}, clitest.Opened(1, 90), clitest.Chunk(90, "x\n"), clitest.EndedBy(&apiv1.AttachEnded{}))
	})
	for _, args := range [][]string{{"logs", "--tail", "3", "12"}, {"logs", "--since-offset", "70", "--stderr", "12"}} {
		if code := w.Run(args...); code != 0 || w.Out.String() != "x\n" || !strings.Contains(w.Errs.String(), "berth: it was ") || strings.Contains(w.Errs.String(), "\x1b") {
			t.Errorf("%q: exit code %d: %q %q", args, code, w.Out.String(), w.Errs.String())
		}
	}
	if l := a.Opens[0].GetLogs(); l.GetTailLines() != 3 || l.TailLines == nil || l.GetOffset() != 0 || l.GetStderr() {
		t.Errorf("asked for %v", l)
	}
	if l := a.Opens[1].GetLogs(); l.TailLines != nil || l.GetOffset() != 70 || !l.GetStderr() {
		t.Errorf("asked for %v", l)
	}
}

// TestLogsOfTheNextAttempt follows a job that is requeued.
func TestLogsOfTheNextAttempt(t *testing.T) {
	t.Parallel()
	w, f := clitest.NewWorld(t), clitest.NewFake()
	w.ServeAttach("/a", f, func(o *apiv1.AttachOpen, s clitest.AttachEnd) error {
		off := o.GetLogs().GetOffset()
		if off == 0 {
			err := clitest.Say(s, clitest.Opened(1, 0), clitest.Chunk(0, "first\n"), clitest.EndedBy(&apiv1.AttachEnded{Complete: true}))
			f.Change(func() {
				f.Jobs[0].Attempts = append(f.Jobs[0].Attempts, &apiv1.Attempt{No: 2, State: "RUNNING", Node: "n1"})
			})
			return err
		}
		if o.GetAttempt() != 0 || off != 6 || string(o.GetLogs().GetBefore()) != "first\n" {
			t.Errorf("asked for %v", o)
		}
		err := clitest.Say(s, clitest.Opened(2, 6), clitest.Chunk(6, "second\n"), clitest.EndedBy(&apiv1.AttachEnded{Complete: true}))
		f.Change(func() { f.Jobs[0].State = "COMPLETED" })
		return err
	})
	if code := w.Run("logs", "-f", "12"); code != 0 || w.Out.String() != "first\nsecond\n" {
		t.Errorf("exit code %d: %q %s", code, w.Out.String(), w.Errs.String())
	}
}

// TestLogsWithoutTheNode shows a file of this machine, and says so.
func TestLogsWithoutTheNode(t *testing.T) {
	t.Parallel()
	w, f, dir := logWorld(t)
	w.Env.Hostname = func() (string, error) { return "login", nil }
	code := cluster.CodeExhausted
	w.ServeAttach("/a", f, func(*apiv1.AttachOpen, clitest.AttachEnd) error { return clitest.Refuse(code, "too many streams") })
	if got := w.Run("logs", "12"); got != console.ExitFailed || !strings.Contains(w.Errs.String(), "too many streams") {
		t.Errorf("no file: exit code %d: %s", got, w.Errs.String())
	}
	write(t, filepath.Join(dir, "berth-12.out"), "one\ntwo\n")
	if got := w.Run("logs", "--tail", "1", "12"); got != 0 || w.Out.String() != "two\n" || !strings.Contains(w.Errs.String(), "on this machine") {
		t.Errorf("exit code %d: %q %s", got, w.Out.String(), w.Errs.String())
	}
	if got := w.Run("logs", "--local", "--since-offset", "2", "12"); got != 0 || w.Out.String() != "e\ntwo\n" || w.Errs.Len() > 0 {
		t.Errorf("--local: exit code %d: %q %s", got, w.Out.String(), w.Errs.String())
	}
	code = cluster.CodeNotFound // the node's word counts
	if got := w.Run("logs", "12"); got != console.ExitNotFound || w.Out.Len() > 0 {
		t.Errorf("the file is not on the node: exit code %d: %q", got, w.Out.String())
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
		{"done", []*apiv1.AttachResponse{clitest.Opened(1, 0), out("a\n"), out("b\n"), bad, clitest.EndedBy(&apiv1.AttachEnded{})}, nil, 0, "a\nb\n", "bad\n"},
		{"its own code", []*apiv1.AttachResponse{clitest.Opened(1, 0), clitest.EndedBy(&apiv1.AttachEnded{Code: 42})}, nil, 42, "", ""},
		{"a signal", []*apiv1.AttachResponse{clitest.Opened(1, 0), clitest.EndedBy(&apiv1.AttachEnded{Code: 137, Signal: 9})}, nil, 137, "", ""},
		{"with its job", []*apiv1.AttachResponse{clitest.Opened(1, 0), clitest.EndedBy(&apiv1.AttachEnded{Code: 129, Signal: 1, WithJob: true})}, nil, 129, "", "berth: job 12 has ended, and the command with it\n"},
		{"the leader goes", []*apiv1.AttachResponse{clitest.Opened(1, 0), out("a\n")}, clitest.Refuse(cluster.CodeUnavailable, "another leader"), console.ExitUnknown, "a\n", "lost its connection and was ended: another leader"},
		{"an end without a word", []*apiv1.AttachResponse{clitest.Opened(1, 0)}, nil, console.ExitUnknown, "", "the coordinator ended the stream"},
		{"another user's", nil, clitest.Refuse(cluster.CodeDenied, "the job belongs to another user"), console.ExitFailed, "", "another user"},
		{"no such job", nil, clitest.Refuse(cluster.CodeNotFound, "job 12 is not known"), console.ExitNotFound, "", "not known"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := clitest.NewWorld(t)
			w.Env.Stdin = strings.NewReader("")
			a := w.ServeAttach("/a", clitest.NewFake(), func(_ *apiv1.AttachOpen, s clitest.AttachEnd) error {
				if err := clitest.Say(s, c.frames...); err != nil {
					return err
				}
				return c.err
			})
			if code := w.Run("exec", "12", "--", "ls", "-l"); code != c.code || w.Out.String() != c.out || !strings.Contains(w.Errs.String(), c.errors) {
				t.Errorf("exit code %d: %q %q, want %d", code, w.Out.String(), w.Errs.String(), c.code)
			}
			if len(a.Opens) != 1 {
				t.Fatalf("asked %d times; a command runs once", len(a.Opens))
			}
			if x := a.Opens[0].GetExec(); a.Opens[0].GetJob() != 12 || x.GetTerminal() || string(bytes.Join(x.GetCommand(), []byte(" "))) != "ls -l" {
				t.Errorf("asked for %v", a.Opens[0])
			}
		})
	}
}

// TestExecAskedAgain loses the answer to a command once: it is asked for again as the
// same request, which old agents take for a session that they do not have.
func TestExecAskedAgain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		then  func(clitest.AttachEnd) error
		code  int
		words string
	}{
		{"the node knows", func(s clitest.AttachEnd) error {
			return clitest.Say(s, clitest.Opened(1, 0), clitest.EndedBy(&apiv1.AttachEnded{Code: 3}))
		}, 3, ""},
		{"an old agent", func(clitest.AttachEnd) error {
			return clitest.Refuse(cluster.CodeNotFound, "no such session")
		}, console.ExitUnknown, "the connection broke"},
		{"begun and gone", func(clitest.AttachEnd) error {
			return clitest.Refuse(cluster.CodeConflict, "it is not run again")
		}, console.ExitUnknown, "it is not run again"},
		{"refused", func(clitest.AttachEnd) error {
			return clitest.Refuse(cluster.CodeDenied, "no longer yours")
		}, console.ExitFailed, "no longer yours"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := clitest.NewWorld(t)
			w.Env.Stdin = strings.NewReader("")
			tries := 0
			a := w.ServeAttach("/a", clitest.NewFake(), func(_ *apiv1.AttachOpen, s clitest.AttachEnd) error {
				if tries++; tries == 1 {
					return clitest.Refuse(cluster.CodeUnknown, "the connection broke")
				}
				return c.then(s)
			})
			if code := w.Run("exec", "12", "--", "ls", "-l"); code != c.code || !strings.Contains(w.Errs.String(), c.words) {
				t.Errorf("exit code %d: %q, want %d", code, w.Errs.String(), c.code)
			}
			if len(a.Opens) != 2 {
				t.Fatalf("asked %d times", len(a.Opens))
			}
			first, again := a.Opens[0].GetExec(), a.Opens[1].GetExec()
			if first.GetSession() != "" || again.GetSession() != apiconv.AgainSession || apiconv.CheckRequestID(first.GetRequestId()) != nil ||
				first.GetRequestId() != again.GetRequestId() || string(bytes.Join(again.GetCommand(), []byte(" "))) != "ls -l" {
				t.Errorf("asked for %v, and then for %v", first, again)
			}
		})
	}
}

// TestExecInput sends more than may be on the way, to a command that takes it
// slowly.
func TestExecInput(t *testing.T) {
	t.Parallel()
	w := clitest.NewWorld(t)
	text := strings.Repeat("0123456789abcde\n", 40_000)
	w.Env.Stdin = strings.NewReader(text)
	var got []byte
	w.ServeAttach("/a", clitest.NewFake(), func(_ *apiv1.AttachOpen, s clitest.AttachEnd) error {
		if err := clitest.Say(s, clitest.Opened(1, 0)); err != nil {
			return err
		}
		taken := 0
		for {
			m, err := s.Recv()
			if err != nil {
				return err
			}
			if m.GetStdinEnd() != nil {
				return clitest.Say(s, clitest.EndedBy(&apiv1.AttachEnded{Code: 3}))
			}
			got = append(got, m.GetStdin()...)
			if len(got)-taken > apiconv.MaxFrameData {
				t.Errorf("%d bytes on the way", len(got)-taken)
			}
			if len(got)-taken < apiconv.FrameData*2 && len(got) < len(text) {
				continue // it takes only when all that may be on the way is there
			}
			taken = len(got)
			if err := clitest.Say(s, &apiv1.AttachResponse{Kind: &apiv1.AttachResponse_StdinTaken{StdinTaken: uint64(taken)}}); err != nil {
				return err
			}
		}
	})
	if code := w.Run("exec", "12", "cat"); code != 3 || string(got) != text {
		t.Errorf("exit code %d, %d bytes of %d: %s", code, len(got), len(text), w.Errs.String())
	}
}

// TestExecNoInput leaves standard input alone.
func TestExecNoInput(t *testing.T) {
	t.Parallel()
	w := clitest.NewWorld(t)
	in := strings.NewReader("for somebody else")
	w.Env.Stdin = in
	w.ServeAttach("/a", clitest.NewFake(), func(_ *apiv1.AttachOpen, s clitest.AttachEnd) error {
		if err := clitest.Say(s, clitest.Opened(1, 0)); err != nil {
			return err
		}
		if m, err := s.Recv(); err != nil || m.GetStdinEnd() == nil {
			t.Errorf("got %v, %v, want the end of input", m, err)
		}
		return clitest.Say(s, clitest.EndedBy(&apiv1.AttachEnded{}))
	})
	if code := w.Run("exec", "-n", "12", "true"); code != 0 {
		t.Errorf("exit code %d: %s", code, w.Errs.String())
	}
	if rest, err := io.ReadAll(in); err != nil || string(rest) != "for somebody else" {
		t.Errorf("standard input has %q left, %v", rest, err)
	}
}

// TestLogsOverACoordinatorThatHangs has one that stops in the middle.
func TestLogsOverACoordinatorThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := clitest.NewWorld(t), clitest.NewFake()
		n := 0
		w.ServeAttach("/a", f, func(o *apiv1.AttachOpen, s clitest.AttachEnd) error {
			off := o.GetLogs().GetOffset()
			if n++; n == 1 {
				if err := clitest.Say(s, clitest.Opened(1, 0), clitest.Chunk(0, "one\n"), &apiv1.AttachResponse{}); err != nil {
					return err
				}
				<-s.Context().Done()
				return s.Context().Err()
			}
			return clitest.Say(s, clitest.Opened(1, off), clitest.Chunk(off, "two\n"), clitest.EndedBy(&apiv1.AttachEnded{Complete: true}))
		})
		if code := w.Run("logs", "16"); code != 0 || w.Out.String() != "one\ntwo\n" || n != 2 {
			t.Errorf("exit code %d after %d streams: %q %s", code, n, w.Out.String(), w.Errs.String())
		}
	})
}

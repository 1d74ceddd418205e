package step

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == Arg {
		os.Exit(Main(os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// node is a step that runs, seen from srun.
type node struct {
	t   *testing.T
	cmd *exec.Cmd
	to  *Writer
	in  io.WriteCloser
	out io.Reader
}

func begin(t *testing.T, cfg Config) *node {
	t.Helper()
	cmd := exec.Command(os.Args[0], Arg)
	cmd.Stderr = os.Stderr
	n := &node{t: t, cmd: cmd}
	var err error
	if n.in, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if n.out, err = cmd.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	n.to = NewWriter(n.in)
	data, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	n.say(Frame{Kind: Begin, Data: data})
	return n
}

func (n *node) say(f Frame) {
	n.t.Helper()
	if err := n.to.Write(f); err != nil {
		n.t.Fatal(err)
	}
}

// heard is what came of all tasks: the outputs by task and kind, and the ends.
type heard struct {
	text map[string]string
	ends map[uint32][]byte
}

// hear reads until all tasks have ended, or enough holds.
func (n *node) hear(h *heard, tasks int, enough func(*heard) bool) *heard {
	n.t.Helper()
	if h == nil {
		h = &heard{text: map[string]string{}, ends: map[uint32][]byte{}}
	}
	for len(h.ends) < tasks && (enough == nil || !enough(h)) {
		f, err := Read(n.out)
		if err != nil {
			n.t.Fatalf("%v; heard %v", err, h)
		}
		if f.Kind == Exit {
			h.ends[f.Task] = f.Data
			continue
		}
		h.text[fmt.Sprintf("%c%d", f.Kind, f.Task)] += string(f.Data)
	}
	return h
}

func lines(ls ...string) (out [][]byte) {
	for _, l := range ls {
		out = append(out, []byte(l))
	}
	return out
}

func TestTasks(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, script string
		out, err     string
		end          []byte
	}{
		{"both outputs, and a code", "echo out; echo err >&2; exit 3", "out\n", "err\n", []byte{3, 0, 0}},
		{"a signal", "kill -TERM $$", "", "", []byte{143, 15, 0}},
		{"what it leaves ends with it", "sleep 300 & echo done", "done\n", "", []byte{0, 0, 0}},
		{"its own variables", "echo $RANK $COMMON", "0 yes\n", "", []byte{0, 0, 0}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			n := begin(t, Config{Args: lines("sh", "-c", tc.script), Env: lines("COMMON=yes"), Tasks: []Task{{Env: lines("RANK=0")}}, Umask: -1})
			h := n.hear(nil, 1, nil)
			if h.text["o0"] != tc.out || h.text["e0"] != tc.err || !bytes.Equal(h.ends[0], tc.end) {
				t.Errorf("%+v", h)
			}
			if err := n.cmd.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestOwnCommands: tasks may have commands of their own, each sought for itself.
func TestOwnCommands(t *testing.T) {
	t.Parallel()
	n := begin(t, Config{Args: lines("nosuchprogram"), Tasks: []Task{{Args: lines("echo", "a")}, {Args: lines("sh", "-c", "echo b; exit 3")}, {Args: lines("nor this")}}, Umask: -1})
	h := n.hear(nil, 3, nil)
	if h.text["o0"] != "a\n" || h.text["o1"] != "b\n" || h.ends[1][0] != 3 || h.ends[2][0] != 2 {
		t.Errorf("%+v", h)
	}
}

func TestInputGoesToThoseThatRead(t *testing.T) {
	t.Parallel()
	n := begin(t, Config{Args: lines("cat"), Tasks: []Task{{Reads: true}, {}, {Reads: true}}, Umask: -1})
	n.say(Frame{Kind: Input, Data: []byte("one ")})
	n.say(Frame{Kind: Input, Data: []byte("two")})
	n.say(Frame{Kind: InputEnd})
	h := n.hear(nil, 3, nil)
	if h.text["o0"] != "one two" || h.text["o1"] != "" || h.text["o2"] != "one two" {
		t.Errorf("%+v", h)
	}
}

// TestSignals: the process itself may be signalled, or told to.
func TestSignals(t *testing.T) {
	t.Parallel()
	n := begin(t, Config{Args: lines("sh", "-c", "trap 'echo usr1; exit 9' USR1; trap 'echo usr2' USR2; echo ready; while :; do sleep 0.01; done"), Tasks: []Task{{}}, Umask: -1})
	h := n.hear(nil, 1, func(h *heard) bool { return h.text["o0"] == "ready\n" })
	n.say(Frame{Kind: Signal, Data: []byte{byte(syscall.SIGUSR2)}})
	n.hear(h, 1, func(h *heard) bool { return strings.Contains(h.text["o0"], "usr2") })
	if err := n.cmd.Process.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	if h = n.hear(h, 1, nil); h.ends[0][0] != 9 || !strings.HasSuffix(h.text["o0"], "usr1\n") {
		t.Errorf("%+v", h)
	}
}

// TestEndsWithSrun: when srun is gone the tasks get SIGTERM.
func TestEndsWithSrun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	n := begin(t, Config{Args: lines("sh", "-c", "trap 'echo told >"+dir+"/end; exit' TERM; echo ready; while :; do sleep 0.01; done"), Tasks: []Task{{}}, Umask: -1})
	n.hear(nil, 1, func(h *heard) bool { return h.text["o0"] == "ready\n" })
	n.in.Close()
	if err := n.cmd.Wait(); err != nil {
		t.Error(err)
	}
	if _, err := os.ReadFile(dir + "/end"); err != nil {
		t.Error("the task was not told: ", err)
	}
}

// TestWhatCannotRun has the words and codes of Slurm 22.05.8.
func TestWhatCannotRun(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		args, dir, words string
		code             byte
	}{
		{"nosuchcmd", "", "slurmstepd-n1: error: execve(): nosuchcmd: No such file or directory\n", 2},
		{"/etc/passwd", "", "slurmstepd-n1: error: execve(): /etc/passwd: Permission denied\n", 13},
		{"pwd", "/nosuch", "slurmstepd-n1: error: couldn't chdir to `/nosuch': No such file or directory: going to /tmp instead\n", 0},
	} {
		n := begin(t, Config{Args: lines(tc.args), Dir: []byte(tc.dir), Node: "n1", Tasks: []Task{{}}, Umask: -1})
		if h := n.hear(nil, 1, nil); h.text["w0"] != tc.words || h.ends[0][0] != tc.code {
			t.Errorf("%s: %+v", tc.args, h)
		}
	}
}

func TestWrongWords(t *testing.T) {
	t.Parallel()
	for _, in := range []string{"", "hello, this is no frame at all", "b\x00\x00\x00\x00\x00\x00\x00\x02{}"} {
		var out, errs bytes.Buffer
		if code := Main(strings.NewReader(in), &out, &errs); code != 125 || out.Len() > 0 {
			t.Errorf("%q: %d %q", in, code, out.String())
		}
	}
}

func FuzzRead(f *testing.F) {
	var b bytes.Buffer
	w := NewWriter(&b)
	for _, fr := range []Frame{{Kind: Stdout, Task: 3, Data: []byte("hi")}, {Kind: Exit, Data: []byte{1, 0, 0}}, {Kind: InputEnd}} {
		if err := w.Write(fr); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(b.Bytes())
	f.Add([]byte("b\x00\x00\x00\x00\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := bytes.NewReader(data)
		for {
			fr, err := Read(r)
			if err != nil {
				if !errors.Is(err, io.EOF) && !errors.Is(err, errFrame) && !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Fatal(err)
				}
				return
			}
			if len(fr.Data) > maxBegin {
				t.Fatalf("%d bytes", len(fr.Data))
			}
		}
	})
}

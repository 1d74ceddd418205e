package relay_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/berth-scheduler/berth/agent/agenttest"
	"github.com/berth-scheduler/berth/cluster"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

func attempt(as *nodev1.Assignment) cluster.AttemptID {
	return cluster.AttemptID{Job: cluster.JobID(as.Job), No: as.Attempt}
}

func stdin(data []byte) *apiv1.AttachRequest {
	return &apiv1.AttachRequest{Kind: &apiv1.AttachRequest_Stdin{Stdin: data}}
}

func say(t *testing.T, g *agenttest.Guest, ms ...*apiv1.AttachRequest) {
	t.Helper()
	for _, m := range ms {
		if err := g.Send(m); err != nil {
			t.Fatal(err)
		}
	}
}

var stdinEnd = &apiv1.AttachRequest{Kind: &apiv1.AttachRequest_StdinEnd{StdinEnd: &apiv1.StdinEnd{}}}

func signal(n uint32) *apiv1.AttachRequest {
	return &apiv1.AttachRequest{Kind: &apiv1.AttachRequest_Signal{Signal: n}}
}

func TestExec(t *testing.T) {
	r := newRig(t)
	as := r.job("echo hi; sleep 1000")
	for _, c := range []struct {
		name     string
		args     []string
		out, err string
		end      *apiv1.AttachEnded
	}{
		{"both outputs and a code", []string{"sh", "-c", "echo out; echo err >&2; exit 3"}, "out\n", "err\n", &apiv1.AttachEnded{Code: 3}},
		{"a signal", []string{"sh", "-c", "kill -TERM $$"}, "", "", &apiv1.AttachEnded{Code: 143, Signal: 15}},
		{"no such command", []string{"no-such"}, "", "berth: no-such: command not found\n", &apiv1.AttachEnded{Code: 127}},
		{"what stays in the background", []string{"sh", "-c", "sleep 3001 & echo gone"}, "gone\n", "", &apiv1.AttachEnded{}},
		{"much output", []string{"sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x"}, strings.Repeat("x", 3_000_000), "", &apiv1.AttachEnded{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := all(r.visit(as, command(&apiv1.AttachExec{}, c.args...), nil))
			if h.out != c.out || h.err != c.err || h.ended.String() != c.end.String() || h.opened.GetNode() != "n1" || h.opened.GetAttempt() != 1 {
				t.Errorf("got %.300s", h.out)
				t.Errorf("standard error %q, ended %v, opened %v, refused %v", h.err, h.ended, h.opened, h.refused)
			}
		})
	}
}

func TestExecInput(t *testing.T) {
	r := newRig(t)
	as := r.job("echo hi; sleep 1000")
	g := r.visit(as, command(&apiv1.AttachExec{}, "cat"), nil)
	defer g.Leave()
	h, want := &heard{}, strings.Builder{}
	for i := range 50 {
		part := bytes.Repeat([]byte(strconv.Itoa(i)+"\n"), 5000)
		want.Write(part)
		say(t, g, stdin(part))
		hear(g, h, func(h *heard) bool { return h.taken == uint64(want.Len()) })
	}
	say(t, g, stdinEnd, stdin([]byte("too late")))
	if hear(g, h, nil); h.out != want.String() || h.ended.GetCode() != 0 || h.ended == nil {
		t.Errorf("%d bytes came back of %d: %v", len(h.out), want.Len(), h.ended)
	}
}

// TestExecSignalPassesInput has a command that reads nothing of what it was
// sent, as much as a user may send, and a signal behind that.
func TestExecSignalPassesInput(t *testing.T) {
	r := newRig(t)
	as := r.job("echo hi; sleep 1000")
	g := r.visit(as, command(&apiv1.AttachExec{}, "sh", "-c", "trap 'exit 8' INT; echo ready; while :; do sleep 0.02; done"), nil)
	defer g.Leave()
	h := hear(g, &heard{}, func(h *heard) bool { return h.out == "ready\n" })
	say(t, g, stdin(make([]byte, 64<<10)), stdin(make([]byte, 64<<10)), signal(0), signal(9999), signal(uint32(syscall.SIGINT)))
	if hear(g, h, nil); h.ended.GetCode() != 8 {
		t.Errorf("ended as %v, %v", h.ended, h.broken)
	}
}

func TestExecTerminal(t *testing.T) {
	r := newRig(t)
	as := r.job("echo hi; sleep 1000")
	g := r.visit(as, command(&apiv1.AttachExec{Terminal: true, Term: "xterm", Window: &apiv1.WindowSize{Rows: 30, Columns: 100}}, "sh"), nil)
	defer g.Leave()
	say(t, g, stdin([]byte("stty size; echo $TERM; stty -echo\n")))
	h := hear(g, &heard{}, func(h *heard) bool { return strings.Contains(h.out, "30 100\r\nxterm\r\n") })
	resize := func(rows, columns uint32) *apiv1.AttachRequest {
		return &apiv1.AttachRequest{Kind: &apiv1.AttachRequest_Resize{Resize: &apiv1.WindowSize{Rows: rows, Columns: columns}}}
	}
	say(t, g, resize(0, 0), resize(70_000, 1), resize(31, 101), stdin([]byte("stty size; exit 6\n")))
	if hear(g, h, nil); !strings.Contains(h.out, "31 101\r\n") || h.ended.GetCode() != 6 {
		t.Errorf("got %q, %v", h.out, h.ended)
	}
}

// TestExecEndsWithItsUser has a user go away, and the session, and the job.
func TestExecEndsWithItsUser(t *testing.T) {
	r := newRig(t)
	as := r.job("echo hi; while [ ! -e gate ]; do sleep 0.02; done; exit 4")
	start := func(name string) (*agenttest.Guest, *heard) {
		t.Helper()
		script := "echo $$ >" + name + ".pid; trap 'echo hup >" + name + "; exit' HUP; echo ready; while :; do sleep 0.02; done"
		g := r.visit(as, command(&apiv1.AttachExec{}, "sh", "-c", script), nil)
		return g, hear(g, &heard{}, func(h *heard) bool { return h.out == "ready\n" })
	}
	hup := func(name string) {
		t.Helper()
		r.until("SIGHUP for "+name, func() bool {
			b, err := os.ReadFile(filepath.Join(r.out, name))
			return err == nil && string(b) == "hup\n"
		})
		pid, err := os.ReadFile(filepath.Join(r.out, name+".pid"))
		if err != nil {
			t.Fatal(err)
		}
		r.until("the end of "+name, func() bool {
			_, err := os.Stat("/proc/" + strings.TrimSpace(string(pid)))
			return err != nil
		})
	}
	g, _ := start("user")
	g.Leave()
	hup("user")
	g, h := start("job")
	defer g.Leave()
	if err := os.WriteFile(filepath.Join(r.out, "gate"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	hup("job")
	hear(g, h, nil)
	if h.ended == nil {
		t.Errorf("the command of a job that ended: %+v", h)
	}
	r.until("the job's end", func() bool { return r.leader.Last(attempt(as)).GetExit() != nil })
	if code := r.leader.Last(attempt(as)).GetExit().GetCode(); code != 4 {
		t.Errorf("the job ended with %d, want its own code 4", code)
	}
	late := all(r.visit(as, command(&apiv1.AttachExec{}, "true"), nil))
	if late.refused.GetReason() != "CONFLICT" || !strings.Contains(late.refused.GetMessage(), "job 1") {
		t.Errorf("after the end: %+v", late)
	}
}

package notify

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/quotedprintable"
	"net/mail"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/draws"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

var _ = draws.Fixed()

var testNow = time.Date(2026, 3, 14, 15, 9, 26, 0, time.UTC)

func code(n int32) *int32 { return &n }

// notice is of a job that ended well.
func notice(change func(*logv1.Notice)) *logv1.Notice {
	n := &logv1.Notice{
		Seq: 7, AtUs: testNow.UnixMicro(), Event: uint32(cluster.MailEnd), Job: 12, Attempt: 1, Name: "train", User: "ann", Uid: 1000, Partition: "gpu",
		State: uint32(cluster.JobCompleted), ExitCode: code(0), QueuedUs: 61_000_000, RanUs: 10_000_000, Nodes: "n[1-2]",
	}
	if change != nil {
		change(n)
	}
	return n
}

// TestSubjects are those that Slurm 22.05 sends, after the name of who sends.
func TestSubjects(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*logv1.Notice){
		"Job_id=12 Name=train Ended, Run time 00:00:10, COMPLETED, ExitCode 0": nil,
		"Job_id=12 Name=train Failed, Run time 1-01:00:10, FAILED, ExitCode 3": func(n *logv1.Notice) {
			n.Event, n.State, n.ExitCode, n.RanUs = uint32(cluster.MailFail), uint32(cluster.JobFailed), code(3), 90_010_000_000
		},
		"Job_id=12 Name=train Failed, Run time 00:00:10, FAILED, Signal 9": func(n *logv1.Notice) {
			n.Event, n.State, n.ExitCode, n.Signal = uint32(cluster.MailFail), uint32(cluster.JobFailed), code(137), 9
		},
		"Job_id=12 Name=train Began, Queued time 00:01:01":                  func(n *logv1.Notice) { n.Event = uint32(cluster.MailBegin) },
		"Job_id=12 Name=train Requeued, Run time 00:00:10":                  func(n *logv1.Notice) { n.Event = uint32(cluster.MailRequeue) },
		"Job_id=12 Name=train Invalid dependency":                           func(n *logv1.Notice) { n.Event = uint32(cluster.MailInvalidDepend) },
		"Job_id=12 Name=train Reached 90% of time limit, Run time 00:00:10": func(n *logv1.Notice) { n.Event = uint32(cluster.MailTimeLimit90) },
		"Job_id=12 Name=train Reached time limit, Run time 00:00:10":        func(n *logv1.Notice) { n.Event = uint32(cluster.MailTimeLimit) },
		"Array Task Job_id=9_3 (12) Name=train Began, Queued time 00:01:01": func(n *logv1.Notice) { n.Event, n.ArrayJob, n.ArrayTask = uint32(cluster.MailBegin), 9, 3 },
		"Array Summary Job_id=9_* (9) Name=train Began":                     func(n *logv1.Notice) { n.Event, n.ArrayJob, n.WholeArray = uint32(cluster.MailBegin), 9, true },
		"Array Summary Job_id=9_* (9) Name=train Failed, FAILED, ExitCode [0-3]": func(n *logv1.Notice) {
			n.Event, n.ArrayJob, n.WholeArray, n.Text = uint32(cluster.MailFail), 9, true, "FAILED, ExitCode [0-3]"
		},
		"Job_id=12 Name=a?Bcc: x Ended, Run time 00:00:10, COMPLETED, ExitCode 0": func(n *logv1.Notice) { n.Name = "a\nBcc: x" },
	} {
		if got := Subject(notice(change)); got != "Berth "+want {
			t.Errorf("got  %q\nwant %q", got, "Berth "+want)
		}
	}
}

// TestNothingIsInjected: whatever users choose, a message has the headers that it
// should have and no others, and its text is printable.
func TestNothingIsInjected(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringOf(rapid.SampledFrom([]rune("a\r\n: \x00\x1b.é\u2028=?"))))
		ns := []*logv1.Notice{notice(func(n *logv1.Notice) {
			n.Name, n.Comment, n.Detail, n.Text, n.Nodes = text.Draw(t, "name"), text.Draw(t, "comment"), text.Draw(t, "detail"), text.Draw(t, "text"), text.Draw(t, "nodes")
			n.Reason, n.Partition = "X", text.Draw(t, "partition")
		})}
		if rapid.Bool().Draw(t, "many") {
			ns = append(ns, ns[0], ns[0])
		}
		m := Mailer{Sender: "berth@example.org", Cluster: text.Draw(t, "cluster"), ClusterID: text.Draw(t, "id")}
		raw := m.message(ns, []string{"ann@example.org"}, testNow)
		got, err := mail.ReadMessage(bufio.NewReader(bytes.NewReader(raw)))
		if err != nil {
			t.Fatalf("%v in %q", err, raw)
		}
		want := []string{"Auto-Submitted", "Content-Transfer-Encoding", "Content-Type", "Date", "From", "Message-Id", "Mime-Version", "Subject", "To", "X-Berth-Notice"}
		if len(got.Header) != len(want) {
			t.Fatalf("headers %v", got.Header)
		}
		for _, k := range want {
			if len(got.Header[k]) != 1 {
				t.Fatalf("header %s: %q", k, got.Header[k])
			}
		}
		if s, err := new(mime.WordDecoder).DecodeHeader(got.Header.Get("Subject")); err != nil || strings.ContainsAny(s, "\r\n\x00\x1b") {
			t.Fatalf("subject %q, %v", s, err)
		}
		body, err := io.ReadAll(quotedprintable.NewReader(got.Body))
		if err != nil || bytes.ContainsAny(body, "\x00\x1b") {
			t.Fatalf("body %q, %v", body, err)
		}
	})
}

// script makes a stand-in for sendmail that keeps what it was given.
func script(t *testing.T, body string) (path, dir string) {
	t.Helper()
	dir = t.TempDir()
	path = filepath.Join(dir, "sendmail")
	if err := os.WriteFile(path, []byte("#!/bin/sh\ncd "+dir+"\n"+body), 0o755); err != nil {
		t.Fatal(err)
	}
	return path, dir
}

func TestSend(t *testing.T) {
	t.Parallel()
	path, dir := script(t, `printf '%s\n' "$@" >args; cat >message; env >env`)
	m := Mailer{Program: path, Sender: "berth@example.org", Domain: "example.org", Cluster: "lab", ClusterID: "lab-1"}
	n := notice(func(n *logv1.Notice) { n.Name, n.Comment = "größe", "two\nlines" })
	if err := m.Send(t.Context(), []*logv1.Notice{n}, testNow); err != nil {
		t.Fatal(err)
	}
	args, err := os.ReadFile(filepath.Join(dir, "args"))
	if err != nil || string(args) != "-i\n-f\nberth@example.org\n--\nann@example.org\n" {
		t.Errorf("%q, %v", args, err)
	}
	raw, err := os.ReadFile(filepath.Join(dir, "message"))
	if err != nil {
		t.Fatal(err)
	}
	msg, err := mail.ReadMessage(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	if s, _ := new(mime.WordDecoder).DecodeHeader(msg.Header.Get("Subject")); s != "Berth Job_id=12 Name=größe Ended, Run time 00:00:10, COMPLETED, ExitCode 0" {
		t.Errorf("subject %q", s)
	}
	if msg.Header.Get("X-Berth-Notice") != "lab-1-7" || msg.Header.Get("Auto-Submitted") != "auto-generated" {
		t.Errorf("%v", msg.Header)
	}
	body, _ := io.ReadAll(quotedprintable.NewReader(msg.Body))
	want := `Berth Job_id=12 Name=größe Ended, Run time 00:00:10, COMPLETED, ExitCode 0

Cluster    lab
Job        12 (größe)
User       ann
Partition  gpu
State      COMPLETED
Exit       ExitCode 0
Nodes      n[1-2]
Waited     00:01:01
Ran        00:00:10
At         2026-03-14 15:09:26 UTC
Comment    two?lines

More: berth show 12, berth why 12
`
	if d := cmp.Diff(want, string(body)); d != "" {
		t.Error(d)
	}
}

func TestSendFails(t *testing.T) {
	t.Parallel()
	path, _ := script(t, "echo 'no such\nuser' >&2; exit 67\n")
	ok, _ := script(t, "exit 0\n")
	later, _ := script(t, "sleep 300 & exit 0\n")
	for name, c := range map[string]struct {
		m     Mailer
		to    string
		final bool
		want  string
	}{
		"the program fails":   {Mailer{Program: path}, "ann", false, "exit status 67: no such user"},
		"it delivers later":   {Mailer{Program: later}, "ann", false, ""},
		"no program":          {Mailer{Program: "/nonexistent/sendmail"}, "ann", false, "no such file"},
		"no address":          {Mailer{Program: ok}, "-ann", true, "is not an address"},
		"another domain":      {Mailer{Program: ok, Domains: []string{"example.org"}}, "ann@example.net", true, "sends no mail to example.net"},
		"the domain, shouted": {Mailer{Program: ok, Domains: []string{"example.org"}}, "ann@EXAMPLE.org", false, ""},
		"a name":              {Mailer{Program: ok, Domains: []string{"example.org"}}, "ann", false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := c.m.Send(t.Context(), []*logv1.Notice{notice(func(n *logv1.Notice) { n.To = c.to })}, testNow)
			if c.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, errForGood) != c.final {
				t.Errorf("%v, want %q, final %t", err, c.want, c.final)
			}
		})
	}
}

func TestDigest(t *testing.T) {
	t.Parallel()
	var ns []*logv1.Notice
	for i := range 6 {
		ns = append(ns, notice(func(n *logv1.Notice) { n.Job = uint64(10 + i) }))
	}
	subject, body := (&Mailer{Cluster: "lab"}).digest(ns)
	if subject != "Berth 6 notices of jobs 10 to 15" || strings.Count(body, "COMPLETED") != 6 || !strings.Contains(body, fmt.Sprintf("%s Berth Job_id=10 ", testNow.Format("15:04:05"))) {
		t.Errorf("%s\n%s", subject, body)
	}
}

package daemon

import (
	"bytes"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/doctor"
)

func TestPrintFindings(t *testing.T) {
	lines := []doctor.Line{
		{Check: "kernel", Status: doctor.OK, Text: "6.8.0"},
		{Check: "swap", Status: doctor.Warn, Text: "odd", Fix: "mend it"},
		{Check: "runc", Status: doctor.Fail, Text: "old", Fix: "install another", Key: "runc-CVE-2024-21626"},
	}
	var b bytes.Buffer
	if err := printFindings(&b, "table", []doctor.Role{doctor.Agent}, lines); err != nil {
		t.Fatal(err)
	}
	const want = `ok    kernel  6.8.0
warn  swap    odd
              fix: mend it
fail  runc    old
              fix: install another
              the agent refuses to run; to accept it: unsafe: [runc-CVE-2024-21626] in agent.yaml
3 findings: 1 ok, 1 to look at, 1 to fix
`
	if b.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", b.String(), want)
	}
	b.Reset()
	if err := printFindings(&b, "json", []doctor.Role{doctor.Agent}, lines); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Roles []string
		Lines []doctor.Line
	}
	if err := json.Unmarshal(b.Bytes(), &got); err != nil || len(got.Lines) != 3 || got.Lines[2] != lines[2] || got.Roles[0] != "agent" {
		t.Errorf("%v: %+v", err, got)
	}
}

// TestDoctorCommand decides what a machine is by the files that are there, and
// its exit code by what it finds.
func TestDoctorCommand(t *testing.T) {
	run := func(args ...string) (string, error) {
		cmd := newDoctorCommand()
		var b bytes.Buffer
		cmd.SetOut(&b)
		cmd.SetErr(&b)
		none := filepath.Join(t.TempDir(), "none.yaml")
		cmd.SetArgs(append([]string{"--agent-config", none, "--coordinator-config", none}, args...))
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		err := cmd.ExecuteContext(t.Context())
		return b.String(), err
	}
	t.Setenv("BERTH_SOCKET", filepath.Join(t.TempDir(), "none.sock"))
	out, err := run("-o", "json")
	var exit *console.ExitError
	if !errors.As(err, &exit) || exit.Code != console.ExitFailed || !strings.Contains(out, `"login"`) {
		t.Errorf("a login node without a coordinator: %v\n%s", err, out)
	}
	out, err = run("--role", "agent")
	if !errors.As(err, &exit) || exit.Code != console.ExitFailed || !strings.Contains(out, "fail  configuration  agent: configuration: open ") {
		t.Errorf("an agent without a configuration: %v\n%s", err, out)
	}
	for _, args := range [][]string{{"--role", "king"}, {"-o", "xml"}} {
		if _, err := run(args...); err == nil || errors.As(err, &exit) {
			t.Errorf("%q: %v, want a usage error", args, err)
		}
	}
}

func TestCompareClocks(t *testing.T) {
	c, err := compare(func() (*timestamppb.Timestamp, error) { return timestamppb.New(time.Now().Add(3 * time.Second)), nil })
	if off := (c.Ahead - 3*time.Second).Abs(); err != nil || off > c.Bound {
		t.Errorf("%+v, %v: off by %v", c, err, off)
	}
	if _, err := compare(func() (*timestamppb.Timestamp, error) { return nil, nil }); err == nil {
		t.Error("a coordinator that does not say passes")
	}
}

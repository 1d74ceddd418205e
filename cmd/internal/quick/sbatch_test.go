package quick_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/berth-scheduler/berth/cmd/internal/batch"
	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	"github.com/berth-scheduler/berth/cmd/internal/quick"
)

// site is a coordinator, and both programs' surroundings, which are equal.
type site struct {
	*clitest.World
	fake      *clitest.Fake
	out, errs bytes.Buffer
	env       *quick.Env
	left      map[string]string
}

func newSite(t *testing.T) *site {
	s := &site{World: clitest.NewWorld(t), fake: clitest.NewFake(), left: map[string]string{}}
	s.Serve("/a", s.fake)
	e := s.Env
	s.env = &quick.Env{
		Caller: batch.Caller{Getwd: e.Getwd, Hostname: e.Hostname, Environ: e.Environ, Now: e.Now}, UID: e.User(),
		Getenv: e.Getenv, Setenv: func(k, v string) error { s.left[k] = v; return nil }, Sockets: e.Sockets, Dial: e.Dial,
		RequestID: func() (string, error) { return e.RequestID(), nil }, Stdout: &s.out, Stderr: &s.errs,
	}
	return s
}

// script writes one with a header.
func (s *site) script(lines string) string {
	name := filepath.Join(s.T.TempDir(), "train.sh")
	if err := os.WriteFile(name, []byte("#!/bin/sh\n"+lines+"\ntrue\n"), 0o600); err != nil {
		s.T.Fatal(err)
	}
	return name
}

// TestSameAsBerth: what the small program submits and says is what berth sbatch does.
func TestSameAsBerth(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		lines   string
		args    []string
		environ []string
		warns   []string // of the coordinator
	}{
		"plain":          {},
		"all day":        {lines: "#SBATCH -J train --gpus=2 -t 1:00:00 --mem=16G -c 4\n#SBATCH -o logs-%j.out", args: []string{"-H"}},
		"arguments":      {args: []string{"--parsable", "SCRIPT", "--epochs", "3", "-H"}},
		"gang":           {lines: "#SBATCH -N 2 --ntasks-per-node=2 --gpus-per-node=4\n#SBATCH -w n[1-2] -x n7 -C a100"},
		"range":          {lines: "#SBATCH --nodes=1-4 --gres=gpu:1"},
		"array":          {args: []string{"-a", "1-9%2"}},
		"held back":      {args: []string{"--begin=now+2hours", "-d", "afterok:17:18,singleton", "--kill-on-invalid-dep=yes"}},
		"due":            {args: []string{"--deadline=2026-03-15T12:00"}},
		"signal":         {args: []string{"--signal=B:USR1@60", "-t", "10", "--open-mode=truncate", "--requeue", "--nice=5"}},
		"mail":           {args: []string{"--mail-type=END,FAIL", "--mail-user=ann@example.org"}},
		"environment":    {args: []string{"--export=ALL,X=1"}, environ: []string{"SBATCH_PARTITION=gpu", "SBATCH_ACCOUNT=bio", "MY_TOKEN=x"}},
		"nothing of it":  {args: []string{"--export=NONE", "-D", "/scratch/../tmp"}},
		"clock":          {args: []string{"--gpus=1", "--gpu-freq=low"}},
		"quiet":          {args: []string{"-Q", "--comment=a b"}, warns: []string{"partition gpu: this cluster has no partitions\x1b[2J"}},
		"wrap":           {args: []string{"--wrap=echo hi", "-c", "2"}},
		"no such folder": {args: []string{"-o", "/no/such/folder/%x.out"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.fake.Warnings = tc.warns
			if tc.environ != nil {
				all := append(s.Env.Environ(), tc.environ...)
				s.Env.Environ = func() []string { return all }
				s.env.Environ = s.Env.Environ
			}
			args, file := tc.args, s.script(tc.lines)
			switch i := strings.Index(strings.Join(args, " "), "SCRIPT"); {
			case name == "wrap":
			case i < 0:
				args = append(args, file)
			default:
				for i := range args {
					args[i] = strings.Replace(args[i], "SCRIPT", file, 1)
				}
			}
			if code := s.Run(append([]string{"sbatch"}, args...)...); code != 0 {
				t.Fatalf("berth sbatch: %d, %s", code, s.Errs.String())
			}
			s.fake.Submitted = map[string][]uint64{} // forget it
			code, done := quick.Sbatch(args, s.env)
			if code != 0 || !done || len(s.fake.Requests) != 2 {
				t.Fatalf("done %t with %d; %d requests", done, code, len(s.fake.Requests))
			}
			if d := cmp.Diff(s.fake.Requests[0], s.fake.Requests[1], protocmp.Transform()); d != "" {
				t.Error(d)
			}
			if d := cmp.Diff(s.Out.String()+s.Errs.String(), s.out.String()+s.errs.String()); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestLeftToBerth: of whatever has to be explained, nothing is said and nothing submitted.
func TestLeftToBerth(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		lines string
		args  []string
	}{
		"standard input":    {args: []string{"-"}},
		"own option":        {args: []string{"--gpu-mem=4G", "SCRIPT"}},
		"own line":          {lines: "#BERTH --gpu-mem=4G"},
		"shortened":         {args: []string{"--job=x", "SCRIPT"}},
		"shortened line":    {lines: "#SBATCH --job=x"},
		"unknown":           {args: []string{"--no-such", "SCRIPT"}},
		"ignored":           {lines: "#SBATCH --contiguous"},
		"refused":           {lines: "#SBATCH --gres=gpu:99"},
		"late":              {lines: "true\n#SBATCH -c 2"},
		"type":              {lines: "#SBATCH --gres=gpu:a100:1"},
		"wait":              {args: []string{"-W", "SCRIPT"}},
		"verbose":           {args: []string{"-v", "SCRIPT"}},
		"help":              {args: []string{"--help"}},
		"test":              {args: []string{"--test-only", "SCRIPT"}},
		"cluster":           {args: []string{"-M", "berth", "SCRIPT"}},
		"wrap and script":   {args: []string{"--wrap=true", "SCRIPT"}},
		"no file":           {args: []string{"/no/such/script.sh"}},
		"folder":            {args: []string{"/"}},
		"bad value":         {args: []string{"-t", "soon", "SCRIPT"}},
		"heterogeneous":     {lines: "#SBATCH -c 2\n#SBATCH hetjob\n#SBATCH -c 4"},
		"loader":            {args: []string{"--export=LD_PRELOAD=/x.so", "SCRIPT"}},
		"of another system": {lines: "#PBS -l nodes=2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			args, file := tc.args, s.script(tc.lines)
			if args == nil {
				args = []string{"SCRIPT"}
			}
			for i := range args {
				args[i] = strings.Replace(args[i], "SCRIPT", file, 1)
			}
			if code, done := quick.Sbatch(args, s.env); done || code != 0 || len(s.fake.Requests) > 0 || s.out.Len()+s.errs.Len() > 0 || len(s.left) > 0 {
				t.Errorf("done %t with %d, %d requests, said %q %q, left %v", done, code, len(s.fake.Requests), s.out.String(), s.errs.String(), s.left)
			}
		})
	}
}

// TestOutcomeUnknown: what may have been submitted is asked again under the same id, of
// whichever program this one becomes, and of no other process.
func TestOutcomeUnknown(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(*site){
		"refused": func(s *site) {
			s.fake.Hook = func(context.Context, string) error { return status.Error(codes.ResourceExhausted, "quota") }
		},
		"nobody listens": func(s *site) {
			s.env.Dial = func(context.Context, string) (net.Conn, error) { return nil, errors.New("no") }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			fail(s)
			if _, done := quick.Sbatch([]string{s.script("")}, s.env); done || s.out.Len()+s.errs.Len() > 0 {
				t.Fatalf("done %t, said %q %q", done, s.out.String(), s.errs.String())
			}
			get := func(k string) string { return s.left[k] }
			if id := batch.TakeID(get); id != s.Env.RequestID() {
				t.Errorf("left %v, of which %q is taken", s.left, id)
			}
			for k, v := range s.left {
				s.left[k] = "1" + v // another process
			}
			if id := batch.TakeID(get); id != "" {
				t.Errorf("another process takes %q", id)
			}
		})
	}
}

// TestSystem: what is asked of the machine is there.
func TestSystem(t *testing.T) {
	t.Parallel()
	e := quick.System()
	a, err := e.RequestID()
	b, err2 := e.RequestID()
	if len(a) != 32 || a == b || err != nil || err2 != nil {
		t.Errorf("request ids %q and %q, %v, %v", a, b, err, err2)
	}
	if len(e.Sockets()) == 0 || e.Now().Before(time.Unix(1, 0)) {
		t.Error("no socket, or no time")
	}
}

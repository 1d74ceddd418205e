package cli_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/berth-scheduler/berth/cmd/internal/cli"
	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/frame"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
)

// asProgram makes the test binary be the program itself.
const asProgram = "BERTH_CLI_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		os.Exit(frame.Main(os.Args[1:], console.SystemEnv(), cli.Program()))
	}
	os.Exit(m.Run())
}

// program is a real process of ours that talks to f over a real socket.
func program(t *testing.T, f *clitest.Fake, args ...string) *exec.Cmd {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	apirpc.RegisterJobServiceServer(s, f)
	apirpc.RegisterClusterServiceServer(s, f)
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Serve(l) })
	t.Cleanup(func() { s.Stop(); wg.Wait() })
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Env = []string{asProgram + "=1", "BERTH_SOCKET=" + socket, "USER=ann", "COLUMNS=0"}
	return cmd
}

func exitCode(t *testing.T, err error) int {
	t.Helper()
	var x *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &x):
		return x.ExitCode()
	}
	t.Fatal(err)
	return -1
}

func TestProcessWithoutTerminalOrHome(t *testing.T) {
	t.Parallel()
	cmd := program(t, clitest.NewFake(), "queue")
	out, err := cmd.CombinedOutput() // standard input is /dev/null; HOME and TERM are not set
	if err != nil || bytes.ContainsRune(out, '\x1b') || !bytes.HasPrefix(out, []byte("JOBID")) {
		t.Errorf("%v: %s", err, out)
	}
}

func TestProcessStandardOutputFull(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("no /dev/full here:", err)
	}
	defer full.Close()
	cmd := program(t, clitest.NewFake(), "queue")
	var errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = full, &errs
	if code := exitCode(t, cmd.Run()); code != console.ExitFailed || !strings.Contains(errs.String(), "no space left on device") {
		t.Errorf("exit code %d: %s", code, errs.String())
	}
}

func TestProcessReaderGone(t *testing.T) {
	t.Parallel()
	cmd := program(t, clitest.NewFake(), "queue")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	var errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = w, &errs
	err = cmd.Run()
	w.Close()
	if err == nil || errs.Len() > 0 {
		t.Errorf("must end quietly and not with success: %v: %s", err, errs.String())
	}
}

func TestProcessInterruptedSubmit(t *testing.T) {
	t.Parallel()
	f := clitest.NewFake()
	arrived := make(chan struct{})
	var once sync.Once
	f.Hook = func(ctx context.Context, _ string) error {
		once.Do(func() { close(arrived) })
		<-ctx.Done()
		return ctx.Err()
	}
	cmd := program(t, f, "submit", "-D", "/tmp", "--", "true")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-arrived:
	case <-time.After(2 * time.Minute):
		t.Error("the request never arrived")
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Error(err)
	}
	code := exitCode(t, cmd.Wait())
	f.Mu.Lock()
	id := f.Requests[0].GetRequestId()
	f.Mu.Unlock()
	if code != console.ExitUnknown || !strings.Contains(errs.String(), "--request-id "+id) {
		t.Errorf("exit code %d, request id %s: %s", code, id, errs.String())
	}
}

// TestProcessInterruptedQuietly has the first Ctrl-C end what waits for a script to be
// typed, and what lists again and again, without a word, as Slurm's programs end.
func TestProcessInterruptedQuietly(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"sbatch"}, {"submit", "-"}, {"squeue", "-i", "3600"}} {
		t.Run(args[0], func(t *testing.T) {
			t.Parallel()
			cmd := program(t, clitest.NewFake(), args...)
			var errs bytes.Buffer
			cmd.Stderr = &errs
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if args[0] == "squeue" {
				_, err = out.Read(make([]byte, 1)) // it has listed once
			} else {
				_, err = in.Write(make([]byte, 70<<10)) // more than a pipe holds: it reads
			}
			if err != nil {
				t.Error(err)
			}
			if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
				t.Error(err)
			}
			if code := exitCode(t, cmd.Wait()); code != 130 || errs.Len() > 0 {
				t.Errorf("exit code %d: %s", code, errs.String())
			}
		})
	}
}

// BenchmarkProcess is one whole run of the program: start, one call, end.
func BenchmarkProcess(b *testing.B) {
	for _, args := range [][]string{{"version"}, {"queue"}} {
		b.Run(args[0], func(b *testing.B) {
			dir := b.TempDir()
			socket := filepath.Join(dir, "s")
			l, err := net.Listen("unix", socket)
			if err != nil {
				b.Fatal(err)
			}
			s := grpc.NewServer()
			apirpc.RegisterJobServiceServer(s, clitest.NewFake())
			var wg sync.WaitGroup
			wg.Go(func() { _ = s.Serve(l) })
			defer func() { s.Stop(); wg.Wait() }()
			self, err := os.Executable()
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				cmd := exec.Command(self, args...)
				cmd.Env = []string{asProgram + "=1", "BERTH_SOCKET=" + socket, "USER=ann"}
				if out, err := cmd.CombinedOutput(); err != nil {
					b.Fatal(err, string(out))
				}
			}
		})
	}
}

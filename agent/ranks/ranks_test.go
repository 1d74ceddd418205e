package ranks

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/agent/launch"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == launch.RanksArg {
		os.Exit(Main(os.Args[2:], os.Stderr))
	}
	os.Exit(m.Run())
}

// command runs a script once for each of n ranks, the first being first.
func command(t *testing.T, cfg launch.Ranks, script string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	args := cfg.Args(os.Args[0], []string{"/bin/sh", "-c", script})
	cmd := exec.Command(args[0], args[1:]...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	return cmd, &out
}

func exitCode(err error) int {
	if err == nil {
		return 0
	}
	if x, ok := err.(*exec.ExitError); ok {
		return x.ExitCode()
	}
	return -1
}

// TestEachRankKnowsItself: every process has its own rank, and all of them run.
func TestEachRankKnowsItself(t *testing.T) {
	t.Parallel()
	cmd, out := command(t, launch.Ranks{Tasks: 3, First: 6, Slurm: true}, "echo $RANK $LOCAL_RANK $BERTH_RANK $SLURM_PROCID $SLURM_LOCALID")
	if err := cmd.Run(); err != nil {
		t.Fatal(err, out)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	slices.Sort(lines)
	if want := []string{"6 0 6 6 0", "7 1 7 7 1", "8 2 8 8 2"}; !slices.Equal(lines, want) {
		t.Errorf("got %q, want %q", lines, want)
	}
}

// TestFirstFailureIsTold: its code is that of all, and the others end with it.
func TestFirstFailureIsTold(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, script string
		want         int
	}{
		{"all are good", "exit 0", 0},
		{"one fails", "test $LOCAL_RANK = 1 && exit 7; exec sleep 600", 7},
		{"one is killed", "test $LOCAL_RANK = 2 && kill -9 $$; exec sleep 600", 128 + 9},
		{"the others do not listen", "test $LOCAL_RANK = 0 && { sleep 0.3; exit 5; }; trap '' TERM; while :; do sleep 0.05; done", 5},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			cmd, out := command(t, launch.Ranks{Tasks: 3, Grace: 500 * time.Millisecond}, tc.script)
			cmd.WaitDelay = time.Second // a killed shell's sleep holds the pipe a little longer
			if got := exitCode(cmd.Run()); got != tc.want {
				t.Errorf("code %d, want %d: %s", got, tc.want, out)
			}
			if took := time.Since(began); took > 60*time.Second {
				t.Errorf("the others ran for %s", took)
			}
		})
	}
}

func TestWhatDoesNotStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{"no-such-program-" + filepath.Base(dir): 127, plain: 126} {
		args := launch.Ranks{Tasks: 2}.Args(os.Args[0], []string{name})
		if got := exitCode(exec.Command(args[0], args[1:]...).Run()); got != want {
			t.Errorf("%s: code %d, want %d", name, got, want)
		}
	}
	if got := exitCode(exec.Command(os.Args[0], launch.RanksArg, "{", "--", "true").Run()); got != 125 {
		t.Errorf("a damaged configuration: code %d", got)
	}
}

// TestSignalsReachEveryRank: what the first process is told, all are.
func TestSignalsReachEveryRank(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd, out := command(t, launch.Ranks{Tasks: 2, Grace: time.Minute},
		"trap 'echo saved > "+dir+"/s$RANK; exit 0' USR1; touch "+dir+"/up$RANK; while :; do sleep 0.05; done")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	until(t, func() bool { return there(dir, "up0") && there(dir, "up1") })
	if err := cmd.Process.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err, out)
	}
	if !there(dir, "s0") || !there(dir, "s1") {
		t.Error("a rank was not told")
	}
}

// TestRanksDieWithTheirParent: nothing is left when somebody kills it.
func TestRanksDieWithTheirParent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd, _ := command(t, launch.Ranks{Tasks: 2}, "echo $$ > "+dir+"/p$RANK.new; mv "+dir+"/p$RANK.new "+dir+"/p$RANK; exec sleep 600")
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	until(t, func() bool { return there(dir, "p0") && there(dir, "p1") })
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	for _, name := range []string{"p0", "p1"} {
		pid, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		until(t, func() bool {
			stat, err := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/stat")
			return err != nil || strings.Contains(string(stat), ") Z ")
		})
	}
}

// TestFilesOfTheirOwn: with a mark in the path each rank writes its own file.
func TestFilesOfTheirOwn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd, out := command(t, launch.Ranks{Tasks: 2, First: 2, Stdout: []byte(dir + "/out-" + launch.RankMark)}, "echo I am $RANK; echo err >&2")
	if err := cmd.Run(); err != nil {
		t.Fatal(err, out)
	}
	for _, r := range []string{"2", "3"} {
		got, err := os.ReadFile(filepath.Join(dir, "out-"+r))
		if err != nil || string(got) != "I am "+r+"\nerr\n" {
			t.Errorf("rank %s wrote %q, %v", r, got, err)
		}
	}
}

func there(dir, name string) bool {
	_, err := os.Stat(filepath.Join(dir, name))
	return err == nil
}

func until(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatal("it did not come to pass in two minutes")
}

package whatif_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/whatif"
	"github.com/berth-scheduler/berth/coordinator/web"
)

// program writes a shell script that stands for berth-lab.
func program(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "berth-lab")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestBounds: it runs at the least priority, with bounded memory and time and on one core,
// none of the coordinator's environment, and gets the answers.
func TestBounds(t *testing.T) {
	t.Setenv("BERTH_SOCKET", "/secret")
	path := program(t, `read first; echo "$first $(nice) $(ulimit -d) $(ulimit -t) $(ulimit -f) $GOMAXPROCS $GOMEMLIMIT [$BERTH_SOCKET] $(pwd) $*"`)
	out, err := whatif.By(t.Context(), path, &web.Simulation{Policy: "ffd+sjf", MaxShares: 2, Answers: []byte("answers\n")})
	const want = "answers 19 1048576 90 0 1 640MiB [] / sim what-if --no-timing --parallel 1 -o json --policy ffd+sjf --max-shares 2\n"
	if err != nil || string(out) != want {
		t.Errorf("%q, %v\nwant %q", out, err, want)
	}
}

// TestHowItEnds: what goes wrong is said in words, whatever the program does.
func TestHowItEnds(t *testing.T) {
	t.Parallel()
	big := []byte(strings.Repeat("x", 1<<20))
	for name, c := range map[string]struct{ script, says string }{
		"in its words":         {"echo 'berth: no job ran' >&2; echo more >&2; exit 3", "the simulator: no job ran"},
		"without any":          {"exit 4", "the simulator: exit status 4"},
		"short of memory":      {"echo 'runtime: cannot allocate memory' >&2; exit 2", "more than the 1024 MiB"},
		"killed":               {"kill -9 $$", "killed"},
		"much output":          {"cat >/dev/null; head -c 2000000 /dev/zero", "more than 1048576 bytes"},
		"reads nothing at all": {"exec <&-; exit 5", "exit status 5"},
	} {
		_, err := whatif.By(t.Context(), program(t, c.script), &web.Simulation{Policy: "ffd", Answers: big})
		e, ours := errors.AsType[*cluster.Error](err)
		if !ours || e.Code != cluster.CodeUnavailable || !strings.Contains(e.Msg, c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
	_, err := whatif.By(t.Context(), filepath.Join(t.TempDir(), "none"), &web.Simulation{})
	if err == nil || !strings.Contains(err.Error(), "start the simulator") {
		t.Errorf("where there is none: %v", err)
	}
	if _, err = whatif.Simulate(t.Context(), &web.Simulation{}); err == nil || !strings.Contains(err.Error(), "install the package berth-lab") {
		t.Errorf("beside this test there is none: %v", err)
	}
}

// TestLeft: who does not wait for it takes it along.
func TestLeft(t *testing.T) {
	t.Parallel()
	ctx, leave := context.WithCancel(t.Context())
	began := time.Now()
	time.AfterFunc(50*time.Millisecond, leave)
	if _, err := whatif.By(ctx, program(t, "exec sleep 600"), &web.Simulation{Answers: []byte("x")}); err == nil || time.Since(began) > 5*time.Minute {
		t.Errorf("%v after %s", err, time.Since(began))
	}
}

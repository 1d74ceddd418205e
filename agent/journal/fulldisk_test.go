package journal

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// TestFullDisk: what does not fit is an error that says where and what to do, all
// that was taken on before is there, whether the agent goes on or starts again, and
// as soon as there is room the journal goes on.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=512k"); err != nil {
		if os.Geteuid() == 0 && os.Getenv("CI") != "" {
			t.Fatalf("cannot mount a small disk: %v", err)
		}
		t.Skipf("needs to mount a small disk: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 384<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	j := open(t, dir)
	take := func(job uint64) error {
		return j.Begin(&nodev1.Assignment{Job: job, Attempt: 1, Token: job, Name: strings.Repeat("x", 5000)})
	}
	job := uint64(1)
	for ; take(job) == nil; job++ {
		if job == 100 {
			t.Fatal("500 kB fit into 128 KiB")
		}
	}
	has := func(j *Journal, until uint64, what string) {
		t.Helper()
		have := j.Records()
		for n := uint64(1); n < until; n++ {
			if have[cluster.AttemptID{Job: cluster.JobID(n), No: 1}].Assignment.GetToken() != n {
				t.Errorf("%s: job %d of %d is not there", what, n, until-1)
			}
		}
	}
	for range 3 {
		err := take(job)
		if err == nil {
			t.Fatal("what did not fit does now")
		}
		for _, want := range []string{Path(dir), "no space left", "make room"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%v: does not say %q", err, want)
			}
		}
	}
	has(j, job, "on a full disk")
	if j.End(&nodev1.Report{Job: 1, Attempt: 1, Exit: &nodev1.Exit{Code: 3}}) == nil {
		t.Error("an end was taken on without room")
	}
	if _, err := os.Stat(Path(dir) + ".new"); err == nil {
		t.Error("part of a new journal takes room")
	}

	crashed := t.TempDir()
	data, err := os.ReadFile(Path(dir))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(Path(crashed), data, 0o600); err != nil {
		t.Fatal(err)
	}
	has(open(t, crashed), job, "after a crash on a full disk")
	if _, err := Open(dir); err == nil || !noRoom(err) {
		t.Errorf("it starts on a full disk, or says: %v", err)
	}

	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if err := j.End(&nodev1.Report{Job: 1, Attempt: 1, Exit: &nodev1.Exit{Code: 3}}); err != nil {
		t.Fatalf("with room again: %v", err)
	}
	if err := take(job); err != nil {
		t.Fatalf("with room again: %v", err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j = open(t, dir)
	has(j, job+1, "with room again")
	if end := j.Records()[cluster.AttemptID{Job: 1, No: 1}].End; end.GetExit().GetCode() != 3 {
		t.Errorf("the end of job 1 is %v", end)
	}
}

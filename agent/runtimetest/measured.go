package runtimetest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-scheduler/berth/agent/cgroup"
	"github.com/berth-scheduler/berth/agent/profile"
	"github.com/berth-scheduler/berth/cluster"
)

// What the job of testMeasured uses.
const (
	usesAnon   = 96  // MiB of its own memory
	usesShared = 24  // MiB of an unlinked file in memory
	usesFile   = 40  // MiB written to storage, and read from there
	usesCPU    = 1.5 // seconds
	// slackMiB is what a shell and an interpreter take in addition.
	slackMiB = 16
)

const measuredJob = `
dd if=/dev/zero of=big bs=1M count=%d conv=fsync 2>/dev/null || exit 1
dd if=big iflag=nocache count=0 2>/dev/null || exit 2
cat big >/dev/null
exec perl -e '
	open Z, "<", "/dev/zero" or die; sysread(Z, $anon, %d << 20) == %d << 20 or die;
	open S, "+>", "/dev/shm/berth-measured-$$" or die; unlink "/dev/shm/berth-measured-$$";
	for (1 .. %d) { syswrite(S, substr($anon, 0, 1 << 20)) == 1 << 20 or die }
	while (1) { my ($u, $s, $cu, $cs) = times; last if $u + $s + $cu + $cs >= %g }
	$| = 1; print "used\n"; sleep 1 while ! -e "gate"'
`

// testMeasured has a job use known amounts, and compares what the recorder saw and what the
// runtime reports at the end.
func testMeasured(h *harness) {
	if _, err := exec.LookPath("perl"); err != nil {
		h.Skip("needs perl: ", err)
	}
	rec := profile.New(filepath.Join(h.dir, "profiles.json"), slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(h.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = rec.Run(ctx) }) // ends with ctx
	defer wg.Wait()
	defer cancel()
	l := h.sh(fmt.Sprintf(measuredJob, usesFile, usesAnon, usesAnon, usesShared, usesCPU))
	l.MemBytes = 512 << 20
	began := time.Now()
	h.start(l)
	a := profile.Attempt{ID: l.ID, Started: began, PID: h.inspect(l.ID).PID}
	if rt, ok := h.rt.(interface {
		Group(cluster.AttemptID) *cgroup.Group
	}); ok {
		a.Group = rt.Group(l.ID)
	}
	rec.Begin(a)
	h.printed(l.Stdout)
	used := time.Now() // and a sample or two after that
	h.until("the recorder to have looked", func() bool { return rec.Looks(l.ID, used) >= 2 })
	h.write("gate", "", 0o644)
	task := h.wait(l.ID)
	res := rec.End(l.ID, task.Ended)
	all := time.Since(began).Seconds() // it may be sampled until then
	if task.ExitCode != 0 || res == nil {
		h.Fatalf("got %+v, measured %+v; it printed %q", task, res, h.printed(l.Stdout))
	}
	mib := func(n int64) float64 { return float64(n) / (1 << 20) }
	within := func(what string, got, from, to float64) {
		h.Helper()
		if got < from || got > to {
			h.Errorf("%s: got %.1f, want %.1f to %.1f", what, got, from, to)
		}
	}
	within("MiB of memory, sampled", mib(res.HostMemPeak), usesAnon+usesShared, usesAnon+usesShared+slackMiB)
	within("MiB of memory, the kernel's mark with page cache", mib(task.MemPeakBytes), usesAnon+usesShared+usesFile, 512)
	within("seconds of CPU", task.CPUTime.Seconds(), usesCPU, usesCPU+1.5)
	within("seconds looked at", float64(res.Profile.SampledMs)/1000, 1, all)
	if onDisk, err := h.onDisk(); err != nil || !onDisk {
		h.Logf("storage is not measured: %s is not on a disk (%v)", h.out, err)
		return
	}
	io := task.IO.Max(res.IO())
	within("MiB written", mib(io.Written), usesFile, usesFile+1)
	within("MiB read", mib(io.Read), usesFile, usesFile+slackMiB) // programs that were not in memory
	within("MiB written, as the runtime tells", mib(task.IO.Written), usesFile, usesFile+1)
}

// onDisk reports whether what jobs write reaches a block device.
func (h *harness) onDisk() (bool, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(h.out, &st); err != nil {
		return false, errors.Join(errors.New("statfs"), err)
	}
	return st.Type != unix.TMPFS_MAGIC && st.Type != unix.RAMFS_MAGIC, nil
}

package coordinator_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-scheduler/berth/coordinator/coordtest"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
)

// smallDisk puts an empty file system over a folder.
func smallDisk(t *testing.T, dir, size string) {
	t.Helper()
	if err := unix.Mount("none", dir, "tmpfs", 0, "mode=0700,size="+size); err != nil {
		if os.Geteuid() == 0 && os.Getenv("CI") != "" {
			t.Fatalf("cannot mount a small disk: %v", err)
		}
		t.Skipf("needs to mount a small disk: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
}

// fill takes all room of a folder but for some, and returns a function that gives
// it back.
func fill(t *testing.T, dir string, leave uint64) (empty func()) {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, fmt.Sprintf("ballast-%d", leave))
	free := st.Bavail * uint64(st.Bsize)
	if err := os.WriteFile(path, make([]byte, free-min(free, leave)), 0o600); err != nil && !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	return func() {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

func onlyMember(t *testing.T, c *coordtest.Cluster, want func(*apiv1.Member) bool) {
	t.Helper()
	show(t, apirpc.NewClusterServiceClient(c.Dial(0, "gate", "g")), func(s *apiv1.GetStatusResponse) bool { return want(s.Members[0]) })
}

// TestADiskThatFillsUp: on a real file system, users are refused long before the log
// meets its end, the coordinator lives through none being left, and all that was
// acknowledged is there afterwards, and after a restart.
func TestADiskThatFillsUp(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	c.Stop(0)
	smallDisk(t, c.Dir(0), "64m")
	c.Restart(0)
	c.Leader()
	ids := cancelled(t, c, 0, 20)
	submit := func() error {
		_, err := apirpc.NewJobServiceClient(c.Dial(0, "gate", "g")).SubmitJobs(as(t, alice), &apiv1.SubmitJobsRequest{RequestId: rand.Text(), Jobs: []*apiv1.JobSpec{spec(0)}})
		return err
	}
	some := fill(t, c.Dir(0), 2<<20)
	onlyMember(t, c, func(m *apiv1.Member) bool { return strings.Contains(m.DiskProblem, "new jobs") })
	if err := submit(); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), c.Dir(0)) {
		t.Errorf("submit on a disk that is almost full: %v", err)
	}
	rest := fill(t, c.Dir(0), 0)
	onlyMember(t, c, func(m *apiv1.Member) bool {
		return strings.Contains(m.DiskProblem, "nothing is written") && m.DiskFree == 0
	})
	eventuallyAll(t, c, 0, ids)
	rest()
	some()
	onlyMember(t, c, func(m *apiv1.Member) bool { return m.DiskProblem == "" })
	ids = append(ids, cancelled(t, c, 0, 20)...)
	c.Kill(0)
	c.Restart(0)
	c.Leader()
	eventuallyAll(t, c, 0, ids)
}

// TestAFullDiskOfTheHistory: jobs that end while their history cannot be written are
// told of all the same, through snapshots that forget them and a restart, and are
// written when there is room.
func TestAFullDiskOfTheHistory(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1, KeepFinished: 15, SnapshotThreshold: 64, SnapshotInterval: 100 * time.Millisecond, CatchUp: 500 * time.Millisecond})
	dir := filepath.Join(c.Dir(0), "history")
	c.Stop(0)
	smallDisk(t, dir, "256k")
	c.Restart(0)
	c.Leader()
	ids := cancelled(t, c, 0, 40)
	eventuallyAll(t, c, 0, ids)
	empty := fill(t, dir, 0)
	ids = append(ids, cancelled(t, c, 0, 1000)...)
	failing := func(m *apiv1.Member) bool { return strings.Contains(m.HistoryProblem, "no space left") }
	onlyMember(t, c, failing)
	eventuallyAll(t, c, 0, ids)
	c.Kill(0)
	c.Restart(0)
	c.Leader()
	onlyMember(t, c, failing)
	eventuallyAll(t, c, 0, ids)
	empty()
	onlyMember(t, c, func(m *apiv1.Member) bool { return m.HistoryProblem == "" && m.HistoryJobs == uint64(len(ids)) })
	eventuallyAll(t, c, 0, ids)
}

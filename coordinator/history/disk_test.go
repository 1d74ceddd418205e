package history

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-scheduler/berth/cluster"
)

// TestFullDisk: what does not fit is an error that changes nothing, and is
// written once there is room.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Skipf("needs to mount a small disk: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	s, _ := testStore(t, filepath.Join(dir, "h"), 100)
	full := filepath.Join(dir, "ballast")
	if err := os.WriteFile(full, make([]byte, 100<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	at, failed := uint64(0), uint64(0)
	for ; failed == 0 && at < 2000; at += 10 {
		if s.Append(at+10, finishedFrom(at+1, at+10)) != nil {
			failed = at + 10
			break
		}
	}
	if failed == 0 {
		t.Fatal("2,000 jobs fit into 156 KiB")
	}
	have := s.UpTo()
	if st := s.Stats(); st.Failures == 0 || st.Err == nil || have > failed {
		t.Fatalf("a full disk is not told: %+v", st)
	}
	checkAll(t, s, have)
	for range 3 { // it stays as it is, however often it is tried
		if err := s.Append(failed, finishedFrom(have+1, failed)); err == nil {
			break
		}
		checkAll(t, s, s.UpTo())
	}
	if err := os.Remove(full); err != nil {
		t.Fatal(err)
	}
	upTo := s.UpTo()
	mustAppend(t, s, failed+5, finishedFrom(upTo+1, failed+5))
	if st := s.Stats(); st.Err != nil || len(st.Holes) > 0 {
		t.Fatalf("after there was room: %+v", st)
	}
	checkAll(t, s, failed+5)
}

func checkAll(t *testing.T, s *Store, upTo uint64) {
	t.Helper()
	var want []cluster.JobID
	for i := uint64(1); i <= upTo; i++ {
		want = append(want, cluster.JobID(i))
	}
	if got := idsOf(t, s, Query{OldestFirst: true}); !slices.Equal(got, want) {
		t.Fatalf("%d jobs, want %d", len(got), len(want))
	}
}

// TestDamageIsSaid: damage is told in the log by the name of the file.
func TestDamageIsSaid(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, _ := testStore(t, dir, 10)
	for at := uint64(0); at < 30; at += 10 {
		mustAppend(t, s, at+10, finishedFrom(at+1, at+10))
	}
	_ = s.Close()
	if err := os.WriteFile(filepath.Join(dir, segmentName(10, 20)), []byte("nothing of this"), 0o600); err != nil {
		t.Fatal(err)
	}
	again, log := testStore(t, dir, 10)
	st := again.Stats()
	if len(st.Holes) != 1 || st.Holes[0] != (Span{10, 20}) || st.Jobs != 20 || st.Damaged != 1 {
		t.Fatalf("%+v", st)
	}
	if !strings.Contains(log.String(), segmentName(10, 20)) || !strings.Contains(log.String(), "damaged and put aside") {
		t.Fatalf("the log says %q", log.String())
	}
}

// TestQueries: what is asked for comes, and nothing else, in files and in the
// head alike.
func TestQueries(t *testing.T) {
	t.Parallel()
	s, _ := testStore(t, t.TempDir(), 64)
	jobs := finishedFrom(1, 300)
	mustAppend(t, s, 300, jobs)
	mid := jobs[150].Ended
	for name, q := range map[string]Query{
		"user":      {Users: []string{"user07"}},
		"uid":       {Users: []string{"1007", "user09"}},
		"state":     {States: []cluster.JobState{cluster.JobFailed, cluster.JobTimeout}},
		"partition": {Partitions: []string{"long"}, Names: []string{"train-4", "train-5", "train-7"}},
		"time":      {EndedFrom: mid, EndedBefore: mid + 3_600_000_000},
		"submitted": {SubmittedBefore: jobs[40].Submitted},
		"ids":       {IDs: []cluster.JobID{3, 299, 77, 5000}},
		"limit":     {Limit: 17},
		"oldest":    {OldestFirst: true, Limit: 90, Users: []string{"user01", "user02"}},
		"before":    {Before: Place{200, 200}, Limit: 20},
		"after":     {Before: Place{200, 200}, OldestFirst: true},
		"none":      {Accounts: []string{"nobody"}},
	} {
		var want []cluster.JobID
		for i := range jobs {
			j := jobs[i]
			if !q.OldestFirst {
				j = jobs[len(jobs)-1-i]
			}
			row := RowOf(j)
			if q.Match(&row) && (q.Limit == 0 || len(want) < q.Limit) {
				want = append(want, j.ID)
			}
		}
		if got := idsOf(t, s, q); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
		if name != "none" && len(want) == 0 {
			t.Errorf("%s chooses nothing", name)
		}
	}
}

// TestScrubHead: damage to the newest file costs nothing, since it is in memory.
func TestScrubHead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, log := testStore(t, dir, 100)
	mustAppend(t, s, 30, finishedFrom(1, 30))
	if s.Scrub(0); s.Stats().Damaged != 0 {
		t.Fatalf("nothing is damaged: %s", log)
	}
	path := filepath.Join(dir, headName(0))
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if s.Scrub(0); s.Stats().Damaged != 1 || !strings.Contains(log.String(), "written anew") {
		t.Fatalf("damage is not found: %s", log)
	}
	checkAll(t, s, 30)
	mustAppend(t, s, 40, finishedFrom(31, 40))
	_ = s.Close()
	again, _ := testStore(t, dir, 100)
	checkAll(t, again, 40)
}

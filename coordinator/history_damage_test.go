package coordinator_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/coordinator/coordtest"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
)

// histories returns the files of finished jobs of a coordinator, when there are
// some.
func histories(t *testing.T, c *coordtest.Cluster, at int) []string {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		files, err := filepath.Glob(filepath.Join(c.Dir(at), "history", "seg-*[0-9]"))
		if err == nil && len(files) >= 3 {
			return files
		}
	}
	t.Fatalf("coordinator %d writes no files", at)
	return nil
}

// flip changes one byte of a file in its place, as a bad disk does.
func flip(t *testing.T, path string, at func(size int) int) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	i := at(len(b))
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt([]byte{b[i] ^ 0x40}, int64(i))
	if cerr := f.Close(); err != nil || cerr != nil {
		t.Fatal(err, cerr)
	}
}

// Places of a byte: in the first block of records, in some block, in what tells
// ids from rows, and in what is read only when a file is opened.
func block(size int) int  { return min(20, size-1) }
func middle(size int) int { return size / 2 }
func behind(size int) int { return max(0, size-170) }
func footer(size int) int { return size - 10 }

var places = []func(int) int{block, middle, behind, footer}

// TestHistoryDamageIsMendedAtOnce: whoever comes upon a bad record gets an answer
// that lacks nothing, each job once and in order, since what was damaged is
// fetched from another coordinator meanwhile.
func TestHistoryDamageIsMendedAtOnce(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 3, Steady: true, KeepFinished: 5, HistoryFileJobs: 40})
	lead := c.Leader()
	ids := cancelled(t, c, lead, 200)
	newest := slices.Clone(ids)
	slices.Reverse(newest)
	at := (lead + 1) % 3
	for i := range 3 {
		eventuallyAll(t, c, i, ids)
	}
	for round, where := range places {
		for _, path := range histories(t, c, at) {
			flip(t, path, where)
		}
		for _, oldest := range []bool{round%2 == 0, round%2 != 0} {
			jobs, last := answerOf(t, c, at, &apiv1.ListHistoryRequest{OldestFirst: oldest})
			want := newest
			if oldest {
				want = ids
			}
			if last.Incomplete || fmt.Sprint(idsOf(jobs)) != fmt.Sprint(want) {
				t.Fatalf("round %d, oldest first %t: incomplete: %t, %v, want %v", round, oldest, last.Incomplete, idsOf(jobs), want)
			}
		}
	}
	ctx, cancel := context.WithTimeout(coordtest.As(t.Context(), 1000), 2*time.Minute)
	defer cancel()
	conn := c.Dial(at, "gate", "g")
	for _, path := range histories(t, c, at) { // a report reads no records
		flip(t, path, behind)
	}
	r, err := apirpc.NewHistoryServiceClient(conn).GetReport(ctx, &apiv1.GetReportRequest{})
	if err != nil || r.Incomplete || r.Total.GetCancelled() != uint64(len(ids)) {
		t.Fatalf("report: %v %v", r, err)
	}
	// One job, by the leader.
	for _, path := range histories(t, c, lead) {
		flip(t, path, block)
		flip(t, path, middle)
	}
	for _, id := range []uint64{ids[0], ids[70]} {
		g, err := apirpc.NewJobServiceClient(conn).GetJob(ctx, &apiv1.GetJobRequest{Id: id})
		if err != nil || g.Job.GetId() != id || g.Job.GetState() != "CANCELLED" {
			t.Fatalf("job %d: %v %v", id, g, err)
		}
	}
}

// TestHistoryDamageIsSaid: where nobody else has what was damaged, the answer has
// all the rest and says that it lacks something.
func TestHistoryDamageIsSaid(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1, KeepFinished: 5, HistoryFileJobs: 40})
	ids := cancelled(t, c, 0, 200)
	eventuallyAll(t, c, 0, ids)
	files := histories(t, c, 0)
	flip(t, files[1], middle)
	jobs, last := answerOf(t, c, 0, &apiv1.ListHistoryRequest{OldestFirst: true})
	if !last.Incomplete || len(jobs) >= len(ids) || len(jobs) < len(ids)-80 {
		t.Fatalf("incomplete: %t, %d jobs of %d", last.Incomplete, len(jobs), len(ids))
	}
	if !slices.IsSorted(idsOf(jobs)) || jobs[0].Id != ids[0] || jobs[len(jobs)-1].Id != ids[len(ids)-1] {
		t.Fatalf("what is left is %v", idsOf(jobs))
	}
	if again, last := answerOf(t, c, 0, &apiv1.ListHistoryRequest{OldestFirst: true}); !last.Incomplete || len(again) > len(jobs) {
		t.Fatalf("later: incomplete: %t, %d jobs", last.Incomplete, len(again))
	}
}

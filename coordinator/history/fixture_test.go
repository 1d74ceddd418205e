package history

import (
	"bytes"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster"
)

const t0 = cluster.Time(1_700_000_000_000_000)

// finished makes a job that ended at an index of the log.
func finished(index uint64, id cluster.JobID) *cluster.Job {
	n := int64(id)
	uid := cluster.UID(1000 + id%37)
	submitted := t0.Add(time.Duration(index) * 7 * time.Second)
	started := submitted.Add(time.Duration(n%600) * time.Second)
	ended := started.Add(time.Duration(30+n%5000) * time.Second)
	state := cluster.JobCompleted
	exit := &cluster.Exit{}
	switch n % 10 {
	case 0:
		state, exit = cluster.JobFailed, &cluster.Exit{Code: 1}
	case 1:
		state, exit = cluster.JobTimeout, &cluster.Exit{Code: 143, Signal: 15}
	}
	user := fmt.Sprintf("user%02d", uid-1000)
	gpu := cluster.GPUID(fmt.Sprintf("GPU-%08x-1111-2222-3333-444455556666", n%160))
	est := cluster.Estimate{GPUType: "a100", GPUMemMiB: 12000, GPUMemP95MiB: 14000 + n%100, Milli: 600, Duration: time.Hour, HostMemMiB: 9000, CPUMilli: 2000, PowerW: 250, Source: "history"}
	return &cluster.Job{
		ID: id, Revision: index, Owner: cluster.Owner{UID: uid, GID: 100, Name: user}, State: state,
		Spec: &cluster.Spec{
			Name: fmt.Sprintf("train-%d", n%211), Command: []string{"python", "train.py", "--lr", "3e-4", "--seed", fmt.Sprint(n)}, Dir: "/home/" + user + "/project",
			Env: []string{"PATH=/usr/bin", "SECRET=x"}, GPUs: 1, CPUMilli: 4000, MemMiB: 16384, Stdout: "slurm-%j.out", Stderr: "slurm-%j.out",
			Signature: fmt.Sprintf("%064x", n%211), Partition: []string{"gpu", "long"}[n%2], TimeLimit: 12 * time.Hour, Script: []byte("packed"),
		},
		Submitted: submitted, Eligible: submitted, Started: started, Ended: ended, Estimates: []cluster.Estimate{est},
		Attempts: []cluster.Attempt{{
			No: 1, Token: cluster.Token(index - 1), State: state, BootID: "8c0f3c1e-2f3b-4b5e-9d5e-0123456789ab",
			Berth: cluster.Berth{
				Node: cluster.NodeID(fmt.Sprintf("gpu%02d", n%20)), CPUMilli: 4000, MemMiB: 16384,
				GPUs: []cluster.GPUShare{{GPU: gpu, Share: cluster.Share{MemMiB: 14000, Milli: 600}}},
			},
			Estimate: est, Placed: started, Started: started, Ended: ended, Why: "first fit on the busiest card", Exit: exit,
			Usage: cluster.Usage{GPUMemPeakMiB: 11000 + n%997, Milli: 100 + n%700, HostMemPeakMiB: 8000 + n%501, CPUMilli: 2100, Duration: ended.Sub(started), PowerW: 231,
				Profile: &cluster.Profile{GPUMemMeanMiB: 9000 + n%97, MilliP95: 800, EnergyJ: n * 31 % 100000, HighWaterMiB: 9000, ReadBytes: n * 7777, WrittenBytes: n * 333, Sampled: ended.Sub(started)}},
			Neighbours: []cluster.JobID{id + 1},
		}},
	}
}

func finishedFrom(from, to uint64) []*cluster.Job {
	var out []*cluster.Job
	for i := from; i <= to; i++ {
		out = append(out, finished(i, cluster.JobID(i)))
	}
	return out
}

type logged struct{ bytes.Buffer }

func testStore(t testing.TB, dir string, segment int) (*Store, *logged) {
	t.Helper()
	var l logged
	s, err := Open(Config{Dir: dir, SegmentJobs: segment, Log: slog.New(slog.NewTextHandler(&l, nil))})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, &l
}

func mustAppend(t testing.TB, s *Store, upTo uint64, jobs []*cluster.Job) {
	t.Helper()
	if err := s.Append(upTo, jobs); err != nil {
		t.Fatalf("append: %v", err)
	}
}

// idsOf returns what a query chooses.
func idsOf(t testing.TB, s *Store, q Query) []cluster.JobID {
	t.Helper()
	var out []cluster.JobID
	if err := s.View().Scan(&q, func(r Result) bool { out = append(out, r.Row.ID); return true }); err != nil {
		t.Fatalf("scan: %v", err)
	}
	return out
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

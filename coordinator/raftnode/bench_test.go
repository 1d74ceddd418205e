package raftnode

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"golang.org/x/sys/unix"
)

// BenchmarkPropose commits 300-byte entries on three nodes in this process, on
// disk with fsync, over plain TCP on loopback.
func BenchmarkPropose(b *testing.B) {
	for _, writers := range []int{1, 16, 64, 256} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			c := newCluster(b, 3, func(cfg *Config) { cfg.Timing = DefaultTiming() })
			lead := c.leader()
			data := make([]byte, 300)
			took := make([]time.Duration, b.N)
			next := make(chan int)
			var wg sync.WaitGroup
			b.ResetTimer()
			for range writers {
				wg.Go(func() {
					for i := range next {
						began := time.Now()
						if _, _, err := lead.Propose(b.Context(), data); err != nil {
							b.Errorf("propose: %v", err)
						}
						took[i] = time.Since(began)
					}
				})
			}
			for i := range b.N {
				next <- i
			}
			close(next)
			wg.Wait()
			b.StopTimer()
			slices.Sort(took)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "props/s")
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
		})
	}
}

// BenchmarkFsync is what the disk gives: 4 KiB appended and fdatasynced.
func BenchmarkFsync(b *testing.B) {
	f, err := os.Create(filepath.Join(b.TempDir(), "f"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	page := make([]byte, 4096)
	n := 0
	for b.Loop() {
		if _, err := f.Write(page); err != nil {
			b.Fatal(err)
		}
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			b.Fatal(err)
		}
		n++
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "fsyncs/s")
}

// BenchmarkStoreLogs compares the store with and without its checksums: 16
// entries of 300 bytes at once, and reading one back.
func BenchmarkStoreLogs(b *testing.B) {
	for _, kind := range []string{"plain", "checksums"} {
		s, bolt, _ := newTestStore(b)
		var store raft.LogStore = s
		if kind == "plain" {
			store = bolt
		}
		next := uint64(1)
		b.Run(kind+"/write", func(b *testing.B) {
			logs := make([]*raft.Log, 16)
			for b.Loop() {
				for i := range logs {
					logs[i] = &raft.Log{Index: next, Term: 1, Data: make([]byte, 300)}
					next++
				}
				if err := store.StoreLogs(logs); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(kind+"/read", func(b *testing.B) {
			var l raft.Log
			for b.Loop() {
				if err := store.GetLog(5, &l); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkPreflight checks a log of 100,000 entries of 300 bytes.
func BenchmarkPreflight(b *testing.B) {
	s, _, _ := newTestStore(b)
	const entries, batch = 100_000, 1000
	for at := uint64(1); at <= entries; at += batch {
		logs := make([]*raft.Log, batch)
		for i := range logs {
			logs[i] = &raft.Log{Index: at + uint64(i), Term: 1, Data: make([]byte, 300)}
		}
		if err := s.StoreLogs(logs); err != nil {
			b.Fatal(err)
		}
	}
	if err := s.SetUint64([]byte(keyTerm), 1); err != nil {
		b.Fatal(err)
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := Preflight(filepath.Dir(s.file)); err != nil {
			b.Fatal(err)
		}
	}
}

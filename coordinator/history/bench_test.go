package history

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster"
)

// million makes a store of 1,000,000 jobs once for all benchmarks, in the folder
// that BERTH_BENCH_HISTORY names or a temporary one.
var million = sync.OnceValues(func() (*Store, string) {
	dir := filepath.Join(os.TempDir(), "berth-bench-history")
	s, err := Open(Config{Dir: dir, Log: discard()})
	if err != nil {
		panic(err)
	}
	const n, batch = 1_000_000, 1000
	for at := s.UpTo(); at < n; at += batch {
		if err := s.Append(at+batch, finishedFrom(at+1, at+batch)); err != nil {
			panic(err)
		}
	}
	return s, dir
})

// BenchmarkMillion queries a store of a million jobs of 90 days.
func BenchmarkMillion(b *testing.B) {
	s, _ := million()
	st := s.Stats()
	span := 7 * time.Second * 1_000_000
	week := t0.Add(span / 2)
	b.Run("user-and-week", func(b *testing.B) {
		n := 0
		for b.Loop() {
			n = 0
			q := Query{Users: []string{"user07"}, EndedFrom: week, EndedBefore: week.Add(7 * 24 * time.Hour)}
			err := s.View().Scan(&q, func(r Result) bool {
				if _, err := r.Job(); err != nil {
					b.Fatal(err)
				}
				n++
				return true
			})
			if err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(n), "jobs")
		b.ReportMetric(float64(st.Bytes)/1e6, "store-MB")
		b.ReportMetric(float64(st.Bytes)/float64(st.Jobs), "B/job")
	})
	b.Run("by-id", func(b *testing.B) {
		id := cluster.JobID(1)
		for b.Loop() {
			if j, err := s.Job(id); err != nil || j == nil {
				b.Fatal(id, err)
			}
			id = id*7919%1_000_000 + 1
		}
	})
	b.Run("report", func(b *testing.B) {
		for b.Loop() {
			p := NewReport(ByUser)
			if err := s.View().Rows(&Query{}, p.Add); err != nil {
				b.Fatal(err)
			}
			if _, total := p.Lines(); total.Jobs != st.Jobs {
				b.Fatal(total.Jobs)
			}
		}
	})
	b.Run("newest-1000", func(b *testing.B) {
		for b.Loop() {
			_ = idsOf(b, s, Query{Limit: 1000})
		}
	})
	b.Run("export-all", func(b *testing.B) {
		for b.Loop() {
			n := 0
			if err := s.View().Scan(&Query{OldestFirst: true}, func(r Result) bool {
				if _, err := r.Job(); err != nil {
					b.Fatal(err)
				}
				n++
				return true
			}); err != nil || n != st.Jobs {
				b.Fatal(n, err)
			}
		}
	})
}

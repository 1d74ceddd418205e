package e2e

import (
	"strings"
	"testing"
)

// BenchmarkSqueue is one run of squeue, and of other listings, from the start of
// the process to its end, against a coordinator that holds 50,000 jobs that wait.
func BenchmarkSqueue(b *testing.B) {
	run := benchCluster(b, "--nodes", "1x8xT4")
	const jobs = 50_000
	for range jobs / 1000 {
		run("", "submit", "--gpus", "1", "--time", "1000", "--count", "1000", "-o", "/dev/null", "--export", "NONE", "--", "sleep", "86400")
	}
	for _, args := range [][]string{{"squeue"}, {"squeue", "-o", "%.18i %.9P %.8j %.8u %.2t %.10M %.10l %.6D %C %m %b %S %R"}, {"squeue", "-t", "R"}, {"squeue", "-u", "nobody"}, {"queue"}} {
		b.Run(strings.Join(args[:min(len(args), 3)], "_"), func(b *testing.B) {
			took := medians{}
			for b.Loop() {
				var text string
				took.timed("median", func() { text = run("", args...) })
				if n := strings.Count(text, "\n"); len(args) == 1 && n != jobs+1 {
					b.Fatalf("%d lines", n)
				}
			}
			took.report(b)
		})
	}
}

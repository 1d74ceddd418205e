package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/e2e/slurmsite"
)

// BenchmarkBesideSlurm does the same to Slurm and to Berth, in turns on one
// machine, each with one node of 2 GPUs and one controller: what a user waits
// for at the prompt. Slurm runs as its guide for high throughput says, without
// accounting, cgroups or containers; Berth keeps its log on disk.
func BenchmarkBesideSlurm(b *testing.B) {
	slurm := slurmsite.Start(b, slurmsite.Options{GPUs: 2})
	berth := benchCluster(b, "--nodes", "1x2xT4")
	dir := b.TempDir()
	both := map[string]func(stdin string, args ...string) string{
		"slurm": func(stdin string, args ...string) string { return slurm.Output(stdin, args...) },
		"berth": berth,
	}
	script := func(body string) string { return "#!/bin/sh\n" + body + "\n" }
	b.Run("submit", func(b *testing.B) { // one sbatch, process start to exit
		took := medians{}
		for b.Loop() {
			for name, run := range both {
				took.timed(name, func() { run(script("true"), "sbatch", "--parsable", "-t", "5", "-o", "/dev/null") })
			}
		}
		took.report(b)
	})
	b.Run("begin", func(b *testing.B) { // sbatch to the first line of the job, idle cluster
		took, n := medians{}, 0
		for b.Loop() {
			for name, run := range both {
				n++
				mark := filepath.Join(dir, fmt.Sprint(name, n))
				for run("", "squeue", "-h", "-o", "%i") != "" {
					time.Sleep(20 * time.Millisecond)
				}
				took.timed(name, func() {
					run(script(": > "+mark), "sbatch", "--parsable", "-t", "5", "-o", "/dev/null", "--gres=gpu:1")
					for _, err := os.Stat(mark); err != nil; _, err = os.Stat(mark) {
						time.Sleep(2 * time.Millisecond)
					}
				})
			}
		}
		took.report(b)
	})
	const waiting = 4_000 // jobs by themselves: an array is one record to either
	for i := range waiting / 1000 {
		berth("", "submit", "--hold", "--gpus", "1", "--time", "5m", "--count", "1000", "-o", "/dev/null", "--export", "NONE", "--name", fmt.Sprint(i), "--", "true")
	}
	if err := os.WriteFile(filepath.Join(dir, "true.sh"), []byte(script("true")), 0o700); err != nil {
		b.Fatal(err)
	}
	slurm.Output("", "sh", "-c", fmt.Sprintf("seq %d | xargs -P 4 -I{} sbatch -H -t 5 -o /dev/null --gres=gpu:1 %s/true.sh >/dev/null", waiting, dir))
	for _, args := range [][]string{{"squeue"}, {"squeue", "-t", "R"}, {"squeue", "-h", "-o", "%i %T"}} {
		b.Run(strings.Join(args, "_"), func(b *testing.B) {
			took := medians{}
			for b.Loop() {
				for name, run := range both {
					var out string
					took.timed(name, func() { out = run("", args...) })
					if n := strings.Count(out, "\n"); len(args) == 1 && n != waiting+1 {
						b.Fatalf("%s lists %d lines, want %d jobs", name, n, waiting)
					}
				}
			}
			took.report(b)
		})
	}
}

package e2e

import (
	"bufio"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// BenchmarkSqueue is one run of squeue, and of other listings, from the start of
// the process to its end, against a coordinator that holds 50,000 jobs that wait.
func BenchmarkSqueue(b *testing.B) {
	if os.Getuid() != 0 {
		b.Skip("berth dev submits as root here")
	}
	// The command of berth dev lives until its standard input ends.
	dev := exec.Command(berth, "dev", "--dir", b.TempDir()+"/c", "--nodes", "1x8xT4", "--", "sh", "-c", "echo $BERTH_SOCKET; cat")
	in, err := dev.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := dev.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := dev.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		in.Close()
		if err := dev.Wait(); err != nil {
			b.Log("berth dev: ", err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	run := func(args ...string) string {
		cmd := exec.Command(berth, args...)
		cmd.Env = append(os.Environ(), "BERTH_SOCKET="+strings.TrimSpace(line))
		text, err := cmd.Output()
		if err != nil {
			b.Fatalf("berth %s: %v", strings.Join(args, " "), err)
		}
		return string(text)
	}
	const jobs = 50_000
	for range jobs / 1000 {
		run("submit", "--gpus", "1", "--time", "1000", "--count", "1000", "-o", "/dev/null", "--export", "NONE", "--", "sleep", "86400")
	}
	for _, args := range [][]string{{"squeue"}, {"squeue", "-o", "%.18i %.9P %.8j %.8u %.2t %.10M %.10l %.6D %C %m %b %S %R"}, {"squeue", "-t", "R"}, {"squeue", "-u", "nobody"}, {"queue"}} {
		b.Run(strings.Join(args[:min(len(args), 3)], "_"), func(b *testing.B) {
			var took []time.Duration
			for b.Loop() {
				began := time.Now()
				text := run(args...)
				took = append(took, time.Since(began))
				if n := strings.Count(text, "\n"); len(args) == 1 && n != jobs+1 {
					b.Fatalf("%d lines", n)
				}
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms/median")
		})
	}
}

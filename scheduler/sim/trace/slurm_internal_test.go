package trace

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster/draws"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

var _ = draws.Fixed()

// TestSpansOfSlurm writes spans in each form that Slurm's manual lists for time
// limits: minutes, minutes:seconds, hours:minutes:seconds, days-hours,
// days-hours:minutes and days-hours:minutes:seconds. Zero days are days, too.
func TestSpansOfSlurm(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d, h := rapid.IntRange(0, 400).Draw(t, "days"), rapid.IntRange(0, 23).Draw(t, "hours")
		m, s := rapid.IntRange(0, 59).Draw(t, "minutes"), rapid.IntRange(0, 59).Draw(t, "seconds")
		for text, want := range map[string]int{
			fmt.Sprint(m):                                         60 * m,
			fmt.Sprintf("%02d:%02d", m, s):                        60*m + s,
			fmt.Sprintf("%02d:%02d:%02d", h, m, s):                3600*h + 60*m + s,
			fmt.Sprintf("%d-%02d", d, h):                          86400*d + 3600*h,
			fmt.Sprintf("%d-%02d:%02d", d, h, m):                  86400*d + 3600*h + 60*m,
			fmt.Sprintf("%d-%02d:%02d:%02d", d, h, m, s):          86400*d + 3600*h + 60*m + s,
			fmt.Sprintf("%d-%02d:%02d:%02d.%03d", d, h, m, s, 17): 86400*d + 3600*h + 60*m + s,
		} {
			if got, err := slurmSpan(text); err != nil || got != time.Duration(want)*time.Second {
				t.Fatalf("%s is %s, want %d s: %v", text, got, want, err)
			}
		}
	})
	for _, bad := range []string{"-1", "1-", "-", "1-2-3", "1:2:3:4", "a", "1:b", "1-02:03:04:05", "99999-00", "1:-2", "10000001"} {
		if got, err := slurmSpan(bad); err == nil || !strings.Contains(err.Error(), bad) {
			t.Errorf("%s is %s, %v", bad, got, err)
		}
	}
}

// TestResourcesOfSlurm: what is written as sacct writes it is read as it was, in any
// order, with whatever else stands there.
func TestResourcesOfSlurm(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		cpu, gpus, gib := rapid.IntRange(1, 512).Draw(t, "cpu"), rapid.IntRange(1, 64).Draw(t, "gpus"), rapid.IntRange(1, 2000).Draw(t, "gib")
		mem := rapid.SampledFrom([]string{fmt.Sprintf("%dG", gib), fmt.Sprintf("%dM", gib<<10), fmt.Sprintf("%dK", gib<<20), fmt.Sprint(gib << 10), fmt.Sprintf("%gT", float64(gib)/1024)}).Draw(t, "mem")
		parts := []string{fmt.Sprintf("cpu=%d", cpu), "mem=" + mem, fmt.Sprintf("gres/gpu=%d", gpus), fmt.Sprintf("gres/gpu:a100=%d", gpus), "billing=77", "node=3", "energy"}
		parts = rapid.Permutation(parts).Draw(t, "order")
		var j workload.Job
		err := readTRES(strings.Join(parts, ","), &j)
		if err != nil || j.CPUMilli != int64(cpu)*1000 || j.GPUs != gpus || j.HostMemMiB != int64(gib)<<10 || len(j.Types) != 1 || j.Types[0] != "a100" {
			t.Fatalf("%v is %+v, %v", parts, j, err)
		}
		var g workload.Job
		text, want, typed := rapid.SampledFrom([]string{"gpu:%d", "gres/gpu:%d", "%d", "gpu:v100:%d", "craynetwork:4,gpu:v100:%d"}).Draw(t, "gres"), gpus, false
		typed = strings.Contains(text, "v100")
		if err := readGres(fmt.Sprintf(text, gpus), &g); err != nil || g.GPUs != want || (len(g.Types) == 1) != typed {
			t.Fatalf("%s is %+v, %v", fmt.Sprintf(text, gpus), g, err)
		}
	})
	for _, bad := range []string{"cpu=-1", "cpu=x", "mem=-1G", "mem=G", "mem=1e300T", "mem=NaN", "gres/gpu=-1", "gres/gpu=65537", "gres/gpu=2.5"} {
		var j workload.Job
		key, _, _ := strings.Cut(bad, "=")
		if err := readTRES("billing=1,"+bad, &j); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	for _, bad := range []string{"gpu:-1", "gpu:a100:x", "gpu:65537", "gpu:"} {
		var j workload.Job
		if err := readGres(bad, &j); err == nil || !strings.Contains(err.Error(), "allocgres") {
			t.Errorf("%s: %v, %d GPUs", bad, err, j.GPUs)
		}
	}
}

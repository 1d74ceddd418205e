//go:build linux && cgo

package nvmlproc

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/agent/gpu/owner"
	"github.com/berth-scheduler/berth/cluster/draws"
)

var _ = draws.Fixed()

// recorded writes a process of a recorded /proc, in the group of an attempt or
// of a stray.
func recorded(t *rapid.T, proc string, pid int, group string) {
	dir := filepath.Join(proc, strconv.Itoa(pid))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"stat":   fmt.Sprintf("%d (train) S 1 7 7 0 -1 0 1 0 0 0 0 0 0 0 20 0 1 0 5 1 1\n", pid),
		"cgroup": "7:memory:" + group + "\n0::/\n", "status": "Uid:\t1000\t1000\t1000\t1000\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// Through the library, the pipe and the kernel's groups, the memory of the
// attempts and strangers on a card is theirs within 1 % of what is used of it,
// whichever lists the driver names their processes in, whatever it repeats,
// and when it does not tell the memory of one attempt.
func TestSumsOfAttempts(t *testing.T) {
	t.Parallel()
	proc := t.TempDir()
	cfg := quick()
	cfg.Owners = owner.New(owner.Config{Parent: "/berth", Proc: proc}).Mark
	n := newNode(t, cfg, cardA)
	rapid.Check(t, func(t *rapid.T) {
		groups := []string{"/berth/j1-a1", "/berth/j2-a1", "/berth/j2-a1/user", "/user.slice"}
		want := map[string]int64{}
		silent := "" // the attempt whose memory is not told
		if rapid.Bool().Draw(t, "not available") {
			silent = rapid.SampledFrom([]string{"j1-a1", "j2-a1"}).Draw(t, "silent")
		}
		var lists strings.Builder
		var used int64
		for i := range rapid.IntRange(1, 12).Draw(t, "processes") {
			// A pid belongs to one group for as long as the machine runs.
			k := rapid.IntRange(0, len(groups)-1).Draw(t, "group")
			pid := 1000 + 4*i + k
			recorded(t, proc, pid, groups[k])
			bytes := rapid.Int64Range(1, 1<<31).Draw(t, "bytes")
			whose := ""
			if k < 3 {
				whose, _, _ = strings.Cut(strings.TrimPrefix(groups[k], "/berth/"), "/")
			}
			want[whose] += bytes
			used += bytes
			told := bytes
			if whose == silent && silent != "" {
				told = -1
			}
			fmt.Fprintf(&lists, "proc 0 %d %d\n", pid, told)
			for _, list := range []string{"gfx", "mps", "proc"} {
				if rapid.Bool().Draw(t, list) {
					fmt.Fprintf(&lists, "%s 0 %d %d\n", list, pid, told)
				}
			}
		}
		n.write(fmt.Sprintf("card GPU-aaaa 85899345920 0910163968 %d 0 0 00000000:3B:00.0 NVIDIA A100\n%s", used, lists.String()))
		usage, err := n.usage()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]int64{}
		for _, p := range usage[0].Processes {
			if p.MemMiB == gpu.Unknown {
				t.Fatalf("process %d of %q: memory is unknown", p.PID, p.Attempt)
			}
			if p.Stray != (p.Attempt == "") {
				t.Fatalf("process %d: attempt %q, stray %v", p.PID, p.Attempt, p.Stray)
			}
			got[p.Attempt] += p.MemMiB << 20
		}
		slack := used/100 + int64(len(usage[0].Processes))<<20 // each is rounded to MiB
		for whose, bytes := range want {
			if d := got[whose] - bytes; d > slack || -d > slack {
				t.Fatalf("%q: %d bytes, want %d within %d\n%s", whose, got[whose], bytes, slack, lists.String())
			}
		}
	})
}

package runtimetest

import (
	"slices"
	"strings"
	"syscall"

	"github.com/berth-scheduler/berth/agent/runtime"
)

// testBroadcast checks which processes a signal reaches, including one in its own session; and
// that it does not reach a job that has ended.
func testBroadcast(h *harness) {
	// The children report that they listen before the first process does.
	const script = `trap 'echo first' USR1
(trap 'echo child; exit' USR1; echo ready; while :; do sleep 0.05; done) &
setsid sh -c 'trap "echo far; exit" USR1; echo ready; while :; do sleep 0.05; done' &
while [ "$(grep -c ready "$OUT")" -lt 2 ]; do sleep 0.05; done
echo listening
while :; do sleep 0.05; done`
	for _, c := range []struct {
		to   runtime.Audience
		want []string
	}{{runtime.ToAll, []string{"child", "far", "first"}}, {runtime.ToOthers, []string{"child", "far"}}} {
		l := h.sh(script)
		l.Env = append(l.Env, "OUT="+l.Stdout)
		h.start(l)
		h.until("a job that listens", func() bool { return slices.Contains(h.printed(l.Stdout), "listening") })
		if err := h.rt.Broadcast(h.Context(), l.ID, syscall.SIGUSR1, c.to); err != nil {
			h.Fatalf("broadcast: %v", err)
		}
		// The shells may also report that the signal ended one of their sleeps.
		heard := func() []string {
			got := slices.DeleteFunc(h.printed(l.Stdout), func(s string) bool { return !slices.Contains([]string{"first", "child", "far"}, s) })
			slices.Sort(got)
			return slices.Compact(got)
		}
		h.until(strings.Join(c.want, " and "), func() bool { return slices.Equal(heard(), c.want) })
		if got := h.inspect(l.ID); got.Phase != runtime.Running {
			h.Errorf("after the signal: %+v", got)
		}
		h.signal(l.ID, syscall.SIGKILL)
		h.wait(l.ID)
		if got := heard(); !slices.Equal(got, c.want) {
			h.Errorf("heard by %q, want %q", got, c.want)
		}
		if err := h.rt.Broadcast(h.Context(), l.ID, syscall.SIGUSR1, c.to); err != nil {
			h.Errorf("broadcast to a job that ended: %v", err)
		}
	}
}

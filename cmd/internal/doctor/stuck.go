package doctor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/berth-scheduler/berth/cluster/wait"
	"github.com/berth-scheduler/berth/cmd/internal/telemetry"
)

const (
	stuckTime = 3 * time.Second // for a daemon to answer
	mostBytes = 16 << 20        // of its metrics
)

// stuck asks this machine's daemons what lasts much longer than it should.
func stuck(ctx context.Context, h *Host, s *Subject) []Line {
	ctx, cancel := context.WithTimeout(ctx, stuckTime)
	defer cancel()
	var out []Line
	if s.Coordinator != nil {
		out = append(out, stuckIn(ctx, h, "berth-coordinator", s.Coordinator.Listen.Metrics,
			"systemctl kill -s QUIT berth-coordinator has it write to its journal where it hangs, and it is started again; send that to who maintains Berth")...)
	}
	if s.Agent != nil {
		out = append(out, stuckIn(ctx, h, "berth-agent", s.Agent.Listen.Metrics,
			`journalctl -u berth-agent | grep "will try again" says why; if containerd does not answer: systemctl restart containerd, beside which jobs go on`)...)
	}
	return out
}

func stuckIn(ctx context.Context, h *Host, unit, addr, fix string) []Line {
	if addr == "" {
		return ok("%s has no listen.metrics, and so cannot be asked what hangs", unit)
	}
	body, err := h.Metrics(ctx, addr)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return ok("%s does not run", unit)
	case err != nil:
		return warn("systemctl restart "+unit+", beside which jobs go on", "%s does not say what hangs: %v", unit, err)
	}
	defer body.Close()
	var out []Line
	sc := bufio.NewScanner(io.LimitReader(body, mostBytes))
	for sc.Scan() {
		rest, found := strings.CutPrefix(sc.Text(), telemetry.Stuck+`{what="`)
		what, value, labelled := strings.Cut(rest, `"} `)
		seconds, err := strconv.ParseFloat(value, 64)
		if !found || !labelled || err != nil {
			continue
		}
		d := time.Duration(seconds * float64(time.Second)).Round(time.Second)
		since := h.Now().Add(-d).Format("2006-01-02 15:04:05")
		if strings.HasPrefix(what, wait.Process) {
			out = append(out, warn("df and dmesg name storage that does not answer; repair it, or umount -l it; else the node must be restarted: berth node drain NODE, and reboot when its other jobs have ended",
				"%s: %s waits in the kernel, where SIGKILL does not end it, since %s (%s)", unit, what, since, d)...)
			continue
		}
		out = append(out, warn(fix, "%s: %q hangs or fails since %s (%s)", unit, what, since, d)...)
	}
	if err := sc.Err(); err != nil {
		return append(out, warn("systemctl restart "+unit+", beside which jobs go on", "%s does not say all that hangs: %v", unit, err)...)
	}
	if len(out) == 0 {
		return ok("nothing hangs in %s", unit)
	}
	return out
}

// metrics opens what a daemon of this machine exports.
func metrics(ctx context.Context, addr string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		return nil, fmt.Errorf("http://%s/metrics: %s", addr, resp.Status)
	}
	return resp.Body, nil
}

package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// asleep is what berth service show -o json prints of a service's requests.
type asleep struct {
	service
	SLO       string
	Want      int
	Measured  *struct{ Asked, Within float64 }
	ColdStart *struct{ Seconds float64 } `json:"cold_start"`
}

// TestAServiceSleeps: it has no replica while nobody asks, a request through its proxy waits
// for one, also while the leader is killed, an update of one option keeps the rest, and what
// was measured of its objective is shown.
func TestAServiceSleeps(t *testing.T) {
	t.Parallel()
	needPython(t, "import http.server")
	c := startCluster(t, "--coordinators", "3", "--nodes", "1x2xA100-SXM4-80GB")
	dir := openDir(t)
	if err := os.WriteFile(filepath.Join(dir, "server.py"), []byte(webServer), 0o644); err != nil {
		t.Fatal(err)
	}
	must := func(args ...string) string {
		t.Helper()
		r := c.runAs(alice, append([]string{"service"}, args...)...)
		if r.code != 0 {
			t.Fatalf("berth service %s: %s%s", strings.Join(args, " "), r.stdout, r.stderr)
		}
		return r.stdout
	}
	read := func() (s asleep) {
		if r := c.runAs(alice, "service", "show", "nap", "-o", "json"); r.code == 0 {
			c.unmarshal(r.stdout, &s)
		}
		return s
	}
	must("create", "nap", "-D", dir, "-o", "/dev/null", "--replicas", "0-2", "--idle-after", "4s", "--slo", "p95=1m", "--gpus", "0.25", "--gpu-mem", "1G",
		"--health", "/healthz", "--health-every", "1s", "--drain", "1s", "--", python, "server.py", "v1", "{port}")
	url := "http://" + c.proxy(alice, "nap") + "/who"
	v := &visitors{url: url, said: map[string]int{}}
	ask := func(want string) {
		t.Helper()
		if v.ask(); v.said[want] == 0 || len(v.failed) > 0 {
			t.Fatalf("answered %v %v, want %q", v.said, v.failed, want)
		}
		v.said = map[string]int{}
	}
	if s := read(); s.Want != 0 || s.Ready != 0 {
		t.Errorf("before anybody asked: %+v", s)
	}
	ask("v1 0")
	for range 20 {
		ask("v1 0")
	}
	c.eventually("what is measured to be shown", func() bool {
		s := read()
		return s.SLO == "p95=1m0s" && s.Measured != nil && s.Measured.Asked >= 20 && s.Measured.Within >= 20 && s.ColdStart != nil
	})
	c.eventually("it to sleep", func() bool { s := read(); return s.Want == 0 && s.Ready == 0 })
	if text := must("list"); !strings.Contains(text, "asleep") {
		t.Errorf("berth service list says\n%s", text)
	}
	if text := must("update", "nap", "--idle-after", "5s", "--", python, "server.py", "v2", "{port}"); !strings.Contains(text, "idle-after 4s → 5s") {
		t.Errorf("the update says %s", text)
	}
	c.eventually("the old revision to be gone", func() bool { s := read(); return !s.Updating })

	waiting := make(chan struct{})
	go func() { defer close(waiting); ask("v2 0") }()
	c.kill(c.leader().PID)
	select {
	case <-waiting:
	case <-time.After(time.Minute):
		t.Fatal("the request that woke it has no answer")
	}
	c.eventually("it to sleep under the next leader", func() bool { s := read(); return s.Want == 0 && s.Ready == 0 })
	must("delete", "nap")
	c.eventually("503 once it is gone", func() bool {
		resp, err := http.Get(url)
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusServiceUnavailable
	})
}

package e2e

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// webServer answers who it is, and 503 of its health while it is sick.
const webServer = `import http.server, os, sys
me = os.environ["BERTH_REPLICA"]
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        body = (sys.argv[1] + " " + me).encode()
        self.send_response(503 if self.path == "/healthz" and os.path.exists("sick-" + me) else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args): pass
server = http.server.ThreadingHTTPServer(("", int(sys.argv[2])), Handler)
open("pid-" + sys.argv[1] + "-" + me, "w").write(str(os.getpid()))
server.serve_forever()
`

// service is what berth service show -o json prints.
type service struct {
	Ready    int
	Updating bool
	Replicas []struct {
		Job      uint64
		Replica  int
		Revision uint64
		State    string
		Node     string
		Port     int
	}
}

// visitors ask a service without end, and keep what they were answered.
type visitors struct {
	url  string
	stop chan struct{}
	wg   sync.WaitGroup

	mu     sync.Mutex
	said   map[string]int
	failed []string
}

func visit(t *testing.T, url string, n int) *visitors {
	v := &visitors{url: url, stop: make(chan struct{}), said: map[string]int{}}
	for range n {
		v.wg.Go(func() {
			for {
				select {
				case <-v.stop:
					return
				case <-time.After(5 * time.Millisecond):
					v.ask()
				}
			}
		})
	}
	t.Cleanup(v.leave)
	return v
}

func (v *visitors) ask() {
	resp, err := http.Get(v.url)
	text, status := "", ""
	if err == nil {
		body, rerr := io.ReadAll(resp.Body)
		resp.Body.Close()
		text, status, err = string(body), resp.Status, rerr
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if err != nil || !strings.HasPrefix(status, "200") {
		v.failed = append(v.failed, status+text)
		return
	}
	v.said[text]++
}

func (v *visitors) leave() {
	select {
	case <-v.stop:
	default:
		close(v.stop)
	}
	v.wg.Wait()
}

// since forgets what was answered and returns what is from now on, once there is much.
func (v *visitors) since(c *cluster) map[string]int {
	c.t.Helper()
	v.mu.Lock()
	v.said = map[string]int{}
	v.mu.Unlock()
	var out map[string]int
	c.eventually("100 more answers", func() bool {
		v.mu.Lock()
		defer v.mu.Unlock()
		n := 0
		out = map[string]int{}
		for text, k := range v.said {
			out[text] = k
			n += k
		}
		return n >= 100
	})
	return out
}

// TestAServiceUnderFaults: no request is lost while a replica is killed, one is sick, the
// leader dies, a node is gone, and a new revision takes the place of the old one.
func TestAServiceUnderFaults(t *testing.T) {
	t.Parallel()
	needPython(t, "import http.server")
	c := startCluster(t, "--coordinators", "3", "--nodes", "2x2xA100-SXM4-80GB")
	dir := openDir(t)
	if err := os.WriteFile(filepath.Join(dir, "server.py"), []byte(webServer), 0o644); err != nil {
		t.Fatal(err)
	}
	flags := []string{"-D", dir, "-o", "/dev/null", "--replicas", "2", "--gpus", "0.25", "--gpu-mem", "1G", "--health", "/healthz", "--health-every", "1s", "--health-fails", "4", "--drain", "1s", "--", python, "server.py"}
	must := func(args ...string) string {
		t.Helper()
		r := c.runAs(alice, append([]string{"service"}, args...)...)
		if r.code != 0 {
			t.Fatalf("berth service %s: %s%s", strings.Join(args, " "), r.stdout, r.stderr)
		}
		return r.stdout
	}
	must(slices.Concat([]string{"create", "web"}, flags, []string{"v1", "{port}"})...)
	read := func() (s service) {
		if r := c.runAs(alice, "service", "show", "web", "-o", "json"); r.code == 0 {
			c.unmarshal(r.stdout, &s)
		}
		return s
	}
	ready := func(what string) (s service) {
		t.Helper()
		c.eventually("two replicas to be ready "+what, func() bool { s = read(); return s.Ready == 2 && !s.Updating })
		return s
	}
	s := ready("at first")
	if s.Replicas[0].Node == s.Replicas[1].Node {
		t.Errorf("both replicas are on %s", s.Replicas[0].Node)
	}
	if r := c.runAs(alice, slices.Concat([]string{"service", "create", "web"}, flags)...); r.code == 0 || !strings.Contains(r.stderr, "service web already exists") {
		t.Errorf("it is made twice: %s%s", r.stdout, r.stderr)
	}
	v := visit(t, "http://"+c.proxy(alice, "web")+"/who", 4)
	if got := v.since(c); got["v1 0"] == 0 || got["v1 1"] == 0 || len(got) != 2 {
		t.Errorf("at first they are answered %v", got)
	}

	pid := c.pidFrom(dir, "pid-v1-0")
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	c.eventually("the killed replica to start again", func() bool { return c.pidFrom(dir, "pid-v1-0") != pid })
	ready("after one was killed")

	sick := filepath.Join(dir, "sick-1")
	pid = c.pidFrom(dir, "pid-v1-1")
	if err := os.WriteFile(sick, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	c.eventually("the sick replica to take no requests", func() bool { return read().Ready == 1 })
	c.eventually("the sick replica to start again", func() bool { return c.pidFrom(dir, "pid-v1-1") != pid })
	if err := os.Remove(sick); err != nil {
		t.Fatal(err)
	}
	ready("after one was sick")
	if text := c.runAs(alice, "show", "1_1").stdout; !strings.Contains(text, "times in a row: GET /healthz: 503 Service Unavailable") {
		t.Errorf("berth show says of the sick one\n%s", text)
	}

	c.kill(c.leader().PID)
	ready("under the next leader")

	agent := c.daemonPID("agent", "n2")
	c.kill(agent)
	killed := map[string]int{}
	for _, r := range read().Replicas {
		if r.Node == "n2" {
			file := "pid-v1-" + strconv.Itoa(r.Replica)
			killed[file] = c.pidFrom(dir, file)
			if err := syscall.Kill(killed[file], syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	v.since(c)
	c.restart("agent", "n2")
	for file, pid := range killed { // until its end is reported it counts as ready
		c.eventually("the replica of the lost node to start again", func() bool { return c.pidFrom(dir, file) != pid })
	}
	ready("after a node came back")

	must(slices.Concat([]string{"update", "web"}, flags, []string{"v2", "{port}"})...)
	s = ready("of the new revision")
	if got := v.since(c); got["v2 0"] == 0 || got["v2 1"] == 0 || len(got) != 2 {
		t.Errorf("after the update they are answered %v", got)
	}
	v.leave()
	if len(v.failed) > 0 {
		t.Errorf("%d requests failed: %.300q", len(v.failed), v.failed)
	}
	var listed []struct {
		Targets []string
		Labels  map[string]string
	}
	if err := json.Unmarshal([]byte(must("endpoints", "web", "-o", "prometheus")), &listed); err != nil || len(listed) != 2 || !strings.HasSuffix(listed[0].Targets[0], ":"+strconv.Itoa(s.Replicas[0].Port)) || listed[0].Labels["service"] != "web" {
		t.Errorf("endpoints: %v, %v", listed, err)
	}
	if r := c.runAs(bob, "service", "delete", "web"); r.code == 0 {
		t.Errorf("another user ends it: %s", r.stdout)
	}
	must("delete", "web")
	c.eventually("its end", func() bool { return c.runAs(alice, "service", "list", "-o", "name").stdout == "" })
}

// proxy starts berth service proxy as a user and returns its address.
func (c *cluster) proxy(uid uint32, name string) string {
	c.t.Helper()
	cmd := exec.Command(berth, "service", "proxy", name, "--listen", "127.0.0.1:0")
	cmd.Env = append(os.Environ(), "BERTH_SOCKET="+c.socket)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	out, err := cmd.StderrPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	c.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	address := ""
	for lines.Scan() {
		if _, after, ok := strings.Cut(lines.Text(), "address="); ok && address == "" {
			address = after
		}
		if strings.Contains(lines.Text(), "msg=replicas") { // it knows where they are
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return address
		}
	}
	c.t.Fatalf("the proxy says nothing: %v", lines.Err())
	return ""
}

package e2e

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

const (
	malloryUID  = 31666
	firstHonest = 31100
	honestUsers = 20
	// mostGrowth is what a coordinator may grow by under attack, in MB.
	mostGrowth = 300
	// mostGrowthByStrangers is the same of peers without a certificate.
	mostGrowthByStrangers = 64
)

// TestMallory has an ordinary user of the cluster do all that used to stop or
// fill it, all at once, beside twenty honest users: no job is lost, the
// coordinators do not grow by more than they may, and they start again.
// `make mallory` is the long form, which prints how long submits took.
func TestMallory(t *testing.T) {
	c := startCluster(t, "--coordinators", "3", "--nodes", "1x1xA100-SXM4-80GB")
	users := c.honest(t)
	members := c.siege(t, users, "", mostGrowth)
	for _, m := range members { // nobody's job may keep a coordinator from starting again
		c.end(m.PID, syscall.SIGKILL)
		c.eventually("the coordinator's port to be free", func() bool {
			ln, err := net.Listen("tcp", c.listenAddr(m.ID))
			return err == nil && ln.Close() == nil
		})
		c.restart("coordinator", m.ID)
	}
	c.leader()
	lost := users.lost()
	t.Logf("mallory: %d of %d jobs lost", lost, users.count())
	if lost > 0 {
		t.Errorf("%d jobs were lost", lost)
	}
	if r := c.runAs(firstHonest, "submit", "--parsable", "-D", "/", "-o", "/dev/null", "--", "true"); r.code != 0 {
		t.Errorf("submit after it all: exit code %d: %s", r.code, r.stderr)
	} else {
		c.await(parseID(t, r.stdout), "COMPLETED")
	}
}

// TestFloodWithoutCertificates is the part of it that needs no account: a
// thousand connections to the TLS ports, silent or with large requests.
func TestFloodWithoutCertificates(t *testing.T) {
	c := startCluster(t, "--coordinators", "3", "--nodes", "1x1xA100-SXM4-80GB")
	c.siege(t, c.honest(t), "no certificate", mostGrowthByStrangers)
}

// siege has users work alone and then under the attacks whose names begin with
// only. It fails the test when a coordinator grew by more than most MB.
func (c *cluster) siege(t *testing.T, users *crowd, only string, most float64) []member {
	t.Helper()
	length := 4 * time.Second
	if text := os.Getenv("BERTH_MALLORY_FOR"); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	users.work(length / 2)
	alone := users.p99()
	members := c.members()
	before := map[string]float64{}
	for _, m := range members {
		before[m.ID] = footprintOf(t, m.PID).rssMB
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", m.PID), []byte("5"), 0); err != nil { // the peak counts from here
			t.Fatal(err)
		}
	}
	tried, used, stop := c.unleash(t, mallory{Only: only})
	users.work(length)
	attacked, took := users.p99(), used().Seconds()/length.Seconds()
	select { // on a machine that is busy otherwise it takes a while
	case <-tried:
	case <-time.After(3 * time.Minute):
	}
	counts := stop()
	grown := 0.0
	for _, m := range members {
		g := peakMB(t, m.PID) - before[m.ID]
		t.Logf("mallory: coordinator %s grew by %.0f MB from %.0f MB", m.ID, g, before[m.ID])
		grown = max(grown, g)
	}
	if grown > most {
		t.Errorf("a coordinator grew by %.0f MB, at most %.0f are allowed", grown, most)
	}
	names := slices.Sorted(maps.Keys(counts))
	for _, name := range names {
		n := counts[name]
		t.Logf("mallory: %-28s %d times, %d refused: %s", name, n.Done+n.Refused, n.Refused, n.Why)
		if n.Done+n.Refused == 0 {
			t.Errorf("%s: nothing was tried", name)
		}
	}
	t.Logf("mallory: submits p99 alone %s, under attack %s (%.1f times); growth %.0f MB",
		alone.Round(100*time.Microsecond), attacked.Round(100*time.Microsecond), float64(attacked)/float64(alone), grown)
	if os.Getenv("BERTH_MALLORY_FOR") != "" { // what of it a process does that talks to nobody
		_, _, stop := c.unleash(t, mallory{Burn: took})
		users.work(length / 2)
		stop()
		burnt := users.p99()
		t.Logf("mallory: she took %.2f of a core; p99 beside a process that only computes for as long %s (%.1f times)",
			took, burnt.Round(100*time.Microsecond), float64(burnt)/float64(alone))
	}
	return members
}

// peakMB is the most memory that a process had since it was told to forget its
// peak.
func peakMB(t *testing.T, pid int) float64 {
	t.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatalf("a coordinator is gone: %v", err)
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		if text, ok := strings.CutPrefix(sc.Text(), "VmHWM:"); ok {
			kib, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(text), " kB"), 64)
			if err != nil {
				t.Fatal(err)
			}
			return kib * 1024 / 1e6
		}
	}
	t.Fatalf("process %d has no peak", pid)
	return 0
}

// crowd are honest users: each submits a job ten times a second and asks again
// as the commands do.
type crowd struct {
	t    *testing.T
	jobs []apirpc.JobServiceClient // of each user, those of all coordinators in turn

	mu   sync.Mutex
	took []time.Duration
	ids  []uint64
}

func (c *cluster) honest(t *testing.T) *crowd {
	u := &crowd{t: t}
	sockets := strings.Split(c.socket, ",")
	for i := range honestUsers {
		cc, err := dialSocketAs(firstHonest+uint32(i), sockets[i%len(sockets)])
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cc.Close() })
		u.jobs = append(u.jobs, apirpc.NewJobServiceClient(cc))
	}
	return u
}

// work has all users submit for a while; times of earlier ones are forgotten.
func (u *crowd) work(length time.Duration) {
	u.took = nil
	end := time.Now().Add(length)
	var wg sync.WaitGroup
	for i, jobs := range u.jobs {
		wg.Go(func() {
			time.Sleep(time.Duration(i) * 5 * time.Millisecond) // not all in one moment
			for time.Now().Before(end) {
				began := time.Now()
				id, err := submitHonest(jobs)
				if err != nil {
					u.t.Errorf("user %d: %v", i, err)
					return
				}
				took := time.Since(began)
				u.mu.Lock()
				u.took, u.ids = append(u.took, took), append(u.ids, id)
				u.mu.Unlock()
				time.Sleep(max(0, 100*time.Millisecond-took))
			}
		})
	}
	wg.Wait()
}

// submitHonest submits a job that waits until it is let go, and asks again where
// it is told to or got no answer.
func submitHonest(jobs apirpc.JobServiceClient) (uint64, error) {
	req := &apiv1.SubmitJobsRequest{RequestId: rand.Text(), Jobs: []*apiv1.JobSpec{{
		Name: "honest", Command: [][]byte{[]byte("true")}, Dir: []byte("/"), Hold: true,
	}}}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	for {
		resp, err := jobs.SubmitJobs(ctx, req)
		if err == nil {
			return resp.Ids[0], nil
		}
		wait, again := apiconv.RetryAfter(err)
		if ctx.Err() != nil || !again && !retriable(err) {
			return 0, err
		}
		time.Sleep(max(wait, 50*time.Millisecond))
	}
}

func (u *crowd) p99() time.Duration {
	slices.Sort(u.took)
	if len(u.took) == 0 {
		u.t.Fatal("nothing was submitted")
	}
	return u.took[len(u.took)*99/100]
}

func (u *crowd) count() int { return len(u.ids) }

// lost counts the jobs that the cluster said it has, and has not.
func (u *crowd) lost() int {
	n := 0
	for i, id := range u.ids {
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
			_, err := u.jobs[i%len(u.jobs)].GetJob(context.Background(), &apiv1.GetJobRequest{Id: id})
			if err == nil {
				break
			}
			if _, again := apiconv.RetryAfter(err); !again && !retriable(err) || time.Now().After(deadline) {
				u.t.Logf("job %d: %v", id, err)
				n++
				break
			}
		}
	}
	return n
}

// dialSocketAs connects to a unix socket as another user: the kernel notes who
// connects by the thread, and this one ends afterwards.
func dialSocketAs(uid uint32, socket string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			type result struct {
				conn net.Conn
				err  error
			}
			done := make(chan result)
			go func() {
				runtime.LockOSThread() // and never unlocked
				const keep = ^uintptr(0)
				if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, keep, uintptr(uid), keep); errno != 0 {
					done <- result{nil, errno}
					return
				}
				conn, err := net.Dial("unix", socket)
				done <- result{conn, err}
			}()
			r := <-done
			return r.conn, r.err
		}))
}

// unleash starts Mallory, a process of an ordinary user. tried is closed when each
// attack was made once; used is what time of a core it took so far; stop ends it, and
// returns what it did.
func (c *cluster) unleash(t *testing.T, m mallory) (tried <-chan struct{}, used func() time.Duration, stop func() map[string]attackCount) {
	t.Helper()
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(filepath.Dir(berth), "mallory") // where every user reaches it
	if err := os.WriteFile(program+".new", self, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(program+".new", program); err != nil { // it may be running
		t.Fatal(err)
	}
	m.Sockets, m.Gate = strings.Split(c.socket, ","), filepath.Join(c.dir, "n1-scripts", "cluster", "berth.sock")
	for _, mem := range c.members() {
		m.Ports = append(m.Ports, c.listenAddr(mem.ID))
	}
	plan, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	// Elsewhere it would not take the cores of the coordinators. What nobody else wants is
	// nothing on a busy machine, where the short form must get on as well.
	class := []string{"nice", "-n", "19"}
	if os.Getenv("BERTH_MALLORY_FOR") != "" {
		class = []string{"chrt", "--idle", "0"}
	}
	cmd := exec.Command(class[0], append(class[1:], program)...)
	cmd.Env, cmd.Dir, cmd.Stderr = append(os.Environ(), malloryEnv+"="+string(plan)), "/", os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: malloryUID, Gid: malloryUID}}
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	all, rest, says := make(chan struct{}), make(chan []byte, 1), bufio.NewReader(out)
	go func() {
		if line, _ := says.ReadString('\n'); line == triedAll+"\n" {
			close(all)
		}
		said, _ := io.ReadAll(says) // what is cut short is no answer
		rest <- said
	}()
	return all, func() time.Duration { return footprintOf(t, cmd.Process.Pid).cpu }, func() map[string]attackCount {
		in.Close()
		said := <-rest
		var counts map[string]attackCount
		if err := json.Unmarshal(said, &counts); err != nil {
			t.Fatalf("mallory said %q: %v", said, err)
		}
		return counts
	}
}

// listenAddr is a coordinator's TLS port.
func (c *cluster) listenAddr(id string) string {
	c.t.Helper()
	text, err := os.ReadFile(filepath.Join(c.dir, id, "coordinator.yaml"))
	if err != nil {
		c.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\nlisten:")
	for line := range strings.Lines(rest) {
		if addr, ok := strings.CutPrefix(strings.TrimSpace(line), "addr: "); ok {
			return strings.Trim(addr, `"'`)
		}
	}
	c.t.Fatalf("no listen.addr in\n%s", text)
	return ""
}

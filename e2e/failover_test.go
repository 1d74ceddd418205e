package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// submitter submits jobs from several clients until it is stopped, and keeps
// the ids that were acknowledged.
type submitter struct {
	c    *cluster
	quit chan struct{}
	wg   sync.WaitGroup

	mu   sync.Mutex
	ids  map[uint64]bool
	last time.Time
}

func startSubmitter(c *cluster, clients int) *submitter {
	s := &submitter{c: c, quit: make(chan struct{}), ids: map[uint64]bool{}}
	for range clients {
		s.wg.Go(func() {
			for {
				select {
				case <-s.quit:
					return
				default:
				}
				r := c.runAs(0, "submit", "--parsable", "-D", "/tmp", "-o", "/dev/null", "--", "true")
				if r.code != 0 {
					continue // not acknowledged: nothing is promised
				}
				id := parseID(c.t, r.stdout)
				s.mu.Lock()
				if s.ids[id] {
					c.t.Errorf("id %d was given twice", id)
				}
				s.ids[id] = true
				s.last = time.Now()
				s.mu.Unlock()
			}
		})
	}
	return s
}

func (s *submitter) count() (int, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.ids), s.last
}

func (s *submitter) stop() map[uint64]bool {
	close(s.quit)
	s.wg.Wait()
	return s.ids
}

// allEnd checks that every acknowledged job is known and completes.
func (c *cluster) allEnd(ids map[uint64]bool) {
	c.t.Helper()
	for id := range ids {
		if j := c.await(id, "COMPLETED", "FAILED", "NODE_FAIL"); j.State != "COMPLETED" {
			c.t.Errorf("job %d ended %s (%s)", id, j.State, j.Reason)
		}
	}
}

// let ends the jobs that wait in a directory for a file "go".
func let(t *testing.T, dir string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestKillOfTheLeaderLosesNothing(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--coordinators", "3", "--nodes", "2x1xA100-SXM4-80GB")
	dir := openDir(t)
	marks := filepath.Join(dir, "marks")
	long := c.submit("-D", dir, "--", "sh", "-c", "echo started >> "+marks+"; until [ -e go ]; do sleep 0.05; done; echo ended >> "+marks)
	c.await(long, "RUNNING")
	s := startSubmitter(c, 4)
	c.eventually("40 submits", func() bool { n, _ := s.count(); return n >= 40 })
	old := c.leader()
	c.kill(old.PID)
	killed := time.Now()
	c.eventually("an accepted submit after the kill", func() bool {
		_, last := s.count()
		return last.After(killed.Add(100 * time.Millisecond))
	})
	_, last := s.count()
	t.Logf("first accepted submit %.1f s after kill -9 of the leader", last.Sub(killed).Seconds())
	if l := c.leader(); l.ID == old.ID {
		t.Errorf("the dead %s still leads", l.ID)
	}
	c.eventually("20 more submits", func() bool { n, _ := s.count(); return n >= 60 })
	ids := s.stop()
	t.Logf("%d submits acknowledged", len(ids))
	c.allEnd(ids)
	let(t, dir)
	c.await(long, "COMPLETED")
	data, err := os.ReadFile(marks)
	if err != nil || string(data) != "started\nended\n" {
		t.Errorf("the job that ran through the failover wrote %q (%v), want that it ran once", data, err)
	}
	c.restart("coordinator", old.ID)
	c.eventually("the old leader to catch up", func() bool {
		ms := c.members()
		for _, m := range ms {
			if m.ID == old.ID && m.PID != 0 && m.Applied+5 >= c.leader().Applied {
				return true
			}
		}
		return false
	})
}

func TestKillOfAllCoordinatorsLosesNothing(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--coordinators", "3", "--nodes", "1x1xT4")
	dir := openDir(t)
	running := c.submit("-D", dir, "--", "sh", "-c", "until [ -e go ]; do sleep 0.05; done; exit 5")
	c.await(running, "RUNNING")
	s := startSubmitter(c, 4)
	c.eventually("50 submits", func() bool { n, _ := s.count(); return n >= 50 })
	for _, m := range c.members() {
		c.kill(m.PID)
	}
	for _, name := range []string{"c1", "c2", "c3"} {
		c.restart("coordinator", name)
	}
	c.leader()
	c.allEnd(s.stop()) // those under way have waited for the coordinators
	let(t, dir)
	if j := c.await(running, "FAILED"); j.code() != 5 || len(j.Attempts) != 1 {
		t.Errorf("the job that ran meanwhile: %+v, want exit code 5 in its first attempt", j)
	}
}

func TestKillOfTheAgentLosesNoExitCode(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--nodes", "1x1xA100-SXM4-80GB")
	dir := openDir(t)
	type want struct {
		id   uint64
		code int
	}
	var jobs []want
	for i, secs := range []string{"0.5", "1", "3", "6"} {
		id := c.submit("-D", dir, "--", "sh", "-c", fmt.Sprintf("echo x >> %s/ran-%d; sleep %s; exit %d", dir, i, secs, 40+i))
		jobs = append(jobs, want{id, 40 + i})
	}
	for _, j := range jobs {
		c.await(j.id, "RUNNING", "FAILED")
	}
	c.kill(c.daemonPID("agent", "n1"))
	time.Sleep(1500 * time.Millisecond) // two of them end while nobody looks
	c.restart("agent", "n1")
	for i, j := range jobs {
		got := c.await(j.id, "FAILED", "NODE_FAIL", "COMPLETED")
		if got.code() != j.code || len(got.Attempts) != 1 {
			t.Errorf("job %d: %s exit code %d (%s) in %d attempts, want %d in one", j.id, got.State, got.code(), got.Reason, len(got.Attempts), j.code)
		}
		data, _ := os.ReadFile(filepath.Join(dir, fmt.Sprintf("ran-%d", i)))
		if strings.Count(string(data), "x") != 1 {
			t.Errorf("job %d ran %d times", j.id, strings.Count(string(data), "x"))
		}
	}
}

func TestASimulatedJobLivesThroughTheAgentsDeath(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--nodes", "1x1xA100-SXM4-80GB")
	dir := openDir(t)
	id := c.submit("-D", dir, "--gpus", "1", "--gpu-mem", "6GiB", "--gpu-util", "40", "--",
		berth, "sim-job", "--gpu-mem", "5GiB", "--gpu-util", "40", "--seconds", "5")
	c.await(id, "RUNNING")
	time.Sleep(500 * time.Millisecond)
	c.kill(c.daemonPID("agent", "n1"))
	c.restart("agent", "n1")
	if j := c.await(id, "COMPLETED", "FAILED"); j.State != "COMPLETED" {
		t.Errorf("ended %s (%s)", j.State, j.Reason)
	}
}

package faulttest

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/agent/soaktest"
	"github.com/berth-scheduler/berth/cluster"
)

// TestSoakKillContainerdInStart kills containerd, or the agent, while it lets
// jobs go, which a kill at any moment seldom meets. A job that was cut off
// before its first step runs all the same, once; one that was not keeps its
// exit code, also if that is the 1 of those that never began.
func TestSoakKillContainerdInStart(t *testing.T) {
	s := newSite(t, true)
	s.start("")
	n := soaktest.Times(t, 4, 300)
	rng := rand.New(rand.NewPCG(2, uint64(n)))
	var c tally
	reported := time.Now()
	for c.kills < n {
		live := map[cluster.AttemptID]ending{}
		for i := range 4 {
			e := ending{code: int32(i % 2)} // 0 or 1
			id, as := s.assignment(e.script(time.Duration(rng.IntN(100)) * time.Millisecond))
			live[id] = e
			s.leader.Assign(as)
		}
		s.until("a start", func() bool { return s.starts(live) > 0 })
		time.Sleep(time.Duration(rng.IntN(40_000)) * time.Microsecond)
		if c.kills%4 == 3 {
			s.kill()
			s.start("")
		} else {
			s.killContainerd(0)
		}
		c.kills++
		s.until("the end of the jobs", func() bool {
			for id, want := range live {
				if r := s.ended(id); r != nil {
					c.judge(s, id, want, r)
					delete(live, id)
				}
			}
			return len(live) == 0
		})
		if time.Since(reported) > time.Minute {
			reported = time.Now()
			s.Logf("soak: after %d of %d: %+v, %d cut off", c.kills, n, c, s.cutOff())
		}
	}
	left := append(s.leftovers(), s.records()...)
	for _, l := range left {
		s.Errorf("left behind: %s", l)
	}
	s.Logf("soak: %d kills in a start, %d jobs: %d wrong, %d lost, %d ran twice, %d never; %d things left; %d starts were cut off and made again",
		c.kills, c.jobs, c.wrong, c.lost, c.twice, c.never, len(left), s.cutOff())
}

// starts counts those jobs that the agent is about to let go, or did.
func (s *site) starts(jobs map[cluster.AttemptID]ending) (n int) {
	for id := range jobs {
		if _, err := os.Stat(filepath.Join(s.part.Dir, "rt", id.String()+".started")); err == nil || s.ended(id) != nil {
			n++
		}
	}
	return n
}

// cutOff is how often the agents said that a start was cut off.
func (s *site) cutOff() int {
	text, err := os.ReadFile(s.log)
	if err != nil {
		s.Error(err)
	}
	return strings.Count(string(text), "before its first step, is made again")
}

package faulttest

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/agent/soaktest"
	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// width is how many jobs run at all times.
const width = 20

// deadly are the signals by which jobs end.
var deadly = []syscall.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGABRT, syscall.SIGKILL, syscall.SIGSEGV, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGXCPU,
}

// ending is how a job is to end.
type ending struct {
	code   int32
	signal syscall.Signal
}

// endings goes through the exit codes from 0 to 255, with a signal after each
// seventh.
func endings(n int) ending {
	if n%8 == 7 {
		sig := deadly[n/8%len(deadly)]
		return ending{128 + int32(sig), sig}
	}
	return ending{code: int32((n - n/8) % 256)}
}

func (e ending) script(d time.Duration) string {
	end := fmt.Sprintf("exit %d", e.code)
	if e.signal != 0 {
		end = fmt.Sprintf("kill -%d $$; sleep 60", int(e.signal))
	}
	return fmt.Sprintf("sleep %.2f; %s", d.Seconds(), end)
}

// tally counts what became of the jobs.
type tally struct {
	kills, jobs, wrong, lost, twice, never int
	// shellLike ended by an exit code that a signal makes, too, while nobody
	// held their process: the code is right, and the signal is guessed.
	shellLike int
}

func (c *tally) judge(s *site, id cluster.AttemptID, want ending, r *nodev1.Report) {
	c.jobs++
	switch runs := s.runs(id); {
	case runs > 1:
		c.twice++
		s.Errorf("%s ran %d times", id, runs)
	case runs == 0:
		c.never++
		s.Errorf("%s never ran: %v", id, r)
	}
	got := ending{r.GetExit().GetCode(), syscall.Signal(r.GetExit().GetSignal())}
	switch {
	case r.State == nodev1.AttemptState_ATTEMPT_STATE_LOST || r.Exit == nil:
		c.lost++
		s.Errorf("%s is lost: %v; the agent said\n%s", id, r, s.said(id))
	case got == want:
	case got.code == want.code && want.signal == 0 && got.signal == syscall.Signal(want.code-128) && s.d != nil:
		c.shellLike++
	default:
		c.wrong++
		s.Errorf("%s ended with %+v, want %+v: %v; the agent said\n%s", id, got, want, r, s.said(id))
	}
}

// breakOften runs jobs without a pause, width at a time, and breaks something
// n times meanwhile.
func (s *site) breakOften(n int, breakIt func()) {
	s.Helper()
	rng := rand.New(rand.NewPCG(1, uint64(n)))
	var c tally
	live := map[cluster.AttemptID]ending{}
	next := 0
	fill := func() {
		for len(live) < width {
			e := endings(next)
			next++
			live[s.assign(e.script(time.Second+time.Duration(rng.IntN(4000))*time.Millisecond), 0)] = e
		}
	}
	collect := func() {
		for id, want := range live {
			if r := s.ended(id); r != nil {
				c.judge(s, id, want, r)
				delete(live, id)
			}
		}
	}
	s.start("")
	reported := time.Now()
	for c.kills < n {
		fill()
		until := time.Now().Add(time.Duration(500+rng.IntN(1500)) * time.Millisecond)
		for time.Now().Before(until) {
			collect()
			fill()
			time.Sleep(10 * time.Millisecond)
		}
		breakIt()
		c.kills++
		if time.Since(reported) > time.Minute {
			reported = time.Now()
			s.Logf("soak: after %d of %d: %+v", c.kills, n, c)
		}
	}
	s.until("the end of the last jobs", func() bool {
		collect()
		return len(live) == 0
	})
	left := append(s.leftovers(), s.records()...)
	for _, l := range left {
		s.Errorf("left behind: %s", l)
	}
	s.Logf("soak: %d times broken, %d jobs: %d wrong, %d lost, %d ran twice, %d never; %d things left; of %d codes above 128 the signal is guessed; %d starts were cut off and made again",
		c.kills, c.jobs, c.wrong, c.lost, c.twice, c.never, len(left), c.shellLike, s.cutOff())
}

// TestSoakKillAgent kills the agent while jobs start, run and end.
func TestSoakKillAgent(t *testing.T) {
	s := newSite(t, true)
	s.breakOften(soaktest.Times(t, 3, 200), func() {
		s.kill()
		s.start("")
	})
}

// TestSoakKillProcessAgent does so to one that runs plain processes, where
// there is no doubt about signals either.
func TestSoakKillProcessAgent(t *testing.T) {
	s := newSite(t, false)
	s.breakOften(soaktest.Times(t, 3, 200), func() {
		s.kill()
		s.start("")
	})
}

// TestSoakKillContainerd kills containerd while jobs start, run and end.
func TestSoakKillContainerd(t *testing.T) {
	s := newSite(t, true)
	s.breakOften(soaktest.Times(t, 3, 200), func() {
		s.killContainerd(time.Duration(rand.IntN(300)) * time.Millisecond)
	})
}

// killContainerd kills it and has it come back after a while.
func (s *site) killContainerd(away time.Duration) {
	s.Helper()
	if err := s.d.Kill(); err != nil {
		s.Fatal(err)
	}
	time.Sleep(away)
	if err := s.d.Restart(s.Context()); err != nil {
		s.Fatal(err)
	}
}

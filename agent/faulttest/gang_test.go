package faulttest

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/agent/soaktest"
	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// TestSoakWordToGo has the agent of one node of a gang die on the word to go,
// before it starts its part and right after: the next one finds the word still
// there, and the part has run once. What died before the word does not start
// without it.
func TestSoakWordToGo(t *testing.T) {
	for _, runs := range []struct {
		name       string
		containers bool
	}{{"processes", false}, {"containers", true}} {
		t.Run(runs.name, func(t *testing.T) {
			s := newSite(t, runs.containers)
			for _, step := range []string{"after create", "before start", "after start"} {
				for range soaktest.Times(t, 1, 50) {
					s.goAt(step)
				}
			}
		})
	}
}

// goAt runs the second of two parts with an agent that crashes at a step, and
// another one after it.
func (s *site) goAt(step string) {
	s.Helper()
	s.start(step)
	defer s.kill()
	id, as := s.assignment("exit 42")
	as.Ranks = &nodev1.Ranks{Nodes: []string{"n0", "n1"}, NodeRank: 1, Tasks: 1, MasterAddr: "127.0.0.1", MasterPort: 20_017}
	s.leader.Assign(as)
	tellGo := func() {
		begin := proto.CloneOf(as) // the leader's goroutines read the other one
		begin.Ranks.Go = true
		s.leader.Assign(begin)
	}
	early := step == "after create"
	if !early {
		s.until("the part to be ready", func() bool { return s.ready(id) })
		tellGo()
	}
	if err := s.crashed(); err != nil {
		s.Errorf("crash %s: %v", step, err)
		return
	}
	s.start("")
	if early {
		s.until("the part to be ready after a crash "+step, func() bool { return s.ready(id) })
		if n := s.runs(id); n != 0 {
			s.Errorf("crash %s: the part ran %d times before the word", step, n)
		}
		tellGo()
	}
	s.until("the end of the part after a crash "+step, func() bool { return s.ended(id) != nil })
	s.until("the end of the attempt after a crash "+step, func() bool { return len(s.tasks()) == 0 })
	if r := s.ended(id); r.State != nodev1.AttemptState_ATTEMPT_STATE_FAILED || r.GetExit().GetCode() != 42 || s.runs(id) != 1 {
		s.Errorf("crash %s: ended as %v after %d runs, want exit code 42 after 1", step, r, s.runs(id))
	}
}

func (s *site) ready(id cluster.AttemptID) bool {
	r := s.leader.Last(id)
	return r != nil && r.Ready && r.State == nodev1.AttemptState_ATTEMPT_STATE_STARTING
}

package lead

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/draws"
)

var _ = draws.Fixed()

// TestPortsAreChosen: an attempt's port is in the range, the same each time it
// is asked for, and nobody else's while one is free.
func TestPortsAreChosen(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		first := rapid.Uint16Range(1024, 65_535).Draw(t, "first")
		last := first + min(65_535-first, rapid.Uint16Range(0, 20).Draw(t, "more"))
		p := &planner{ports: [2]uint16{first, last}}
		used := map[uint16]struct{}{}
		for range int(last-first) + 1 {
			id, no := &cluster.Job{ID: cluster.JobID(rapid.Uint64Range(1, 1<<40).Draw(t, "job"))}, rapid.Uint32Range(1, 4).Draw(t, "attempt")
			port := p.choosePort(id, no, used)
			if _, taken := used[port]; taken || port < first || port > last {
				t.Fatalf("attempt %s.%d of range %d to %d was given port %d, with %v taken", id.ID, no, first, last, port, used)
			}
			if again := p.choosePort(id, no, used); again != port {
				t.Fatalf("attempt %s.%d was given port %d, then %d", id.ID, no, port, again)
			}
			used[port] = struct{}{}
		}
	})
}

// TestPortsByDefault: a range that is not set, or is none, is the default one.
func TestPortsByDefault(t *testing.T) {
	t.Parallel()
	for _, ports := range [][2]uint16{{}, {3000, 2000}} {
		p := &planner{ports: ports}
		for job := range cluster.JobID(1000) {
			if port := p.choosePort(&cluster.Job{ID: job}, 1, nil); port < firstGangPort || port > lastGangPort {
				t.Fatalf("range %v: port %d for job %d", ports, port, job)
			}
		}
	}
}

// TestClustersChooseOtherPorts: two on one machine, whose jobs have the same ids, do not meet.
func TestClustersChooseOtherPorts(t *testing.T) {
	t.Parallel()
	p := &planner{}
	same := 0
	for job := range cluster.JobID(100) {
		at := func(ms int) uint16 {
			return p.choosePort(&cluster.Job{ID: job, Submitted: cluster.TimeOf(time.UnixMilli(int64(ms)))}, 1, nil)
		}
		if at(1_700_000_000_000) == at(1_700_000_000_003) {
			same++
		}
	}
	if same > 5 {
		t.Errorf("%d of 100 jobs have the same port in both", same)
	}
}

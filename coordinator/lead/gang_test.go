package lead

import (
	"testing"

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
			id := cluster.AttemptID{Job: cluster.JobID(rapid.Uint64Range(1, 1<<40).Draw(t, "job")), No: rapid.Uint32Range(1, 4).Draw(t, "attempt")}
			port := p.choosePort(id, used)
			if _, taken := used[port]; taken || port < first || port > last {
				t.Fatalf("attempt %s of range %d to %d was given port %d, with %v taken", id, first, last, port, used)
			}
			if again := p.choosePort(id, used); again != port {
				t.Fatalf("attempt %s was given port %d, then %d", id, port, again)
			}
			used[port] = struct{}{}
		}
	})
}

// TestPortsByDefault: a range that is not set, or is none, is the default one.
func TestPortsByDefault(t *testing.T) {
	t.Parallel()
	for _, ports := range [][2]uint16{{}, {3000, 2000}} {
		p := &planner{ports: ports, cluster: "c1"}
		for job := range cluster.JobID(1000) {
			if port := p.choosePort(cluster.AttemptID{Job: job, No: 1}, nil); port < firstGangPort || port > lastGangPort {
				t.Fatalf("range %v: port %d for job %d", ports, port, job)
			}
		}
	}
}

// TestClustersChooseOtherPorts: two on one machine, whose jobs have the same ids, do not meet.
func TestClustersChooseOtherPorts(t *testing.T) {
	t.Parallel()
	a, b := &planner{cluster: "a"}, &planner{cluster: "b"}
	same := 0
	for job := range cluster.JobID(100) {
		id := cluster.AttemptID{Job: job + 1, No: 1}
		if a.choosePort(id, nil) == b.choosePort(id, nil) {
			same++
		}
	}
	if same > 5 {
		t.Errorf("%d of 100 jobs have the same port in both", same)
	}
}

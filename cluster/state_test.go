package cluster

import (
	"slices"
	"testing"
)

func allStates() []JobState {
	var out []JobState
	for s := JobPending; s <= JobDeadline; s++ {
		out = append(out, s)
	}
	return out
}

func TestJobStateClasses(t *testing.T) {
	t.Parallel()
	for _, s := range allStates() {
		n := 0
		for _, is := range []bool{s.Waiting(), s.Live(), s.Terminal()} {
			if is {
				n++
			}
		}
		if n != 1 || !s.Valid() {
			t.Errorf("%s is in %d classes, valid %t", s, n, s.Valid())
		}
	}
	for _, s := range []JobState{0, JobDeadline + 1, 255} {
		if s.Valid() || s.Waiting() || s.Live() || s.Terminal() || s.String() != "UNKNOWN" || s.Code() != "??" {
			t.Errorf("state %d passes for one: %s %s", uint8(s), s, s.Code())
		}
	}
}

func TestJobStateNamesReadBack(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, s := range allStates() {
		for _, name := range []string{s.String(), s.Code()} {
			if seen[name] {
				t.Errorf("%q names two states", name)
			}
			seen[name] = true
			if got, err := ParseJobState(name); err != nil || got != s {
				t.Errorf("ParseJobState(%q) = %s, %v", name, got, err)
			}
		}
	}
	for _, bad := range []string{"", "running", "UNKNOWN", "??", "R "} {
		if got, err := ParseJobState(bad); err == nil {
			t.Errorf("ParseJobState(%q) = %s", bad, got)
		}
	}
}

// The codes are what Slurm's users know.
func TestSlurmCodes(t *testing.T) {
	t.Parallel()
	for s, want := range map[JobState]string{
		JobPending: "PD", JobStarting: "CF", JobRunning: "R", JobCompleting: "CG", JobCompleted: "CD", JobFailed: "F",
		JobCancelled: "CA", JobTimeout: "TO", JobOutOfMemory: "OOM", JobNodeFail: "NF", JobPreempted: "PR", JobDeadline: "DL",
	} {
		if s.Code() != want {
			t.Errorf("%s has code %q, want %q", s, s.Code(), want)
		}
	}
}

// The whole graph, so that a change of it is a change of this table.
func TestCanMove(t *testing.T) {
	t.Parallel()
	ends := []JobState{JobCompleted, JobFailed, JobCancelled, JobTimeout, JobOutOfMemory, JobNodeFail, JobPreempted, JobDeadline}
	graph := map[JobState][]JobState{
		JobPending:     {JobQueued, JobStarting, JobCancelled, JobDeadline, JobFailed},
		JobQueued:      {JobPending, JobStarting, JobCancelled, JobDeadline, JobFailed},
		JobStarting:    append([]JobState{JobPending, JobRunning, JobCompleting, JobUnreachable}, ends...),
		JobRunning:     append([]JobState{JobPending, JobCompleting, JobUnreachable}, ends...),
		JobCompleting:  append([]JobState{JobPending, JobUnreachable}, ends...),
		JobUnreachable: append([]JobState{JobPending, JobStarting, JobRunning, JobCompleting}, ends...),
	}
	for _, from := range append(allStates(), 0, 200) {
		for _, to := range append(allStates(), 0, 200) {
			if got, want := CanMove(from, to), slices.Contains(graph[from], to); got != want {
				t.Errorf("CanMove(%s, %s) = %t, want %t", from, to, got, want)
			}
		}
	}
}

func TestNodeState(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		n    Node
		name string
		want bool
	}{
		{Node{State: NodeReady}, "ready", true},
		{Node{State: NodeReady, Drain: true}, "ready", false},
		{Node{State: NodeUnreachable}, "unreachable", false},
		{Node{}, "unknown", false},
	} {
		if got := tt.n.Schedulable(); got != tt.want || tt.n.State.String() != tt.name {
			t.Errorf("%+v: schedulable %t, state %q", tt.n, got, tt.n.State)
		}
	}
}

package cluster

import "fmt"

// JobState is where a job, or one attempt of it, stands.
//
//	PENDING ─▶ QUEUED ─▶ STARTING ─▶ RUNNING ─▶ COMPLETING ─▶ terminal
//	   ▲         │ ▲        │  ▲        │ ▲         │
//	   └─────────┘ │        ▼  │        ▼ │         ▼
//	   (requeue)   └──── UNREACHABLE ◀───────────────
//
// PENDING waits for no GPU in particular, QUEUED waits in the queue of one
// GPU. UNREACHABLE means that the node is silent and nobody knows more.
type JobState uint8

// The states of a job. Attempts use those from JobStarting on.
const (
	JobPending JobState = iota + 1
	JobQueued
	JobStarting
	JobRunning
	JobCompleting
	JobUnreachable
	JobCompleted
	JobFailed
	JobCancelled
	JobTimeout
	JobOutOfMemory
	JobNodeFail
	JobPreempted
	JobDeadline
)

var stateNames = [...]struct{ name, code string }{
	0:              {"UNKNOWN", "??"},
	JobPending:     {"PENDING", "PD"},
	JobQueued:      {"QUEUED", "QD"},
	JobStarting:    {"STARTING", "CF"},
	JobRunning:     {"RUNNING", "R"},
	JobCompleting:  {"COMPLETING", "CG"},
	JobUnreachable: {"UNREACHABLE", "UN"},
	JobCompleted:   {"COMPLETED", "CD"},
	JobFailed:      {"FAILED", "F"},
	JobCancelled:   {"CANCELLED", "CA"},
	JobTimeout:     {"TIMEOUT", "TO"},
	JobOutOfMemory: {"OUT_OF_MEMORY", "OOM"},
	JobNodeFail:    {"NODE_FAIL", "NF"},
	JobPreempted:   {"PREEMPTED", "PR"},
	JobDeadline:    {"DEADLINE", "DL"},
}

// Valid reports whether s is one of the named states.
func (s JobState) Valid() bool { return s >= JobPending && s <= JobDeadline }

// String returns the long name in capitals, "UNKNOWN" for no state.
func (s JobState) String() string {
	if !s.Valid() {
		return stateNames[0].name
	}
	return stateNames[s].name
}

// Code returns Slurm's compact code where Slurm has one ("PD", "R", "CD").
// QD and UN are ours.
func (s JobState) Code() string {
	if !s.Valid() {
		return stateNames[0].code
	}
	return stateNames[s].code
}

// ParseJobState reads a long name or a compact code, in capitals.
func ParseJobState(s string) (JobState, error) {
	for i := JobPending; i <= JobDeadline; i++ {
		if stateNames[i].name == s || stateNames[i].code == s {
			return i, nil
		}
	}
	return 0, fmt.Errorf("unknown job state %q", s)
}

// Terminal reports whether nothing can follow s.
func (s JobState) Terminal() bool { return s >= JobCompleted && s <= JobDeadline }

// Waiting reports whether a job in s has no attempt under way.
func (s JobState) Waiting() bool { return s == JobPending || s == JobQueued }

// Live reports whether an attempt in s may hold a share of a GPU.
func (s JobState) Live() bool { return s >= JobStarting && s <= JobUnreachable }

// CanMove reports whether a job in state from may pass to state to. Terminal
// states move nowhere; a job may return from a live state to PENDING only
// because its attempt ended and it is to run again.
func CanMove(from, to JobState) bool {
	switch {
	case !from.Valid() || !to.Valid() || from == to || from.Terminal():
		return false
	case from == JobPending:
		return to == JobQueued || to == JobStarting || to == JobCancelled || to == JobDeadline || to == JobFailed
	case from == JobQueued:
		return to == JobPending || to == JobStarting || to == JobCancelled || to == JobDeadline || to == JobFailed
	case to == JobPending:
		return true
	case to == JobQueued:
		return false
	case from == JobUnreachable, to == JobUnreachable, to.Terminal():
		return true
	default:
		return to > from // STARTING → RUNNING → COMPLETING
	}
}

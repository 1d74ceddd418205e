package cluster

import (
	"iter"
	"math"
	"slices"
	"time"
)

// MaxNodes bounds the nodes of one job, MaxTasks its processes on one node.
const (
	MaxNodes = 256
	MaxTasks = 256
)

// NodeCount returns how many nodes the job runs on, at least 1.
func (s *Spec) NodeCount() int { return max(1, s.Nodes) }

// Spans reports whether the job takes several nodes, or may, or all of one.
func (s *Spec) Spans() bool { return s.NodeCount() > 1 || s.NodeRange.elastic() || s.WholeNodes() }

// TaskCount returns how many processes the job has on each node, at least 1.
func (s *Spec) TaskCount() int { return max(1, s.Tasks) }

// Ranked reports whether the job's processes are numbered: there are several, or
// may be.
func (s *Spec) Ranked() bool { return s.NodeCount() > 1 || s.NodeRange.elastic() || s.TaskCount() > 1 }

// BatchStep reports whether the job is a multi-node batch script that runs once, on
// the first node, and starts the tasks on all nodes itself. A script with several
// processes per node runs as each of them.
func (s *Spec) BatchStep() bool { return s.Scripted() && s.Ranked() && s.TaskCount() == 1 }

// Gang is what an attempt on several nodes has besides its first berth. It starts
// as a whole: each part is prepared and reports ready, and only when all are is Go
// set and any of them started. Values are immutable.
type Gang struct {
	// Rest holds the berths on the nodes after the first: a node's rank is its
	// index plus one.
	Rest []Berth
	// Parts holds the state of each node by rank, including the first.
	Parts []Part
	// Go is set for good once every part was ready.
	Go bool
	// First is one more than the rank of the part whose end decides how the attempt
	// ends, which is the first that failed; 0 while none did. The others are then
	// told to end.
	First int
	// Undo is why the gang was abandoned before it started; the code is empty if it
	// was not.
	Undo Reason
}

// Part is one node's share of a multi-node attempt. It holds its berth until it
// ends, whatever the other parts do.
type Part struct {
	BootID string
	// State is one of the states of attempts.
	State JobState
	// Ready means that the part is prepared and waits for the others.
	Ready          bool
	Started, Ended Time
	Exit           *Exit
	Reason         Reason
	Usage          Usage
	// Token is the fencing token of a part that joined while the attempt ran, 0 for
	// the parts it started with, which use the attempt's own.
	Token Token
	// Left is when the part was dropped while the others go on: it was told to end,
	// or its node failed. 0 means that it belongs to the attempt.
	Left Time
}

// MaxParts bounds the parts that an attempt ever had, including those that left; a
// job that needs more starts a new attempt.
const MaxParts = 2 * MaxNodes

// SizeChange is an in-place change of the number of nodes that an attempt runs on.
type SizeChange struct {
	At       Time
	From, To int
	Why      string
	// Step and StepTime are the progress reported before the change, 0 for none.
	Step     int64
	StepTime time.Duration
	// Took is the cost of the change: the time after it without further progress,
	// as the steps show, 0 while unknown.
	Took time.Duration
}

const (
	// MaxSizeChanges bounds Attempt.Changes: the newest are kept.
	MaxSizeChanges = 16
	// CostAfter is how long after a change its cost is computed at the earliest:
	// programs wait for each other, restart and redo what they had not saved.
	CostAfter = time.Minute
)

// Counted returns c with its cost, once the attempt's current progress shows it:
// the time since the change minus the time for the steps taken since.
func (c SizeChange) Counted(now *Progress) SizeChange {
	since := now.At.Sub(c.At)
	if c.Took > 0 || c.StepTime == 0 || since < CostAfter || now.Step <= c.Step || now.StepTime <= 0 {
		return c
	}
	steps := time.Duration(min(now.Step-c.Step, int64(since/now.StepTime)))
	c.Took = max(time.Microsecond, since-steps*now.StepTime).Truncate(time.Microsecond)
	return c
}

// InPlaceCost returns the mean cost of the job's in-place changes, 0 if none is
// known.
func (j *Job) InPlaceCost() time.Duration {
	sum, n := time.Duration(0), 0
	for i := range j.Attempts {
		for _, c := range j.Attempts[i].Changes {
			if c.Took > 0 {
				sum, n = sum+c.Took, n+1
			}
		}
	}
	if n == 0 {
		return 0
	}
	return sum / time.Duration(n)
}

// SizedAt returns since when the live attempt has had its present size.
func (a *Attempt) SizedAt() Time {
	if n := len(a.Changes); n > 0 {
		return max(a.Started, a.Changes[n-1].At)
	}
	return a.Started
}

// Clone returns a copy whose parts may be changed in place.
func (g *Gang) Clone() *Gang {
	c := *g
	c.Parts = slices.Clone(g.Parts)
	return &c
}

// Stopping reports whether every part of the gang that still runs must end.
func (g *Gang) Stopping() bool { return g != nil && (g.First > 0 || g.Undo.Code != "") }

// Changed reports whether nodes joined or left while the gang ran.
func (g *Gang) Changed() bool {
	return g != nil && slices.ContainsFunc(g.Parts, func(p Part) bool { return p.Token > 0 || p.Left > 0 })
}

// Waits returns how many parts are not ready yet.
func (g *Gang) Waits() int {
	n := 0
	for i := range g.Parts {
		if !g.Parts[i].Ready {
			n++
		}
	}
	return n
}

// Nodes returns how many nodes the attempt has had, including those that left: a
// node that came back counts twice.
func (a *Attempt) Nodes() int {
	if a.Gang == nil {
		return 1
	}
	return 1 + len(a.Gang.Rest)
}

// Stays reports whether the part at rank belongs to the attempt: it was not dropped
// while the others go on.
func (a *Attempt) Stays(rank int) bool {
	return a.Gang == nil || rank >= len(a.Gang.Parts) || a.Gang.Parts[rank].Left == 0
}

// Width returns how many nodes the attempt is to continue on, or had at its end.
func (a *Attempt) Width() int {
	if a.Gang == nil {
		return 1
	}
	n := 0
	for rank := range a.Nodes() {
		if a.Stays(rank) {
			n++
		}
	}
	return n
}

// gone reports whether the part at rank left the attempt and ended.
func (a *Attempt) gone(rank int) bool {
	return !a.Stays(rank) && a.Gang.Parts[rank].State.Terminal()
}

// TokenOf returns the fencing token of the part at rank.
func (a *Attempt) TokenOf(rank int) Token {
	if a.Gang != nil && a.Gang.Parts[rank].Token > 0 {
		return a.Gang.Parts[rank].Token
	}
	return a.Token
}

// BerthAt returns the berth of the node at rank, which must be below Nodes.
func (a *Attempt) BerthAt(rank int) *Berth {
	if rank == 0 {
		return &a.Berth
	}
	return &a.Gang.Rest[rank-1]
}

// Berths yields all berths of the attempt, keyed by rank.
func (a *Attempt) Berths() iter.Seq2[int, *Berth] {
	return func(yield func(int, *Berth) bool) {
		for i := range a.Nodes() {
			if !yield(i, a.BerthAt(i)) {
				return
			}
		}
	}
}

// Held yields the berths that the attempt still holds, none once it ended.
func (a *Attempt) Held() iter.Seq2[int, *Berth] {
	return func(yield func(int, *Berth) bool) {
		for i, b := range a.Berths() {
			if a.PartLive(i) && !yield(i, b) {
				return
			}
		}
	}
}

// HeldGPUs returns the shares that the attempt still holds on all of its nodes.
func (a *Attempt) HeldGPUs() []GPUShare {
	if a.Gang == nil {
		return a.Berth.GPUs
	}
	var out []GPUShare
	for _, b := range a.Held() {
		out = append(out, b.GPUs...)
	}
	return out
}

// PartLive reports whether the part at rank has not ended.
func (a *Attempt) PartLive(rank int) bool {
	if a.Gang == nil || !a.State.Live() {
		return a.State.Live()
	}
	return a.Gang.Parts[rank].State.Live()
}

// Rank returns the rank of a node in the attempt, -1 if it has no part there. For a
// node that left and came back it is the newest.
func (a *Attempt) Rank(node NodeID) int {
	if a.Berth.Node == node {
		return 0
	}
	if a.Gang != nil {
		for i, b := range slices.Backward(a.Gang.Rest) {
			if b.Node == node {
				return i + 1
			}
		}
	}
	return -1
}

// NodeIDs returns the nodes of the attempt by rank, without those that left it and
// ended.
func (a *Attempt) NodeIDs() []NodeID {
	out := make([]NodeID, 0, a.Nodes())
	for rank, b := range a.Berths() {
		if !a.gone(rank) {
			out = append(out, b.Node)
		}
	}
	return out
}

// AllGPUs returns the shares on the nodes of NodeIDs, in the same order.
func (a *Attempt) AllGPUs() []GPUShare {
	if a.Gang == nil {
		return a.Berth.GPUs
	}
	var out []GPUShare
	for rank, b := range a.Berths() {
		if !a.gone(rank) {
			out = append(out, b.GPUs...)
		}
	}
	return out
}

// Undone counts the attempts of j that were abandoned before any part of them
// started.
func (j *Job) Undone() int {
	n := 0
	for i := range j.Attempts {
		if j.Attempts[i].undone() {
			n++
		}
	}
	return n
}

// HeldUpBy reports whether an attempt of j was abandoned before any part of it
// started because of node: it was not ready in time, or its part failed first.
func (j *Job) HeldUpBy(node NodeID) bool {
	for i := range j.Attempts {
		a := &j.Attempts[i]
		if !a.undone() {
			continue
		}
		rank := a.Rank(node)
		if rank >= 0 && (a.Gang.First == rank+1 || a.Gang.First == 0 && !a.Gang.Parts[rank].Ready) {
			return true
		}
	}
	return false
}

// undone reports whether the attempt was abandoned before any part of it started.
func (a *Attempt) undone() bool {
	return a.Gang != nil && !a.Gang.Go && (a.State == JobFailed || a.State == JobNodeFail)
}

// MaxUndone is how often a gang may be abandoned before it starts; the last time is
// final.
const MaxUndone = 3

// BatchScaling says how a program's batch size changes with the number of GPUs.
type BatchScaling string

// BatchFixed, the default, spreads a batch of constant size over the GPUs, so the
// worth of a step does not change. BatchLinear grows the batch with the GPUs, and a
// step does proportionally more; with BatchSqrt the batch also grows, but a step is
// worth as much more as gradient noise falls, by the square root (Krizhevsky,
// arXiv:1404.5997).
const (
	BatchFixed  BatchScaling = "fixed"
	BatchLinear BatchScaling = "linear"
	BatchSqrt   BatchScaling = "sqrt"
)

// ParseBatchScaling parses fixed, linear or sqrt; "" is fixed. The error is an
// *Error of CodeInvalid.
func ParseBatchScaling(text string) (BatchScaling, error) {
	switch s := BatchScaling(text); s {
	case "", BatchFixed:
		return "", nil
	case BatchLinear, BatchSqrt:
		return s, nil
	}
	return "", Errorf(CodeInvalid, "batch_scaling: %s is not one of %s, %s, %s", QuoteShort(text), BatchFixed, BatchLinear, BatchSqrt)
}

// Worth returns the worth of a step with n GPUs relative to one with one GPU.
func (s BatchScaling) Worth(n int) float64 {
	switch s {
	case BatchLinear:
		return float64(n)
	case BatchSqrt:
		return math.Sqrt(float64(n))
	}
	return 1
}

// GPURange is the range of GPUs on one node for an elastic job; the number is
// chosen when it starts. The zero value is a job of fixed size.
type GPURange struct{ Min, Max int }

// NodeRange is the range of nodes for an elastic job, with the same number of GPUs
// on each; the number is chosen when it starts. The zero value is a job of fixed
// size.
type NodeRange struct{ Min, Max int }

func (r NodeRange) elastic() bool { return 0 < r.Min && r.Min < r.Max }

// Elastic reports whether the job may run with a varying number of GPUs on one
// node, or of nodes. Spec.GPUs and Spec.Nodes are what it has while it runs, and
// its minimum while it waits.
func (s *Spec) Elastic() bool {
	return 0 < s.GPURange.Min && s.GPURange.Min < s.GPURange.Max || s.NodeRange.elastic()
}

// Sizes returns the least and most units that the job runs on, and the GPUs of each
// unit: nodes with Spec.GPUs if the number of nodes is chosen, else single GPUs.
func (s *Spec) Sizes() (least, most, gpus int) {
	switch {
	case s.NodeRange.elastic():
		return s.NodeRange.Min, s.NodeRange.Max, s.GPUs
	case s.Elastic():
		return s.GPURange.Min, s.GPURange.Max, 1
	}
	return 1, 1, s.GPUs * s.NodeCount()
}

// Size returns how many of the units described at Sizes the job has.
func (s *Spec) Size() int {
	switch {
	case s.NodeRange.elastic():
		return s.NodeCount()
	case s.Elastic():
		return s.GPUs
	}
	return 1
}

// Takes reports whether the job can run with n GPUs on each of its nodes.
func (s *Spec) Takes(n int) bool {
	return n == s.GPUs || s.GPURange.Min > 0 && s.GPURange.Min <= n && n <= s.GPURange.Max
}

// TakesNodes reports whether the job can run on n nodes.
func (s *Spec) TakesNodes(n int) bool {
	return n == s.NodeCount() || s.NodeRange.elastic() && s.NodeRange.Min <= n && n <= s.NodeRange.Max
}

// Sized returns the spec of the same elastic job with n of its units; see Sizes.
func (s *Spec) Sized(n int) *Spec {
	if n == s.Size() {
		return s
	}
	other := *s
	if s.NodeRange.elastic() {
		other.Nodes = n
	} else {
		other.GPUs = n
	}
	return &other
}

// Size returns how many units of the elastic job with s the attempt ran on; see
// Spec.Sizes.
func (a *Attempt) Size(s *Spec) int {
	if s.NodeRange.elastic() {
		return a.Width()
	}
	return len(a.Berth.GPUs)
}

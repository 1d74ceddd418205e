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

// NodeCount is how many nodes the job runs on, at least 1.
func (s *Spec) NodeCount() int { return max(1, s.Nodes) }

// TaskCount is how many processes it has on each node, at least 1.
func (s *Spec) TaskCount() int { return max(1, s.Tasks) }

// Ranked reports whether its processes are numbered: there are several, or may be.
func (s *Spec) Ranked() bool { return s.NodeCount() > 1 || s.NodeRange.elastic() || s.TaskCount() > 1 }

// BatchStep reports whether the job is a batch script on several nodes, which runs
// once, on the first: it starts its tasks on all of them itself. A script that
// has several processes on each node runs as each of them.
func (s *Spec) BatchStep() bool { return s.Scripted() && s.Ranked() && s.TaskCount() == 1 }

// Gang is what an attempt on several nodes has beside its first one. It starts
// as a whole: each part is prepared and says that it is ready, and only when all
// are is Go set and any of them started. Values are immutable.
type Gang struct {
	// Rest are the berths on the nodes after the first: the place in it plus one
	// is the node's rank.
	Rest []Berth
	// Parts say how far each node is, by rank, the first one included.
	Parts []Part
	// Go is set for good once every part was ready.
	Go bool
	// First is one more than the rank of the part whose end decides how the
	// attempt ends, 0 while none did: the first that failed. The others are then
	// told to end.
	First int
	// Undo says why the gang was given up before it started; the code is empty
	// while it was not.
	Undo Reason
}

// Part is the share of one node in an attempt on several. It holds its berth
// until it ends, whatever the others do.
type Part struct {
	BootID string
	// State is one that attempts have.
	State JobState
	// Ready tells that it is prepared and waits for the others.
	Ready          bool
	Started, Ended Time
	Exit           *Exit
	Reason         Reason
	Usage          Usage
	// Token is the fencing token of a part that came while the attempt ran, 0 of those
	// of its start, which have the attempt's own.
	Token Token
	// Left is when it was given up while the others go on: it was told to end, or its
	// node failed it. 0 is that it belongs to the attempt.
	Left Time
}

// MaxParts bounds the parts that an attempt ever had, those that left it included: who
// would have more begins again.
const MaxParts = 2 * MaxNodes

// SizeChange is a change in place of on how many nodes an attempt runs.
type SizeChange struct {
	At       Time
	From, To int
	Why      string
	// Step and StepTime are what it had said of how far it was, 0 for nothing.
	Step     int64
	StepTime time.Duration
	// Took is what the change cost: the time after it in which it did not get further
	// than before, as its steps show, 0 while that is not known.
	Took time.Duration
}

const (
	// MaxSizeChanges bounds Attempt.Changes: the newest are kept.
	MaxSizeChanges = 16
	// CostAfter is how long after a change its cost is counted at the earliest: programs
	// wait for each other, start anew and do again what they had not saved.
	CostAfter = time.Minute
)

// Counted is c with its cost, once what the attempt says now of how far it is shows it:
// the time since, but for what the steps took that it did.
func (c SizeChange) Counted(now *Progress) SizeChange {
	since := now.At.Sub(c.At)
	if c.Took > 0 || c.StepTime == 0 || since < CostAfter || now.Step <= c.Step || now.StepTime <= 0 {
		return c
	}
	steps := time.Duration(min(now.Step-c.Step, int64(since/now.StepTime)))
	c.Took = max(time.Microsecond, since-steps*now.StepTime).Truncate(time.Microsecond)
	return c
}

// InPlaceCost is what changes in place cost a job in the mean, 0 where none showed it.
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

// SizedAt is since when the live attempt has the size that it has.
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

// Stopping reports whether what still runs of the gang must end.
func (g *Gang) Stopping() bool { return g != nil && (g.First > 0 || g.Undo.Code != "") }

// Changed reports whether nodes came or left while it ran.
func (g *Gang) Changed() bool {
	return g != nil && slices.ContainsFunc(g.Parts, func(p Part) bool { return p.Token > 0 || p.Left > 0 })
}

// Waits is how many parts are not ready yet.
func (g *Gang) Waits() int {
	n := 0
	for i := range g.Parts {
		if !g.Parts[i].Ready {
			n++
		}
	}
	return n
}

// Nodes is on how many nodes the attempt lies, those included that left it: a node that
// came back counts twice.
func (a *Attempt) Nodes() int {
	if a.Gang == nil {
		return 1
	}
	return 1 + len(a.Gang.Rest)
}

// Stays reports whether the part of a rank belongs to the attempt: it was not given up
// while the others go on.
func (a *Attempt) Stays(rank int) bool {
	return a.Gang == nil || rank >= len(a.Gang.Parts) || a.Gang.Parts[rank].Left == 0
}

// Width is on how many nodes the attempt is to go on, or was at its end.
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

// gone reports whether the part of a rank left the attempt and ended.
func (a *Attempt) gone(rank int) bool {
	return !a.Stays(rank) && a.Gang.Parts[rank].State.Terminal()
}

// TokenOf is the fencing token of the part of a rank.
func (a *Attempt) TokenOf(rank int) Token {
	if a.Gang != nil && a.Gang.Parts[rank].Token > 0 {
		return a.Gang.Parts[rank].Token
	}
	return a.Token
}

// BerthAt returns the berth of a node's rank, which must be below Nodes.
func (a *Attempt) BerthAt(rank int) *Berth {
	if rank == 0 {
		return &a.Berth
	}
	return &a.Gang.Rest[rank-1]
}

// Berths yields all berths of the attempt by the rank of their nodes.
func (a *Attempt) Berths() iter.Seq2[int, *Berth] {
	return func(yield func(int, *Berth) bool) {
		for i := range a.Nodes() {
			if !yield(i, a.BerthAt(i)) {
				return
			}
		}
	}
}

// Held yields those berths that the attempt still holds, none once it ended.
func (a *Attempt) Held() iter.Seq2[int, *Berth] {
	return func(yield func(int, *Berth) bool) {
		for i, b := range a.Berths() {
			if a.PartLive(i) && !yield(i, b) {
				return
			}
		}
	}
}

// HeldGPUs are the shares that the attempt still holds on all of its nodes.
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

// PartLive reports whether the part on the node of a rank has not ended.
func (a *Attempt) PartLive(rank int) bool {
	if a.Gang == nil || !a.State.Live() {
		return a.State.Live()
	}
	return a.Gang.Parts[rank].State.Live()
}

// Rank returns the rank of a node in the attempt, -1 when it has no part there; of a
// node that left and came back the newest.
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

// BootOf is the boot of the node of a rank on which the attempt was placed.
func (a *Attempt) BootOf(rank int) string {
	if a.Gang == nil {
		return a.BootID
	}
	return a.Gang.Parts[rank].BootID
}

// NodeIDs are the nodes of the attempt by rank, without those that left it and ended.
func (a *Attempt) NodeIDs() []NodeID {
	out := make([]NodeID, 0, a.Nodes())
	for rank, b := range a.Berths() {
		if !a.gone(rank) {
			out = append(out, b.Node)
		}
	}
	return out
}

// AllGPUs are the shares of the nodes that NodeIDs tells, those of the first one first.
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

// Undone counts the attempts of j that were given up before any part of them
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

// HeldUpBy reports whether an attempt of j was given up before any part of it
// started because of a node: it was not ready in time, or its part failed first.
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

// undone reports whether the attempt was given up before any part of it started.
func (a *Attempt) undone() bool {
	return a.Gang != nil && !a.Gang.Go && (a.State == JobFailed || a.State == JobNodeFail)
}

// MaxUndone is how often a gang may be given up before it started; the last
// time is final.
const MaxUndone = 3

// BatchScaling is what a program does with its batch when it has more GPUs.
type BatchScaling string

// BatchFixed, which "" stands for, has a batch of one size, spread over the GPUs; a step is
// worth the same. BatchLinear grows it with them, and a step does as much more; with
// BatchSqrt it grows as well, and a step is worth as much more as noise goes down, by the
// root (Krizhevsky, arXiv:1404.5997).
const (
	BatchFixed  BatchScaling = "fixed"
	BatchLinear BatchScaling = "linear"
	BatchSqrt   BatchScaling = "sqrt"
)

// ParseBatchScaling reads fixed, linear or sqrt; "" is fixed. The error is an *Error of
// CodeInvalid.
func ParseBatchScaling(text string) (BatchScaling, error) {
	switch s := BatchScaling(text); s {
	case "", BatchFixed:
		return "", nil
	case BatchLinear, BatchSqrt:
		return s, nil
	}
	return "", Errorf(CodeInvalid, "batch_scaling: %s is not one of %s, %s, %s", QuoteShort(text), BatchFixed, BatchLinear, BatchSqrt)
}

// Worth is what a step with n GPUs is worth over one with one GPU.
func (s BatchScaling) Worth(n int) float64 {
	switch s {
	case BatchLinear:
		return float64(n)
	case BatchSqrt:
		return math.Sqrt(float64(n))
	}
	return 1
}

// GPURange is between how many GPUs a job of elastic size runs on one node: as many as
// are chosen when it starts. The zero value is a job of fixed size.
type GPURange struct{ Min, Max int }

// NodeRange is between how many nodes a job of elastic size runs, with as many GPUs on
// each: as many as are chosen when it starts. The zero value is a job of fixed size.
type NodeRange struct{ Min, Max int }

func (r NodeRange) elastic() bool { return 0 < r.Min && r.Min < r.Max }

// Elastic reports whether the job may run with more or fewer GPUs, on one node or on more
// or fewer nodes. Spec.GPUs and Spec.Nodes are what it has while it runs, and the least
// that it can do with while it waits.
func (s *Spec) Elastic() bool {
	return 0 < s.GPURange.Min && s.GPURange.Min < s.GPURange.Max || s.NodeRange.elastic()
}

// Sizes is between how many units the job runs, and of how many GPUs each is: nodes with
// Spec.GPUs, where the number of nodes is chosen, and else single GPUs.
func (s *Spec) Sizes() (least, most, gpus int) {
	switch {
	case s.NodeRange.elastic():
		return s.NodeRange.Min, s.NodeRange.Max, s.GPUs
	case s.Elastic():
		return s.GPURange.Min, s.GPURange.Max, 1
	}
	return 1, 1, s.GPUs * s.NodeCount()
}

// Size is how many of the units that Sizes tells the job has.
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

// Sized is the spec of the same job of elastic size with n of its units, see Sizes.
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

// Size is with how many units of an elastic job with s the attempt ran, see Spec.Sizes.
func (a *Attempt) Size(s *Spec) int {
	if s.NodeRange.elastic() {
		return a.Width()
	}
	return len(a.Berth.GPUs)
}

package fsm

import (
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/jobs"
)

// watcher checks, entry by entry, what must hold of any log.
type watcher struct {
	acked map[cluster.JobID]string // what was acknowledged, by its spec and owner
	lean  map[cluster.JobID]string // the same without environment and script
	prev  map[cluster.JobID]*cluster.Job
	now   cluster.Time
	next  cluster.JobID
	keep  int
	ws    WeightsState
	// shrunk are nodes that came back with less than they had.
	shrunk map[cluster.NodeID]bool
	// shares is how many attempts lay on each card at the last look, unshared
	// the cards that are no longer to be shared since.
	shares   map[cluster.GPUID]int
	unshared map[cluster.GPUID]bool
	// arrays are as they were at the last look.
	arrays map[cluster.JobID]*jobs.Array
}

func newWatcher(keep int) *watcher {
	return &watcher{
		acked: map[cluster.JobID]string{}, lean: map[cluster.JobID]string{}, prev: map[cluster.JobID]*cluster.Job{}, keep: keep, shrunk: map[cluster.NodeID]bool{},
		shares: map[cluster.GPUID]int{}, unshared: map[cluster.GPUID]bool{},
	}
}

// identityOf is what of a job nothing changes: of a task not its time limit.
func identityOf(j *cluster.Job) string {
	spec := entire(j.Spec)
	if spec.NodeRange.Max > 0 {
		spec.Nodes = spec.NodeRange.Min // it is of several sizes
	}
	if j.InArray() {
		spec.TimeLimit = 0
	}
	return fmt.Sprintf("%+v %+v", j.Owner, spec)
}

// entire is a spec with what of it lies in a store.
func entire(s *cluster.Spec) cluster.Spec {
	w := *s
	w.Env, w.Script = s.Large()
	w.Bulk = nil
	return w
}

// shelf is a store of large parts that lie in memory all the same.
type shelf map[[sha256.Size]byte]*shelved

type shelved struct {
	env    []string
	script []byte
}

func (h shelf) keep(env []string, script []byte) cluster.Bulk {
	sum := cluster.BulkSum(env, script)
	if h[sum] == nil {
		h[sum] = &shelved{env, script}
	}
	return h[sum]
}

func (h *shelved) Sum() [sha256.Size]byte   { return cluster.BulkSum(h.env, h.script) }
func (h *shelved) Scripted() bool           { return len(h.script) > 0 }
func (h *shelved) Load() ([]string, []byte) { return h.env, h.script }
func (h *shelved) Bytes() (n int64) {
	for _, e := range h.env {
		n += int64(len(e))
	}
	return n + int64(len(h.script))
}

func (w *watcher) ack(f *FSM, r Result) error {
	if r.Err != nil || r.Existing {
		return nil
	}
	for _, id := range r.Jobs {
		if _, twice := w.acked[id]; twice || id < w.next {
			return fmt.Errorf("id %d was given again", id)
		}
		w.next = id + 1
		if a := f.st.roll.Arrays[id]; a != nil {
			w.next = a.Last() + 1
		}
		j, ok := f.Job(id)
		if !ok {
			return fmt.Errorf("job %d is acknowledged and not there", id)
		}
		w.acked[id] = identityOf(j)
		lean := *j
		lean.Spec = j.Spec.Lean()
		w.lean[id] = identityOf(&lean)
	}
	return nil
}

// check returns the first invariant that is broken.
func (w *watcher) check(f *FSM) error {
	s := f.st
	if s.at.Now < w.now {
		return fmt.Errorf("time went back from %d to %d", w.now, s.at.Now)
	}
	w.now = s.at.Now
	all, _ := f.Jobs(Query{})
	for _, check := range []func(*State, []*cluster.Job) error{w.checkKept, w.checkMoves, w.checkParts, checkJobs, checkIndexes, checkQueues, checkPartitions, w.checkBarred, checkDepends, w.checkArrays, w.checkLedger, checkSamples, w.checkWeights} {
		if err := check(s, all); err != nil {
			return err
		}
	}
	w.prev = map[cluster.JobID]*cluster.Job{}
	for _, j := range all {
		w.prev[j.ID] = j
	}
	return nil
}

// checkKept: what was acknowledged is there until it is over and its time to
// be forgotten has come, and is what was submitted.
func (w *watcher) checkKept(s *State, all []*cluster.Job) error {
	finished := 0
	for _, j := range all {
		if is := identityOf(j); is != w.acked[jobs.Unit(j)] && !(j.State.Terminal() && !j.InArray() && is == w.lean[jobs.Unit(j)]) {
			return fmt.Errorf("job %d is not what was acknowledged", j.ID)
		}
		if j.State.Terminal() {
			finished++
		}
	}
	if finished > w.keep {
		return fmt.Errorf("%d finished jobs are kept, bound %d", finished, w.keep)
	}
	for id, was := range w.prev {
		if s.roll.Jobs.Get(id) == nil && !was.State.Terminal() && finished < w.keep {
			return fmt.Errorf("job %d was %s and is lost", id, was.State)
		}
	}
	return nil
}

// checkMoves: states move as the graph allows, attempts only get longer, and
// what is over does not change.
func (w *watcher) checkMoves(_ *State, all []*cluster.Job) error {
	for _, j := range all {
		old := w.prev[j.ID]
		if old == nil || old == j {
			continue
		}
		if old.State.Terminal() {
			return fmt.Errorf("job %d changed after its end: %s", j.ID, cmp.Diff(old, j))
		}
		if j.Revision <= old.Revision || !j.InArray() && j.Count() != 1 {
			return fmt.Errorf("job %d changed and its revision stayed %d", j.ID, j.Revision)
		}
		if len(j.Attempts) < len(old.Attempts) {
			return fmt.Errorf("job %d lost an attempt", j.ID)
		}
		for i := range old.Attempts {
			if old.Attempts[i].State.Terminal() && !cmp.Equal(old.Attempts[i], j.Attempts[i]) {
				return fmt.Errorf("attempt %d of job %d changed after its end", i+1, j.ID)
			}
		}
		// One entry holds many commands: the job may have gone through
		// others on its way, but each way leads along the graph.
		if old.State != j.State && !reachable(old.State, j.State) {
			return fmt.Errorf("job %d went from %s to %s", j.ID, old.State, j.State)
		}
	}
	return nil
}

func reachable(from, to cluster.JobState) bool {
	if cluster.CanMove(from, to) {
		return true
	}
	for mid := cluster.JobPending; mid <= cluster.JobDeadline; mid++ {
		if cluster.CanMove(from, mid) && !mid.Terminal() && cluster.CanMove(mid, to) {
			return true
		}
	}
	return false
}

// checkPartitions: every job that has not ended is of one that is there, and
// at most one is the default.
func checkPartitions(s *State, all []*cluster.Job) error {
	for _, j := range all {
		if !j.State.Terminal() && j.Spec.Partition != "" && s.fleet.Partition(j.Spec.Partition) == nil {
			return fmt.Errorf("job %d is of partition %s, which is gone", j.ID, j.Spec.Partition)
		}
	}
	defaults := 0
	for _, p := range s.fleet.Partitions() {
		if p.Default {
			defaults++
		}
	}
	if defaults > 1 {
		return fmt.Errorf("%d default partitions", defaults)
	}
	return nil
}

// checkJobs: a job and its attempts tell one story.
func checkJobs(s *State, all []*cluster.Job) error {
	for _, j := range all {
		if j.ID >= s.roll.NextID {
			return fmt.Errorf("job %d is at or above the next id %d", j.ID, s.roll.NextID)
		}
		live := 0
		tokens := cluster.Token(0)
		for i := range j.Attempts {
			a := &j.Attempts[i]
			if a.State.Live() {
				live++
			}
			if a.State.Live() == a.State.Terminal() || a.No != uint32(i)+1 || a.Token <= tokens {
				return fmt.Errorf("job %d: attempt %d is %s, token %d after %d", j.ID, a.No, a.State, a.Token, tokens)
			}
			tokens = a.Token
			for _, b := range a.Held() {
				if n := s.fleet.Node(b.Node); n != nil && uint64(a.Token) < n.Fence {
					return fmt.Errorf("job %d: attempt %d with token %d lives on node %s, fenced at %d", j.ID, a.No, a.Token, n.ID, n.Fence)
				}
			}
			if err := checkGangs(j, a); err != nil {
				return err
			}
			if a.State.Terminal() && a.State != cluster.JobCompleted && a.Reason.Code == "" {
				return fmt.Errorf("job %d: attempt %d is %s for no reason", j.ID, a.No, a.State)
			}
			if a.State.Terminal() && a.Secret != "" {
				return fmt.Errorf("attempt %d of job %d has ended and could still show a credential", a.No, j.ID)
			}
			if a.State.Terminal() && (a.Ended < a.Started || a.Ended < a.Placed || a.Ended == 0) {
				return fmt.Errorf("job %d: attempt %d ended before it began", j.ID, a.No)
			}
			if p := a.Preempt; p != nil && (!j.Spec.Checkpoint.Set() && a.Loan == "" && !p.Requeue || p.At < a.Placed || a.State.Terminal() && p.At > s.at.Now) {
				return fmt.Errorf("job %d: attempt %d was asked to make room at %d and has no hook, or was not there", j.ID, a.No, p.At)
			}
			if a.Preempt != nil && a.State == cluster.JobPreempted && i == len(j.Attempts)-1 && !j.State.Waiting() &&
				j.State != cluster.JobCancelled && j.State != cluster.JobDeadline {
				return fmt.Errorf("job %d made room and is %s", j.ID, j.State)
			}
			if len(a.Neighbours) > cluster.MaxNeighbours {
				return fmt.Errorf("job %d has %d neighbours", j.ID, len(a.Neighbours))
			}
		}
		switch {
		case j.State.Live() && (live != 1 || j.Last().State != j.State):
			return fmt.Errorf("job %d is %s with %d live attempts", j.ID, j.State, live)
		case !j.State.Live() && live != 0:
			return fmt.Errorf("job %d is %s with %d live attempts", j.ID, j.State, live)
		case (j.State == cluster.JobQueued) != (j.Queue != ""):
			return fmt.Errorf("job %d is %s in queue %q", j.ID, j.State, j.Queue)
		case j.State.Waiting() && j.Cancel != nil:
			return fmt.Errorf("job %d was cancelled and waits", j.ID)
		case j.Cancel != nil && j.State.Terminal() && j.State != cluster.JobCancelled:
			return fmt.Errorf("job %d was cancelled and is %s", j.ID, j.State)
		}
	}
	return nil
}

// checkIndexes: what is derived is what a new count gives.
func checkIndexes(s *State, all []*cluster.Job) error {
	counts := map[cluster.JobState]int{}
	onNode, onGPU := map[cluster.NodeID][]cluster.JobID{}, map[cluster.GPUID][]cluster.JobID{}
	for _, j := range all {
		counts[j.State]++
		if s.roll.InSet(j).Get(j.ID) != j {
			return fmt.Errorf("job %d is not among those that are %s", j.ID, j.State)
		}
		if a := j.Live(); a != nil { // what others had was by what was asked for then
			for _, b := range a.Berths() {
				if n := len(b.GPUs); n != j.Spec.GPUs && (n > 0 || !j.Spec.OrCPU) && (n < j.Spec.GPUs || !j.Spec.WholeNodes()) {
					return fmt.Errorf("job %d asks for %d GPUs and was given %d", j.ID, j.Spec.GPUs, n)
				}
			}
		}
		if a := j.Live(); a != nil {
			for _, b := range a.Held() {
				onNode[b.Node] = append(onNode[b.Node], j.ID)
				for _, g := range b.GPUs {
					onGPU[g.GPU] = append(onGPU[g.GPU], j.ID)
				}
			}
		}
	}
	finished := 0
	for st := range s.roll.ByState {
		n := s.roll.ByState[st].Len()
		if cluster.JobState(st) == cluster.JobPending {
			n += s.roll.Barred.Len()
		}
		if n != counts[cluster.JobState(st)] || len(s.roll.ByState[st].List())+len(s.roll.Barred.List()) != s.roll.ByState[st].Len()+s.roll.Barred.Len() {
			return fmt.Errorf("%d jobs are %s, the index holds %d", counts[cluster.JobState(st)], cluster.JobState(st), n)
		}
		if cluster.JobState(st).Terminal() {
			finished += s.roll.ByState[st].Len()
		}
	}
	if len(s.roll.Finished) != finished {
		return fmt.Errorf("%d jobs are finished, the list holds %d", finished, len(s.roll.Finished))
	}
	for id, set := range s.roll.OnNode {
		var have []cluster.JobID
		for _, j := range set.List() {
			if s.roll.Jobs.Get(j.ID) != j {
				return fmt.Errorf("node %s holds an old value of job %d", id, j.ID)
			}
			have = append(have, j.ID)
		}
		if !slices.Equal(have, onNode[id]) {
			return fmt.Errorf("node %s holds %v, want %v", id, have, onNode[id])
		}
	}
	if d := cmp.Diff(onGPU, onCards(s)); d != "" {
		return fmt.Errorf("jobs on GPUs: %s", d)
	}
	return nil
}

// checkSamples: nothing that a run on these cards cannot show is ever learned.
func checkSamples(s *State, _ []*cluster.Job) error {
	for _, x := range s.learned.Samples() {
		if x.GPUMemPeakMiB < 0 || x.GPUMemPeakMiB > 43_008 || x.Milli < 0 || x.Milli > cluster.WholeGPU || x.PowerW < 0 || x.PowerW > maxPowerW || x.At == 0 {
			return fmt.Errorf("sample %+v cannot be", x)
		}
	}
	return nil
}

// checkWeights: versions rise by one each, those that are kept do not change,
// and what is pinned is not replaced by what was learned.
func (w *watcher) checkWeights(s *State, _ []*cluster.Job) error {
	was, now := w.ws, s.learned.Weights()
	w.ws = now
	if len(now.Versions) > keptWeights {
		return fmt.Errorf("%d versions of the weights are kept", len(now.Versions))
	}
	for i, v := range now.Versions {
		if i > 0 && v.Version >= now.Versions[i-1].Version {
			return fmt.Errorf("versions of the weights are out of order: %+v", now.Versions)
		}
		for _, old := range was.Versions {
			if old.Version == v.Version && !cmp.Equal(old, v) {
				return fmt.Errorf("version %d of the weights changed: %s", v.Version, cmp.Diff(old, v))
			}
		}
	}
	return s.learned.Check()
}

// checkQueues: queues are in order, hold whom they should, and only those on
// nodes that take jobs have anybody in them.
func checkQueues(s *State, all []*cluster.Job) error {
	held := map[cluster.JobID]cluster.GPUID{}
	for gpu, q := range s.roll.Queues.All() {
		n := s.fleet.Node(s.fleet.NodeOf(gpu))
		if len(q) == 0 || n == nil || n.GPU(gpu) == nil || !n.Schedulable() || !n.Open(n.GPU(gpu)) {
			return fmt.Errorf("queue of GPU %s with %d jobs should not be", gpu, len(q))
		}
		for i, w := range q {
			if _, twice := held[w.Job]; twice || i > 0 && q[i-1].Compare(w) >= 0 {
				return fmt.Errorf("queue of GPU %s is out of order at %d: %v", gpu, i, q)
			}
			held[w.Job] = gpu
		}
	}
	for _, j := range all {
		if r := s.fleet.OutsideQueue(j, j.Queue); j.Queue != "" && r.Code != "" {
			return fmt.Errorf("job %d waits at GPU %s: %s", j.ID, j.Queue, r)
		}
		if held[j.ID] != j.Queue {
			return fmt.Errorf("job %d is in queue %q, says %q", j.ID, held[j.ID], j.Queue)
		}
	}
	return nil
}

// checkLedger: the accounts are what the live attempts hold, and no more than
// there is, but where a node came back with less.
func (w *watcher) checkLedger(s *State, all []*cluster.Job) error {
	type sums struct {
		mem, milli int64
		shares     int
		whole      bool
	}
	gpus := map[cluster.GPUID]sums{}
	cpu, mem := map[cluster.NodeID]int64{}, map[cluster.NodeID]int64{}
	for _, j := range all {
		a := j.Live()
		if a == nil {
			continue
		}
		for _, b := range a.Held() {
			cpu[b.Node] += b.CPUMilli
			mem[b.Node] += b.MemMiB
			for _, g := range b.GPUs {
				x := gpus[g.GPU]
				gpus[g.GPU] = sums{x.mem + g.Share.MemMiB, x.milli + g.Share.Milli, x.shares + 1, x.whole || g.Share.Exclusive}
			}
		}
	}
	for id, n := range s.fleet.Nodes() {
		u, ok := s.fleet.Ledger().Node(id)
		if !ok || u.UsedCPU != cpu[id] || u.UsedMem != mem[id] {
			return fmt.Errorf("node %s: account %+v, jobs hold %d milli-cores and %d MiB", id, u, cpu[id], mem[id])
		}
		for i := range n.GPUs {
			g, ok := s.fleet.Ledger().GPU(n.GPUs[i].ID)
			x := gpus[n.GPUs[i].ID]
			if !ok || (sums{g.UsedMiB, g.UsedMilli, g.Shares, g.Exclusive}) != x {
				return fmt.Errorf("GPU %s: account %+v, jobs hold %+v", n.GPUs[i].ID, g, x)
			}
			if x.mem > n.GPUs[i].SellableMiB || x.milli > cluster.WholeGPU || x.shares > n.GPUs[i].MaxShares || x.whole && x.shares != 1 {
				return fmt.Errorf("GPU %s is oversold: %+v", n.GPUs[i].ID, x)
			}
			if c := &n.GPUs[i]; x.shares > max(1, w.shares[c.ID]) && !c.Shareable() && !w.unshared[c.ID] {
				return fmt.Errorf("GPU %s is shared and may not be", c.ID)
			}
		}
	}
	clear(w.unshared)
	clear(w.shares)
	for id, x := range gpus {
		w.shares[id] = x.shares
	}
	if len(w.shrunk) > 0 {
		return nil
	}
	return s.fleet.Ledger().Check()
}

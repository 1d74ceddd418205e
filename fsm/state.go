package fsm

import (
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// State is everything that the log has made. Jobs and nodes in it are
// immutable: a change puts a new value in place of the old one, so that a
// snapshot needs only copies of the tables.
type State struct {
	index    uint64
	term     uint64
	now      cluster.Time
	nextJob  cluster.JobID
	config   *logv1.Config
	jobs     jobSet
	arrays   map[cluster.JobID]*array
	nodes    map[cluster.NodeID]*cluster.Node
	queues   map[cluster.GPUID][]cluster.Waiter // ordered by rank, then job; none empty
	requests map[requestKey]*request
	reqOrder []*request // oldest first
	tokens   map[string]*logv1.Token
	denied   map[identity]cluster.Time
	weights  *logv1.Weights   // in use; nil before any
	kept     []*logv1.Weights // those before, oldest first; replaced, never changed
	pin      *logv1.WeightsPin
	parts    map[string]*cluster.Partition
	reserved cluster.Reservations // by name; replaced, never changed
	unshared cluster.SharingSwitches
	company  *logv1.Interference // what was learned of sharing; nil before any
	samples  []Sample            // oldest first
	sampleNo uint64
	standing standing
	out      outbox
	lastHash uint64 // index of the last checkpoint
	format   uint32 // highest version of an entry so far, 0 while it is 1

	rules uint32 // version of the entry being applied

	// What follows is made from the above and never stored.
	ledger   *cluster.Ledger
	byState  [cluster.JobDeadline + 1]jobSet
	folded   [cluster.JobDeadline + 1]int // tasks in a state beyond one for each job
	arrayIDs []cluster.JobID              // sorted
	barred   jobSet                       // pending jobs that something barred when they were put; they are not in byState
	finished []cluster.JobID              // in order of ending, oldest first
	nodeJobs map[cluster.NodeID]*jobSet
	gpuJobs  map[cluster.GPUID][]cluster.JobID // in order; slices are replaced, never changed
	gpuNode  map[cluster.GPUID]cluster.NodeID
	named    map[nameKey]*names
	hash     hasher
	cache    cache
	changes  []Change // of the entry being applied
	// dependents are the jobs that wait for one, by id, and the arrays; who ended meanwhile may be
	// among them. unsettled are the jobs whose change may concern others, within a
	// command.
	dependents map[dependKey][]cluster.JobID
	unsettled  []*cluster.Job
	// begun is when the last tasks of arrays began, looked up once for all jobs of
	// a submit; nil outside of one.
	begun map[cluster.JobID]cluster.Time
	// forgot are the finished jobs that the entry being applied forgot, and endedNow
	// tells that it ended some, for the feed of ended jobs.
	forgot   []*cluster.Job
	endedNow bool
}

func newState() *State {
	return &State{
		nextJob: 1, nodes: map[cluster.NodeID]*cluster.Node{}, queues: map[cluster.GPUID][]cluster.Waiter{},
		parts: map[string]*cluster.Partition{}, requests: map[requestKey]*request{}, tokens: map[string]*logv1.Token{}, denied: map[identity]cluster.Time{},
		standing: newStanding(),
		ledger:   cluster.NewLedger(nil), nodeJobs: map[cluster.NodeID]*jobSet{},
		gpuJobs: map[cluster.GPUID][]cluster.JobID{}, gpuNode: map[cluster.GPUID]cluster.NodeID{},
		out:  newOutbox(),
		hash: newHasher(), cache: newCache(), named: map[nameKey]*names{}, dependents: map[dependKey][]cluster.JobID{},
		arrays: map[cluster.JobID]*array{},
	}
}

type identity struct{ role, id string }

// key joins the parts; roles hold no slash.
func (i identity) key() string { return i.role + "/" + i.id }

type requestKey [16]byte

// request is the answer that a client's request id got. Values are immutable.
type request struct {
	key      requestKey
	bodyHash [16]byte
	first    cluster.JobID
	count    int
	at       cluster.Time
	// ids are there when some of the jobs are arrays, whose ids are further apart.
	ids []cluster.JobID
}

func (r *request) jobs() []cluster.JobID {
	if r.ids != nil {
		return slices.Clone(r.ids)
	}
	ids := make([]cluster.JobID, r.count)
	for i := range ids {
		ids[i] = r.first + cluster.JobID(i)
	}
	return ids
}

func (r *request) record() *logv1.Request {
	m := &logv1.Request{Key: r.key[:], BodyHash: r.bodyHash[:], AtUs: int64(r.at)}
	for _, id := range r.jobs() {
		m.Jobs = append(m.Jobs, uint64(id))
	}
	return m
}

// Sample is what one finished attempt taught, for the predictor. Memory is in
// MiB; Milli is the mean utilization of each GPU in thousandths, CPUMilli the
// cores used in thousandths of one. Zero is not measured.
type Sample struct {
	Seq           uint64 // rises, without gaps among those ever taken
	Signature     string
	GPUType       string
	GPUMemPeakMiB int64
	Milli         int64
	// Duration is 0 for an attempt that did not come to its own end.
	Duration   time.Duration
	HostMemMiB int64
	CPUMilli   int64
	// Censored tells that the peak is a lower bound of what is needed.
	Censored bool
	UID      cluster.UID
	// Features are the job's, opaque here; not to be changed.
	Features []byte
	// PowerW is the mean power of each GPU, Steps how many the attempt took.
	PowerW, Steps int64
	// Neighbours is with how many others the attempt shared its GPUs.
	Neighbours int
	// Company says who they were, longest overlap first, at most MaxCompany; not
	// to be changed. It is empty when one of them was not known any more, and in
	// samples of old logs. CapMode is how shares of the card were capped.
	Company []Company
	CapMode string
	// Predicted is what was expected at placement; zero when it is not known.
	Predicted cluster.Estimate
	// At is when the attempt ended; 0 in samples of old logs.
	At cluster.Time
}

// Company is the jobs of one signature that an attempt shared its GPUs with.
type Company struct {
	Signature string
	// Overlap is how long they shared, added up over these jobs.
	Overlap time.Duration
	// Milli is the utilization by which the last of them was placed.
	Milli int64
}

func (x *Sample) record() *logv1.Sample {
	m := &logv1.Sample{
		Seq: x.Seq, Signature: x.Signature, GpuType: x.GPUType, GpuMemPeakMib: x.GPUMemPeakMiB, Milli: x.Milli,
		DurationUs: x.Duration.Microseconds(), HostMemMib: x.HostMemMiB, CpuMilli: x.CPUMilli, Censored: x.Censored,
		Uid: uint32(x.UID), Features: x.Features, PowerW: x.PowerW, Steps: x.Steps, Neighbours: uint32(x.Neighbours), AtUs: int64(x.At),
		CapMode: x.CapMode,
	}
	if x.Predicted != (cluster.Estimate{}) {
		m.Predicted = conv.EstimateToLog(x.Predicted)
	}
	for _, c := range x.Company {
		m.Company = append(m.Company, &logv1.Company{Signature: c.Signature, OverlapUs: c.Overlap.Microseconds(), Milli: c.Milli})
	}
	return m
}

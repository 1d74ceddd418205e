package fsm

import (
	"time"

	"github.com/berth-scheduler/berth/cluster"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// State is everything that the log has made. Jobs and nodes in it are
// immutable: a change puts a new value in place of the old one, so that a
// snapshot needs only copies of the maps.
type State struct {
	index    uint64
	term     uint64
	now      cluster.Time
	nextJob  cluster.JobID
	config   *logv1.Config
	jobs     map[cluster.JobID]*cluster.Job
	nodes    map[cluster.NodeID]*cluster.Node
	queues   map[cluster.GPUID][]cluster.Waiter // ordered by rank, then job
	requests map[requestKey]request
	reqOrder []requestKey // oldest first
	tokens   map[string]*logv1.Token
	denied   map[identity]cluster.Time
	weights  *logv1.Weights
	samples  []Sample // oldest first
	sampleNo uint64
	lastHash uint64 // index of the last checkpoint

	// What follows is made from the above and never stored.
	ledger   *cluster.Ledger
	waiting  idSet
	running  idSet
	finished []cluster.JobID // in order of ending, oldest first
	counts   [cluster.JobDeadline + 1]int
	nodeJobs map[cluster.NodeID]map[cluster.JobID]struct{}
	gpuJobs  map[cluster.GPUID][]cluster.JobID
	gpuNode  map[cluster.GPUID]cluster.NodeID
	hash     hasher
	changes  []Change // of the entry being applied
}

type identity struct{ role, id string }

type requestKey [16]byte

type request struct {
	bodyHash [16]byte
	jobs     []cluster.JobID
	at       cluster.Time
}

// Sample is what one finished attempt taught, for the predictor.
type Sample struct {
	Seq           uint64
	Signature     string
	GPUType       string
	GPUMemPeakMiB int64
	Milli         int64
	Duration      time.Duration
	HostMemMiB    int64
	CPUMilli      int64
	Censored      bool
	UID           cluster.UID
}

package fsm

import (
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/accounts"
	"github.com/berth-scheduler/berth/fsm/blobs"
	"github.com/berth-scheduler/berth/fsm/command"
	"github.com/berth-scheduler/berth/fsm/credentials"
	"github.com/berth-scheduler/berth/fsm/intern"
	"github.com/berth-scheduler/berth/fsm/jobs"
	"github.com/berth-scheduler/berth/fsm/learned"
	"github.com/berth-scheduler/berth/fsm/nodes"
	"github.com/berth-scheduler/berth/fsm/notices"
	"github.com/berth-scheduler/berth/fsm/table"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// State is everything that the log has made. Jobs and nodes in it are
// immutable: a change puts a new value in place of the old one, so that a
// snapshot needs only copies of the tables.
type State struct {
	index   uint64
	term    uint64
	now     cluster.Time
	nextJob cluster.JobID
	config  *logv1.Config
	jobs    jobs.Set
	arrays  map[cluster.JobID]*array
	// The machines, each of what is its own.
	fleet    *nodes.Fleet
	queues   jobs.Queues
	requests jobs.Requests
	keyring  credentials.Keyring
	books    *accounts.Books
	learned  *learned.Store
	outbox   *notices.Outbox
	blobs    *blobs.Store

	lastHash uint64 // index of the last checkpoint
	format   uint32 // highest version of an entry so far, 0 while it is 1

	rules uint32 // version of the entry being applied

	// What follows is made from the above and never stored.
	byState  [cluster.JobDeadline + 1]jobs.Set
	folded   [cluster.JobDeadline + 1]int // tasks in a state beyond one for each job
	arrayIDs []cluster.JobID              // sorted
	barred   jobs.Set                     // pending jobs that something barred when they were put; they are not in byState
	finished []cluster.JobID              // in order of ending, oldest first
	nodeJobs map[cluster.NodeID]*jobs.Set
	names    map[nameKey]*names
	hash     *table.Hash
	digests  digests
	texts    *intern.Texts
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
	h, texts := &table.Hash{}, intern.New()
	s := &State{
		nextJob: 1, queues: jobs.NewQueues(h), requests: jobs.NewRequests(h),
		keyring: credentials.New(h), learned: learned.New(h, texts), outbox: notices.New(h), blobs: blobs.New(h),
		nodeJobs: map[cluster.NodeID]*jobs.Set{},
		hash:     h, texts: texts, names: map[nameKey]*names{}, dependents: map[dependKey][]cluster.JobID{},
		arrays: map[cluster.JobID]*array{},
	}
	s.books = accounts.New(h, accounts.Rest{At: s.entry, Unended: s.unended, Live: s.liveJobs})
	s.fleet = nodes.New(h, nodes.Rest{
		At:      s.entry,
		Busy:    func(id cluster.NodeID) bool { return s.nodeJobs[id] != nil && s.nodeJobs[id].Len() > 0 },
		Owner:   func(id cluster.JobID) *cluster.Owner { return &s.jobs.Get(id).Owner },
		Changed: func(id cluster.NodeID) { s.changed(Change{Node: id}) },
		Close:   func(gpu cluster.GPUID) { s.dissolve(s.index, gpu, cluster.ReasonNodeDown) },
	})
	s.digest(h)
	return s
}

// entry is what holds for the commands of the entry that is being applied.
func (s *State) entry() command.Entry {
	return command.Entry{Index: s.index, Version: s.rules, Now: s.now}
}

package fsm

import (
	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/accounts"
	"github.com/berth-scheduler/berth/fsm/attempts"
	"github.com/berth-scheduler/berth/fsm/blobs"
	"github.com/berth-scheduler/berth/fsm/command"
	"github.com/berth-scheduler/berth/fsm/credentials"
	"github.com/berth-scheduler/berth/fsm/intern"
	"github.com/berth-scheduler/berth/fsm/jobs"
	"github.com/berth-scheduler/berth/fsm/learned"
	"github.com/berth-scheduler/berth/fsm/nodes"
	"github.com/berth-scheduler/berth/fsm/notices"
	"github.com/berth-scheduler/berth/fsm/orders"
	"github.com/berth-scheduler/berth/fsm/site"
	"github.com/berth-scheduler/berth/fsm/table"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// State is everything that the log has produced. Jobs and nodes in it are
// immutable: a change replaces the value, so that a snapshot needs only copies of
// the tables.
type State struct {
	at       *command.Entry // the entry being applied, or the last one
	term     uint64
	lastHash uint64 // index of the last checkpoint
	config   *logv1.Config
	// The parts of the state machine.
	roll    *jobs.Roll
	fleet   *nodes.Fleet
	desk    *orders.Desk
	steward *attempts.Steward
	staff   *site.Staff
	keyring credentials.Keyring
	books   *accounts.Books
	learned *learned.Store
	outbox  *notices.Outbox
	blobs   *blobs.Store

	// The rest is derived from the above and never stored.
	hash         *table.Hash
	configDigest *table.Digests[table.One]
	texts        *intern.Texts
}

func newState() *State {
	h, texts := &table.Hash{}, intern.New()
	s := &State{
		at: &command.Entry{}, hash: h, texts: texts,
		keyring: credentials.New(h), learned: learned.New(h, texts), outbox: notices.New(h), blobs: blobs.New(h),
	}
	entry := func() command.Entry { return *s.at }
	s.books = accounts.New(h, accounts.Rest{
		At:      entry,
		Unended: func() []*cluster.Job { return s.roll.Unended() },
		Live:    func() []*cluster.Job { return s.roll.Running() },
	})
	s.fleet = nodes.New(h, nodes.Rest{
		At:      entry,
		Busy:    func(id cluster.NodeID) bool { return s.roll.On(id).Len() > 0 },
		Owner:   func(id cluster.JobID) *cluster.Owner { return &s.roll.Jobs.Get(id).Owner },
		Changed: func(id cluster.NodeID) { s.roll.Changed(Change{Node: id}) },
		Close:   func(gpu cluster.GPUID) { s.roll.Dissolve(gpu, cluster.ReasonNodeDown) },
	})
	s.roll = jobs.New(h, jobs.Beside{At: s.at, Fleet: s.fleet, Books: s.books, Blobs: s.blobs, Outbox: s.outbox, Texts: texts})
	s.desk = orders.New(h, s.roll)
	s.steward = attempts.New(s.roll, s.learned)
	s.staff = site.New(s.roll, s.steward, &s.keyring)
	s.roll.Keep = defaultKeep
	s.configDigest = table.NewOne(h, table.Config, func() proto.Message {
		if s.config == nil {
			return nil
		}
		return s.config
	})
	return s
}

func (s *State) hashNow() []byte { return s.hash.Now(s.metaRecord()) }

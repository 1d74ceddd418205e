// Package admission lets jobs in: it bounds what users may have at once, gives a job the
// partition, the standing and the deadline that it runs under or refuses it, and proposes
// what it let in, large parts first. The steps stand in Enter, in order.
package admission

import (
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/api/authorize"
	"github.com/berth-scheduler/berth/coordinator/lead"
	"github.com/berth-scheduler/berth/coordinator/nodes"
	"github.com/berth-scheduler/berth/coordinator/proposer"
	"github.com/berth-scheduler/berth/fsm"
)

// Config bounds what may wait and run.
type Config struct {
	// MaxQueued is how many jobs may wait, MaxPerUser how many of one user's may wait or
	// run, MaxArrayTasks how many tasks one array may have.
	MaxQueued, MaxPerUser, MaxArrayTasks int
	// MaxBytes is how many bytes the specs of all jobs that wait or run may take, and
	// MaxBytesPerUser those of one user's.
	MaxBytes, MaxBytesPerUser int64
	// InGroup reports whether a user, with a primary group, is in a group of a name;
	// nil knows numbers of primary groups only.
	InGroup func(user string, gid uint32, group string) bool
	// NoMail says that no mail is sent here.
	NoMail bool
}

// Needs is what the package works on. All fields are required.
type Needs struct {
	FSM      *fsm.FSM
	Proposer *proposer.Proposer
	Leader   *lead.Leader
	Nodes    *nodes.Nodes
	Clock    func() time.Time
}

// Admission lets jobs in. It is for any number of callers at once.
type Admission struct {
	cfg   Config
	fsm   *fsm.FSM
	prop  *proposer.Proposer
	lead  *lead.Leader
	nodes *nodes.Nodes
	clock func() time.Time
	// promising is held from the question about a deadline to its answer in the
	// state.
	promising chan struct{}
	bringing  bringing
	entering  entering
}

// New makes an admission.
func New(cfg Config, d Needs) *Admission {
	return &Admission{
		cfg: cfg, fsm: d.FSM, prop: d.Proposer, lead: d.Leader, nodes: d.Nodes, clock: d.Clock, promising: make(chan struct{}, 1),
	}
}

// Entry is a job that asks to be let in, one of some of a request.
type Entry struct {
	Who   authorize.Caller
	Job   *cluster.Job
	Of    int // jobs of the request
	Now   cluster.Time
	Parts []*cluster.Partition
	Nodes []*cluster.Node
	// Warnings are what users should know who are let in.
	Warnings []string

	more     int // tasks of the request's arrays so far, beside the first of each
	services int // of them so far
	// mostServices is how many its user may have with them.
	mostServices int
}

// Jobs is how many jobs the request is, each task of an array that was let in counting.
func (e *Entry) Jobs() int { return e.Of + e.more }

// Enter takes a job through the steps by which it is let in, and changes it on the way.
// The first that refuses it says why.
func (a *Admission) Enter(e *Entry) error {
	for _, step := range [...]func(*Entry) error{
		a.array,     // it has few enough tasks, and there is room for them
		a.service,   // its service runs already: it takes that one's place
		deadline,    // its deadline is to come
		a.energy,    // it waits for cheaper power, if it may
		a.partition, // a partition lets it in, and a reservation; some node could run it
		a.mail,      // whoever wants mail and will have none is told
	} {
		if err := step(e); err != nil {
			return err
		}
	}
	return nil
}

// array bounds an array, and all that waits with it: the other jobs of the request count,
// with all tasks of the arrays before it.
func (a *Admission) array(e *Entry) error {
	if e.Job.Spec.Array == nil {
		return nil
	}
	n := e.Job.Spec.Len()
	if n > a.cfg.MaxArrayTasks {
		return cluster.Errorf(cluster.CodeInvalid, "array: %d tasks, at most %d are allowed (limits.array_tasks); let each task do more, or submit several arrays", n, a.cfg.MaxArrayTasks)
	}
	e.more += n - 1
	return a.RoomFor(e.Who, e.Jobs())
}

func (a *Admission) partition(e *Entry) error {
	warnings, err := a.Choose(e.Who, e.Job, e.Parts, e.Nodes)
	e.warn(warnings...)
	return err
}

// mail says what of the mail that a job asks for will not come.
func (a *Admission) mail(e *Entry) error {
	if e.Job.Spec.Mail.Events != 0 && a.cfg.NoMail {
		e.warn("mail was requested, but this cluster sends none (notify.sendmail of its coordinators); berth wait and berth webhook notify, too")
	}
	return nil
}

func (e *Entry) warn(ws ...string) {
	for _, w := range ws {
		if !slices.Contains(e.Warnings, w) {
			e.Warnings = append(e.Warnings, w)
		}
	}
}

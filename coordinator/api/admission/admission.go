// Package admission admits jobs: it bounds what users may have at once, gives a job
// the partition, the standing and the deadline that it runs under or refuses it,
// and proposes what it admitted, large parts first. Enter has the steps, in order.
package admission

import (
	"fmt"
	"slices"
	"strings"
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
	// MaxQueued is how many jobs may wait, MaxPerUser how many of one user's may
	// wait or run, MaxArrayTasks how many tasks one array may have.
	MaxQueued, MaxPerUser, MaxArrayTasks int
	// MaxBytes is how many bytes the specs of all waiting and running jobs may
	// take, and MaxBytesPerUser those of one user's.
	MaxBytes, MaxBytesPerUser int64
	// InGroup reports whether a user, with a primary group, is in the group of that
	// name; nil knows only the numbers of primary groups.
	InGroup func(user string, gid uint32, group string) bool
	// NoMail means that no mail is sent here.
	NoMail bool
}

// Needs is what the package depends on. All fields are required.
type Needs struct {
	FSM      *fsm.FSM
	Proposer *proposer.Proposer
	Leader   *lead.Leader
	Nodes    *nodes.Nodes
	Clock    func() time.Time
}

// Admission admits jobs. It is safe for concurrent use.
type Admission struct {
	cfg   Config
	fsm   *fsm.FSM
	prop  *proposer.Proposer
	lead  *lead.Leader
	nodes *nodes.Nodes
	clock func() time.Time
	// promising is held from the check of a deadline until its outcome is in the
	// state.
	promising chan struct{}
	bringing  bringing
	entering  entering
}

// New returns an Admission.
func New(cfg Config, d Needs) *Admission {
	return &Admission{
		cfg: cfg, fsm: d.FSM, prop: d.Proposer, lead: d.Leader, nodes: d.Nodes, clock: d.Clock, promising: make(chan struct{}, 1),
	}
}

// Entry is a job that asks for admission, one of those of a request.
type Entry struct {
	Who   authorize.Caller
	Job   *cluster.Job
	Of    int // jobs of the request
	Now   cluster.Time
	Parts []*cluster.Partition
	Nodes []*cluster.Node
	// Warnings are for users whose jobs are admitted.
	Warnings []string
	// Promises say what jobs of elastic size need for their deadlines.
	Promises []string

	more     int // tasks of the request's arrays so far, beyond the first of each
	services int // those so far
	// mostServices is how many its user may have including them.
	mostServices int
}

// Jobs returns how many jobs the request is, counting each task of an admitted
// array.
func (e *Entry) Jobs() int { return e.Of + e.more }

// Enter takes a job through the steps of admission, and modifies it on the way. The
// first step that refuses it says why.
func (a *Admission) Enter(e *Entry) error {
	for _, step := range [...]func(*Entry) error{
		a.array,     // it has few enough tasks, and there is room for them
		a.service,   // its service already runs: it takes that one's place
		deadline,    // its deadline is in the future
		a.energy,    // it waits for cheaper power, if it may
		a.partition, // a partition admits it, and a reservation; some node could run it
		excluded,    // whoever excludes a node that is not there is warned
		a.cost,      // whoever limits the cost where nothing has a price is warned
		data,        // whoever names a data set that no node has is warned
		a.mail,      // whoever wants mail but will get none is warned
	} {
		if err := step(e); err != nil {
			return err
		}
	}
	return nil
}

// array bounds an array, and everything that waits with it: the other jobs of the
// request count, with all tasks of the arrays before it.
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

// data warns of data sets that no node has.
func data(e *Entry) error {
	for _, name := range e.Job.Spec.Data {
		var known []string
		for _, n := range e.Nodes {
			for _, f := range n.Features {
				if d, ok := strings.CutPrefix(f, cluster.DataFeature); ok {
					known = append(known, d)
				}
			}
		}
		slices.Sort(known)
		if known = slices.Compact(known); slices.Contains(known, name) {
			continue
		}
		some := "none has any (node.data of their agents)"
		if len(known) > 0 {
			some = "they have " + strings.Join(known[:min(len(known), maxKnown)], ", ")
		}
		e.warn(fmt.Sprintf("data %s: no node has it, so the job runs on any, without %s; %s", name, cluster.DataEnv(name), some))
	}
	return nil
}

// maxKnown is how many data sets a warning lists.
const maxKnown = 16

// mail warns of requested mail that will not come.
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

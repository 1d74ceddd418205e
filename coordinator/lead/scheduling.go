package lead

import (
	"fmt"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/site"
)

// Scheduling is a site's choice of planning, and how often it plans. It is
// immutable, and may be replaced at any time.
type Scheduling struct {
	site.Site
	// Interval is the longest time between full passes while something changes;
	// 0 means a second.
	Interval time.Duration
	// PreemptEvery is the least time between two passes whose preemptions are
	// carried out; 0 means a minute.
	PreemptEvery time.Duration
}

func (s *Scheduling) preemptEvery() time.Duration {
	if s.PreemptEvery <= 0 {
		return defaultPreemptEvery
	}
	return s.PreemptEvery
}

func (s *Scheduling) interval() time.Duration {
	if s.Interval <= 0 {
		return fullEvery
	}
	return s.Interval
}

// Scheduling returns the one in use. It must not be modified.
func (l *Leader) Scheduling() *Scheduling { return l.sched.Load() }

// SetScheduling replaces the policies from the next pass on, which comes within
// their interval. Attempts and queues stay as they are. It is safe for concurrent
// use, at any time and on any coordinator: one that does not lead plans nothing.
func (l *Leader) SetScheduling(s Scheduling) {
	l.sched.Store(&s)
	l.plan.again()
}

// Suits reports why policies cannot replace those in use: a job waits for nodes of
// its own where they manage cells for tenants, and would wait forever. The error is
// an *cluster.Error of CodeInvalid.
func (l *Leader) Suits(s *Scheduling) error {
	apart, _ := l.fsm.Jobs(fsm.Query{States: []cluster.JobState{cluster.JobPending, cluster.JobQueued}, Keep: func(j *cluster.Job) bool {
		return s.Of(j.Spec.Partition).SpanReason(j).Code != ""
	}})
	if len(apart) == 0 {
		return nil
	}
	j := apart[0]
	who := fmt.Sprintf("job %d waits for nodes of its own", j.ID)
	if n := len(apart); n > 1 {
		who += fmt.Sprintf(", and %d others like it", n-1)
	}
	return cluster.Errorf(cluster.CodeInvalid, "policy %s guarantees cells to tenants, and %s; let them start or cancel them first, or take the tenants out",
		s.Of(j.Spec.Partition).Name(), who)
}

// PolicyOf returns the scheduler's policy for a job.
func (l *Leader) PolicyOf(j *cluster.Job) scheduler.Policy {
	return l.Scheduling().Of(j.Spec.Partition).Policy
}

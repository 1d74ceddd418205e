package coordinator

import (
	"cmp"
	"time"
)

// Waits bound how long calls wait at a coordinator for others. Zero means the
// default.
type Waits struct {
	// First is for a request, or the first message of a stream, to arrive once its
	// headers are here, 20 s.
	First time.Duration
	// Leader is for a leader to exist, 10 s.
	Leader time.Duration
	// Visit is for an agent to call back, 10 s.
	Visit time.Duration
	// JobUser is for a job to become known here that its node knows already, 3 s.
	JobUser time.Duration
	// Index is for an index that was seen at another coordinator, 5 s.
	Index time.Duration
	// Agree is the pause before asking coordinators again that did not answer, 1 s.
	Agree time.Duration
}

func (w *Waits) fill() {
	*w = Waits{
		First: cmp.Or(w.First, 20*time.Second), Leader: cmp.Or(w.Leader, 10*time.Second), Visit: cmp.Or(w.Visit, 10*time.Second), JobUser: cmp.Or(w.JobUser, 3*time.Second),
		Index: cmp.Or(w.Index, 5*time.Second), Agree: cmp.Or(w.Agree, time.Second),
	}
}

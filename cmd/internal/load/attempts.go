package load

import (
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/cluster/wait"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// utilMilli is what each job uses of a GPU.
const utilMilli = 300

// take does what the leader wants on this node; first says that it is all there is.
func (n *node) take(d *nodev1.Desired, first bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if d.Full || first {
		known := map[attempt]bool{}
		for _, as := range d.Assignments {
			known[attempt{as.Job, as.Attempt}] = true
		}
		for id, r := range n.runs {
			if !known[id] {
				n.forget(id, r)
			}
		}
		n.sent = 0
		n.rouse()
	}
	for _, as := range d.Assignments {
		id := attempt{as.Job, as.Attempt}
		r := n.runs[id]
		switch {
		case r == nil && as.Stop:
			n.runs[id] = &run{of: as, started: time.Now(), ended: true}
			n.report(n.runs[id], nodev1.AttemptState_ATTEMPT_STATE_CANCELLED)
		case r == nil:
			n.start(id, as)
		case as.Stop:
			n.end(id, nodev1.AttemptState_ATTEMPT_STATE_CANCELLED)
		}
	}
	for _, ref := range d.Released {
		id := attempt{ref.Job, ref.Attempt}
		if r := n.runs[id]; r != nil {
			n.forget(id, r)
		}
	}
}

func (n *node) forget(id attempt, r *run) {
	if r.timer != nil {
		r.timer.Stop()
	}
	delete(n.runs, id)
}

// start starts an attempt, whose command says how long it runs.
func (n *node) start(id attempt, as *nodev1.Assignment) {
	r := &run{of: as, started: time.Now()}
	n.runs[id] = r
	n.fleet.hasStarted(as.Job, r.started)
	n.report(r, nodev1.AttemptState_ATTEMPT_STATE_RUNNING)
	if len(as.Command) < 2 {
		return
	}
	length, err := time.ParseDuration(string(as.Command[1]))
	if err != nil {
		return
	}
	if length == 0 {
		n.end(id, nodev1.AttemptState_ATTEMPT_STATE_COMPLETED)
		return
	}
	r.timer = time.AfterFunc(length, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.end(id, nodev1.AttemptState_ATTEMPT_STATE_COMPLETED)
	})
}

func (n *node) end(id attempt, state nodev1.AttemptState) {
	r := n.runs[id]
	if r == nil || r.ended {
		return
	}
	r.ended = true
	if r.timer != nil {
		r.timer.Stop()
	}
	n.report(r, state)
}

// report puts news of r behind those that are not acknowledged.
func (n *node) report(r *run, state nodev1.AttemptState) {
	rep := &nodev1.Report{Job: r.of.Job, Attempt: r.of.Attempt, Token: r.of.Token, State: state, Started: timestamppb.New(r.started)}
	if r.ended {
		rep.Ended, rep.Exit = timestamppb.Now(), &nodev1.Exit{}
		rep.Usage = &nodev1.Usage{GpuMemPeakMib: peakOf(r.of), GpuMilli: utilMilli, HostMemPeakMib: 512, CpuMilli: 500}
	}
	n.reports = append(n.reports, rep)
	n.rouse()
}

// peakOf returns how much GPU memory an attempt uses: all that it was given.
func peakOf(as *nodev1.Assignment) int64 {
	if len(as.Gpus) == 0 {
		return 0
	}
	return as.Gpus[0].MemMib
}

func (n *node) rouse() { wait.Poke(n.wake) }

// news returns reports that this session has not sent.
func (n *node) news() []*nodev1.Report {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := slices.Clone(n.reports[n.sent:min(len(n.reports), n.sent+reportsPerMessage)])
	n.sent += len(out)
	if n.sent < len(n.reports) {
		n.rouse()
	}
	return out
}

// acked drops reports that the leader has committed.
func (n *node) acked(acks []*nodev1.Ack) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, a := range acks {
		i := slices.IndexFunc(n.reports, func(r *nodev1.Report) bool {
			return r.Job == a.Job && r.Attempt == a.Attempt && r.State == a.State
		})
		if i < 0 {
			continue
		}
		n.reports = slices.Delete(n.reports, i, i+1)
		if i < n.sent {
			n.sent--
		}
		if a.State >= nodev1.AttemptState_ATTEMPT_STATE_COMPLETED {
			n.fleet.ended.Add(1)
		}
	}
}

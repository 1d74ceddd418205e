package load

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

func assignment(job uint64, length string) *nodev1.Assignment {
	as := &nodev1.Assignment{Job: job, Attempt: 1, Command: [][]byte{[]byte("load")}, Gpus: []*nodev1.Share{{Uuid: "GPU-n1-0", MemMib: 100}}}
	if length != "" {
		as.Command = append(as.Command, []byte(length))
	}
	return as
}

// told returns what a node reports now, and acknowledges it.
func told(n *node) (out []string) {
	var acks []*nodev1.Ack
	for _, r := range n.news() {
		out = append(out, fmt.Sprint(r.Job, " ", r.State.String()[len("ATTEMPT_STATE_"):]))
		acks = append(acks, &nodev1.Ack{Job: r.Job, Attempt: r.Attempt, State: r.State})
	}
	n.acked(acks)
	return out
}

func TestNodeRunsWhatItIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{began: make([]atomic.Int64, 10)}
		n := newNode(f, "n1", 1, nil)
		expect := func(want ...string) {
			t.Helper()
			if got := told(n); !slices.Equal(got, want) {
				t.Errorf("it reports %q, want %q", got, want)
			}
		}
		n.take(&nodev1.Desired{Full: true, Assignments: []*nodev1.Assignment{assignment(1, "0s"), assignment(2, "5s"), assignment(3, ""), assignment(4, "")}}, true)
		expect("1 RUNNING", "1 COMPLETED", "2 RUNNING", "3 RUNNING", "4 RUNNING")
		if beat := n.measure(nil); beat.Gpus[0].UsedMib != 300 || len(beat.Attempts) != 3 {
			t.Errorf("a heartbeat says %v, want three attempts with 300 MiB", beat)
		}
		// What it has heard already changes nothing.
		n.take(&nodev1.Desired{Assignments: []*nodev1.Assignment{assignment(2, "5s")}}, false)
		expect()
		time.Sleep(6 * time.Second)
		stop := assignment(3, "")
		stop.Stop = true
		n.take(&nodev1.Desired{Assignments: []*nodev1.Assignment{stop}, Released: []*nodev1.AttemptRef{{Job: 2, Attempt: 1}}}, false)
		expect("2 COMPLETED", "3 CANCELLED")
		if f.ended.Load() != 3 || f.started.Load() != 4 {
			t.Errorf("%d attempts have ended of %d, want 3 of 4", f.ended.Load(), f.started.Load())
		}
		// A leader that does not know of 4 wants it gone.
		n.take(&nodev1.Desired{Full: true}, true)
		if len(n.runs) != 0 {
			t.Errorf("%d attempts are left, want none", len(n.runs))
		}
	})
}

func TestNodeReportsUntilItIsHeard(t *testing.T) {
	n := newNode(&fleet{}, "n1", 1, nil)
	n.take(&nodev1.Desired{Full: true, Assignments: []*nodev1.Assignment{assignment(1, "0s")}}, true)
	if lost := n.news(); len(lost) != 2 || len(n.news()) != 0 {
		t.Fatalf("it reports %v, want two states, once", lost)
	}
	n.take(&nodev1.Desired{Full: true, Assignments: []*nodev1.Assignment{assignment(1, "0s")}}, true) // of the next session
	if got, want := told(n), []string{"1 RUNNING", "1 COMPLETED"}; !slices.Equal(got, want) {
		t.Errorf("the next leader hears %q, want %q", got, want)
	}
}

package outbox

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// TestReportsCanBeSent: a report that quotes a path of a user's is kept and sent
// whatever bytes that has. One that could not be sent would break each session
// anew, and one that could not be kept would leave its attempt without an end.
func TestReportsCanBeSent(t *testing.T) {
	t.Parallel()
	o := New()
	o.Put(&nodev1.Report{Job: 1, Attempt: 1, Detail: "open /none/caf\xe9: no such file", Drain: "\xff"})
	for _, r := range o.Take(1) {
		if _, err := proto.Marshal(r); err != nil || r.Detail != "open /none/caf?: no such file" || r.Drain != "?" {
			t.Errorf("got %q and %q, %v", r.Detail, r.Drain, err)
		}
	}
}

// TestTheNewestReportWins: whatever comes late, from wherever: what is to be said
// of an attempt only goes up, is said in each session until it is acknowledged,
// and an acknowledgement of less leaves it.
func TestTheNewestReportWins(t *testing.T) {
	t.Parallel()
	const starting, running, completed = nodev1.AttemptState_ATTEMPT_STATE_STARTING, nodev1.AttemptState_ATTEMPT_STATE_RUNNING, nodev1.AttemptState_ATTEMPT_STATE_COMPLETED
	id := cluster.AttemptID{Job: 1, No: 1}
	o := New()
	put := func(s nodev1.AttemptState) { o.Put(&nodev1.Report{Job: 1, Attempt: 1, State: s}) }
	take := func(what string, want ...nodev1.AttemptState) {
		t.Helper()
		got := o.Take(10)
		if len(got) != len(want) {
			t.Fatalf("%s: %v is sent, want %v", what, got, want)
		}
		for i := range got {
			if got[i].State != want[i] {
				t.Errorf("%s: %s is sent, want %s", what, got[i].State, want[i])
			}
		}
	}
	put(running)
	put(starting) // it was on its way when the process began
	take("a report of before", running)
	put(completed)
	put(running)
	take("the end", completed)
	take("nothing since")
	o.Ack(id, running) // of the report before
	if !o.Has(id) {
		t.Error("an acknowledgement of an older state dropped the end")
	}
	o.Rewind()
	take("a new session", completed)
	o.Ack(id, completed)
	o.Rewind()
	take("after it was acknowledged")
	if o.Has(id) {
		t.Error("what was acknowledged waits still")
	}
}

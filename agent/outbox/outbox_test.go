package outbox

import (
	"testing"

	"google.golang.org/protobuf/proto"

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

package cards

import (
	"testing"

	"google.golang.org/protobuf/proto"

	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// TestProblemsOfCardsCanBeSaid: whatever bytes a program says of a card.
func TestProblemsOfCardsCanBeSaid(t *testing.T) {
	t.Parallel()
	c := newCardStates()
	c.Set("GPU-1", whoCheck, Quarantined, "says \xff")
	c.SetProblem("me", "says \xff")
	h := &nodev1.Hello{Problem: c.problems()}
	if _, h.Address = c.Get("GPU-1"); h.Address == "" {
		t.Fatal("the card has no reason")
	}
	if _, err := proto.Marshal(h); err != nil {
		t.Errorf("a reason that a program gave breaks the session: %v", err)
	}
}

package agent

import (
	"testing"

	"google.golang.org/protobuf/proto"

	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// TestProblemsOfCardsCanBeSaid: whatever bytes a program says of a card.
func TestProblemsOfCardsCanBeSaid(t *testing.T) {
	t.Parallel()
	c := newCardStates()
	c.set("GPU-1", whoCheck, GPUQuarantined, "says \xff")
	c.setProblem("me", "says \xff")
	h := &nodev1.Hello{Problem: c.problems()}
	if _, h.Address = c.get("GPU-1"); h.Address == "" {
		t.Fatal("the card has no reason")
	}
	if _, err := proto.Marshal(h); err != nil {
		t.Errorf("a reason that a program gave breaks the session: %v", err)
	}
}

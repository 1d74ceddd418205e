package slurmcmd

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// TestWhoDrained: sinfo -R says who drained a node last and when, and nothing of
// what befell its cards or was taken back.
func TestWhoDrained(t *testing.T) {
	now := time.Date(2026, 3, 14, 15, 9, 26, 0, time.UTC)
	uid, other := uint32(4_000_000), uint32(4_000_001) // nobody has these
	event := func(hour int, kind, gpu string, by *uint32) *apiv1.NodeEvent {
		return &apiv1.NodeEvent{At: timestamppb.New(now.Add(time.Duration(hour) * time.Hour)), Kind: kind, Gpu: gpu, ByUid: by}
	}
	n := &apiv1.Node{Id: "n1", State: "ready", Drain: true, DrainReason: "ECC", History: []*apiv1.NodeEvent{
		event(-9, "drained", "", &other), event(-8, "resumed", "", &other), event(-5, "drained", "", &uid), event(-4, "lost", "", nil), event(-3, "drained", "GPU-1", &other),
	}}
	s := slurmNode(n, now)
	if s.User != "4000000" || s.UserID != uid || !s.ReasonAt.Equal(now.Add(-5*time.Hour)) {
		t.Errorf("drained by %s (%d) at %s", s.User, s.UserID, s.ReasonAt)
	}
	n.History = append(n.History, event(-2, "resumed", "", &uid))
	if s := slurmNode(n, now); s.User != "root" || !s.ReasonAt.IsZero() {
		t.Errorf("resumed, but drained by %s at %s", s.User, s.ReasonAt)
	}
}

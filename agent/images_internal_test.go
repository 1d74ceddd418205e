package agent

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// shelf holds images, or says that it cannot be asked.
type shelf struct {
	names []string
	err   error
	asked int
}

func (s *shelf) Pulls(context.Context) map[cluster.AttemptID]cluster.Pull { return nil }

func (s *shelf) Held(context.Context) ([]string, error) {
	s.asked++
	return s.names, s.err
}

// TestTheLeaderIsToldOfImagesOnce: at the first heartbeat of a session, none too, and then
// of what changed; a containerd that does not answer is asked again.
func TestTheLeaderIsToldOfImagesOnce(t *testing.T) {
	t.Parallel()
	s := &shelf{}
	k, held := &link{every: time.Minute, puller: s}, heldImages{}
	var told []any
	beat := func(times int) {
		for range times {
			var names any
			if h := held.news(t.Context(), k); h != nil {
				names = append([]string{}, h.Names...)
			}
			told = append(told, names)
		}
	}
	beat(1)
	s.names = []string{"a"}
	beat(imageBeats)
	s.names, s.err = []string{"a", "b"}, errors.New("gone")
	beat(imageBeats)
	s.err = nil
	beat(2 * imageBeats)
	want := []any{[]string{}, nil, nil, nil, []string{"a"}, nil, nil, nil, nil, nil, nil, nil, []string{"a", "b"}, nil, nil, nil, nil}
	if d := cmp.Diff(want, told); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if s.asked != 5 {
		t.Errorf("containerd was asked %d times in %d heartbeats", s.asked, len(told))
	}
	fresh := heldImages{}
	if got := fresh.news(t.Context(), k); got == nil || len(got.Names) != 2 {
		t.Errorf("the next leader was told %v", got)
	}
	if got := (&heldImages{}).news(t.Context(), &link{every: time.Minute}); got != (*nodev1.HeldImages)(nil) {
		t.Errorf("a node without containerd told %v", got)
	}
}

package relay

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-scheduler/berth/agent/launch"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// TestAFileSystemThatDoesNotAnswer: whoever asks for an output there is told so, and a reader
// whose user has gone, or whose agent ends, is not waited for.
func TestAFileSystemThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := New(slog.New(slog.DiscardHandler), time.Hour)
		defer s.Close()
		answer := make(chan struct{})
		s.open = func(string) (*os.File, error) { <-answer; return nil, os.ErrNotExist }
		v := &Visit{
			Launch: &launch.Launch{UID: 65534, GID: 65534, Stdout: "/nfs/out"}, Node: "n1",
			Ask: &nodev1.Visit{Uid: 65534, Open: &apiv1.AttachOpen{What: &apiv1.AttachOpen_Logs{Logs: &apiv1.AttachLogs{}}}},
		}
		err := s.serve(t.Context(), &link{}, v)
		if err == nil || !strings.Contains(err.Error(), "the output /nfs/out on node n1: the file system does not answer") {
			t.Errorf("got %v", err)
		}
		ctx, gone := context.WithTimeout(t.Context(), 3*time.Second)
		defer gone()
		began := time.Now()
		if err := s.serve(ctx, &link{}, v); err != context.DeadlineExceeded || time.Since(began) != 3*time.Second+closeWait {
			t.Errorf("got %v after %s", err, time.Since(began))
		}
		s.mu.Lock()
		if s.users[65534] != 1 || s.all != 1 {
			t.Errorf("%d visits are counted, want the one that still reads", s.all)
		}
		s.mu.Unlock()
		close(answer)
		synctest.Wait()
		if s.all != 0 {
			t.Errorf("%d visits are counted in the end", s.all)
		}
	})
}

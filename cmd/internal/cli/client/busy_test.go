package client_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

// TestWaitsAsLongAsItIsTold: a command that is turned away for asking too much
// waits, asks again and succeeds, and its user sees nothing of it.
func TestWaitsAsLongAsItIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := clitest.NewWorld(t), clitest.NewFake()
		w.Vars["BERTH_SOCKET"] = "/a"
		times := 0
		f.Hook = func(context.Context, string) error {
			if times++; times > 3 {
				return nil
			}
			return apiconv.StatusAfter(&cluster.Error{Code: cluster.CodeExhausted, Msg: "you ask too often"}, 300*time.Millisecond).Err()
		}
		w.Serve("/a", f)
		began := time.Now()
		if code := w.Run("submit", "--parsable", "--", "true"); code != 0 || w.Out.String() != "101\n" {
			t.Errorf("exit code %d: %s%s", code, w.Out.String(), w.Errs.String())
		}
		if d := time.Since(began); d < 900*time.Millisecond || d > 5*time.Second {
			t.Errorf("asked again three times within %s, want 300 ms before each", d)
		}
	})
}

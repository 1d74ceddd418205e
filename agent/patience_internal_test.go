package agent

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-scheduler/berth/agent/launch"
)

// TestAwaitsOutput: a missing directory of the output is waited for, and not for
// ever; what cannot pass by itself is not.
func TestAwaitsOutput(t *testing.T) {
	t.Parallel()
	missing := fmt.Errorf("create: %w", &launch.Error{Code: 125, Reason: "OUTPUT", Missing: true, Err: errors.New("no such directory")})
	denied := &launch.Error{Code: 125, Reason: "OUTPUT", Err: errors.New("permission denied")}
	synctest.Test(t, func(t *testing.T) {
		w := &task{}
		if w.awaitsOutput(denied) || w.awaitsOutput(errors.New("busy")) {
			t.Error("waits for what is not missing")
		}
		for d := time.Duration(0); d < outputPatience; d += time.Second {
			if !w.awaitsOutput(missing) {
				t.Fatalf("gives up after %s", d)
			}
			time.Sleep(time.Second)
		}
		if w.awaitsOutput(missing) {
			t.Errorf("still waits after %s", outputPatience)
		}
	})
}

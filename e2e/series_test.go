package e2e

import (
	"fmt"
	"regexp"
	"testing"
	"time"
)

// TestWhatCardsShowedOutlivesTheLeader: the next leader asks the node for what it did
// not hear itself.
func TestWhatCardsShowedOutlivesTheLeader(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--coordinators", "3", "--nodes", "1x1xT4")
	id := c.submit("--gpus", "1", "--", "sleep", "1000")
	c.await(id, "RUNNING")
	spans := regexp.MustCompile(`(?m)^T4 0 of n1, all of it, (.*) to (.*)$`)
	span := func() (from, to string) {
		if m := spans.FindStringSubmatch(c.run("show", "--plot", fmt.Sprint(id))); m != nil {
			return m[1], m[2]
		}
		return "", ""
	}
	began := time.Now()
	c.eventually("two steps", func() bool {
		from, to := span()
		return from != to && time.Since(began) > 15*time.Second
	})
	from, to := span()
	old := c.leader()
	c.kill(old.PID)
	c.eventually("another leader that knows more than before", func() bool {
		_, until := span()
		return until != "" && until != to && c.leader().ID != old.ID
	})
	if now, until := span(); now != from {
		t.Errorf("it showed from %s to %s, and after a change of leaders from %s to %s", from, to, now, until)
	}
	c.run("cancel", fmt.Sprint(id))
}

package agent_test

import (
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/agent/login"
)

// TestWhoMayLogIn: whoever has a job that runs here, for as long as it runs, and
// the newest of several counts.
func TestWhoMayLogIn(t *testing.T) {
	r := newRig(t)
	alice, byName := login.Who{UID: 1000, Name: "alice"}, login.Who{UID: -1, Name: "alice"}
	resident := func(who login.Who) string {
		job, err := r.agent.Resident(who)
		if err != nil {
			return err.Error()
		}
		return job
	}
	if got := resident(alice); !strings.Contains(got, "no running job") {
		t.Errorf("before any job: %s", got)
	}
	r.leader.Assign(assignment(1))
	r.leader.Assign(assignment(2))
	r.reported(1, running)
	r.reported(2, running)
	if one, other := resident(alice), resident(byName); one != "2" || other != "2" {
		t.Errorf("let in to job %s by uid and %s by name, want the newest, 2", one, other)
	}
	for _, who := range []login.Who{{UID: 1001, Name: "alice"}, {UID: -1}, {UID: -1, Name: "bob"}, {UID: 0}} {
		if got := resident(who); !strings.Contains(got, "no running job") {
			t.Errorf("%+v was let in to %s", who, got)
		}
	}
	// This runtime has no control groups, so that nothing would hold them.
	if _, err := r.agent.Adopt(alice, 4711); err == nil || !strings.Contains(err.Error(), "no control groups") {
		t.Errorf("adopted without a group: %v", err)
	}
	r.rt.Exit(id(2), 0, true)
	r.eventually("only job 1 to be left", func() bool { return resident(alice) == "1" })
	r.rt.Exit(id(1), 0, true)
	r.eventually("nobody to be let in", func() bool { return strings.Contains(resident(alice), "no running job") })
}

package fsm

import (
	"testing"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/accounting"
)

// TestRefusedRulesCountNothing: what is refused of accounts and quotas leaves what
// is counted as it was.
func TestRefusedRulesCountNothing(t *testing.T) {
	t.Parallel()
	m := accounted(t)
	m.must(setCmd(quota(accounting.Subject{Account: "bio"}, accounting.Limits{Jobs: 3}), 0))
	two := []*cluster.Spec{in("bio", ""), in("bio", "")}
	m.must(submitCmd(m.f.NextJobID(), "the first two", 1000, two...))
	for range 3 { // each of one holder that has room, and one that has not
		m.refused(cluster.CodeExhausted, submitCmd(m.f.NextJobID(), "too many", 1000, in("site", ""), in("bio", "low"), in("bio", "")))
	}
	used := func() accounting.Tally { return m.f.Standing(0).Limits.Tally(accounting.Subject{Account: "bio"}) }
	if got := used(); got != (accounting.Tally{Jobs: 2}) {
		t.Errorf("after refusals the quota counts %+v", got)
	}
	m.must(submitCmd(m.f.NextJobID(), "the third", 1000, in("bio", "low")))
	if got := used(); got != (accounting.Tally{Jobs: 3}) {
		t.Errorf("%+v", got)
	}
	id := m.submit(in("site", ""))
	for range 3 {
		m.refused(cluster.CodeExhausted, updateCmd(m.job(id), func(s *cluster.Spec) { s.Account = "bio" }))
	}
	if got := used(); got != (accounting.Tally{Jobs: 3}) {
		t.Errorf("after refused moves the quota counts %+v", got)
	}
	m.must(cancelCmd(id, 0))
	if got := used(); got != (accounting.Tally{Jobs: 3}) {
		t.Errorf("after the end of another one %+v", got)
	}
	m.must(cancelCmd(1, 0))
	m.must(cancelCmd(1, 0))
	if got := used(); got != (accounting.Tally{Jobs: 2}) {
		t.Errorf("after one was cancelled twice %+v", got)
	}
}

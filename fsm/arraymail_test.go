package fsm

import (
	"slices"
	"testing"

	"github.com/berth-scheduler/berth/cluster"
)

// TestMailsOfAnArray: one when it begins and one when the last task has ended, bad if
// one of them was; each task is told of with ARRAY_TASKS alone.
func TestMailsOfAnArray(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ev   cluster.MailEvents
		ends []cluster.JobState
		want []string
		text string
	}{
		"well": {cluster.MailBegin | cluster.MailEnd | cluster.MailFail, []cluster.JobState{cluster.JobCompleted, cluster.JobCompleted},
			[]string{"BEGIN job 1 to 0 RUNNING", "END job 2 to 0 COMPLETED"}, "COMPLETED"},
		"one failed": {cluster.MailBegin | cluster.MailEnd | cluster.MailFail, []cluster.JobState{cluster.JobFailed, cluster.JobCompleted},
			[]string{"BEGIN job 1 to 0 RUNNING", "FAIL job 2 to 0 FAILED"}, "Mixed, 1 of 2 tasks completed"},
		"each": {cluster.MailBegin | cluster.MailEnd | cluster.MailArrayTasks, []cluster.JobState{cluster.JobCompleted, cluster.JobCompleted},
			[]string{"BEGIN job 1 to 0 RUNNING", "END job 1 to 0 COMPLETED", "BEGIN job 2 to 0 RUNNING", "END job 2 to 0 COMPLETED"}, ""},
	} {
		m := newMachine(t)
		m.must(registerCmd(node("n1", "b1", 1)))
		s := mailed(c.ev)
		s.Array, _ = cluster.ParseArray("0-1")
		id := m.submit(s)
		for k, end := range c.ends {
			task := id + cluster.JobID(k)
			m.start(task, share1("n1-g0", 8000, 300))
			m.must(m.says(task, cluster.JobRunning))
			m.must(m.says(task, end))
		}
		if got := told(m.f); !slices.Equal(got, c.want) {
			t.Errorf("%s: told %q, want %q", name, got, c.want)
		}
		ns := m.f.Notices(0, maxNotices)
		if n := ns[len(ns)-1]; n.ArrayJob != uint64(id) || n.WholeArray != (c.text != "") || n.Text != c.text || n.WholeArray == (n.ArrayTask == 1) {
			t.Errorf("%s: the last notice is %v", name, n)
		}
	}
}

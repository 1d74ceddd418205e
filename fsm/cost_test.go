package fsm

import (
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// TestCostCountsWhomACommandReaches: what leaders bound entries by grows with the jobs
// that a command names, and with those that wait for what it ends or lie where it
// happens; not with all that there are.
func TestCostCountsWhomACommandReaches(t *testing.T) {
	t.Parallel()
	m := lab(t)
	busy, idle, runs := m.submit(spec(0)), m.submit(spec(0)), running(m, spec(1), 8000)
	late := m.now.Add(time.Hour)
	for _, id := range []cluster.JobID{busy, busy, busy, runs, runs} {
		m.submit(after(cluster.AfterOK, id))
	}
	tasks := spec(1)
	tasks.Array, _ = cluster.ParseArray("0-99")
	array := m.submit(tasks)
	m.must(holdCmd(array+7, 0, false)) // one by itself, the rest folded
	m.submit(after(cluster.AfterAny, array))
	m.submit(after(cluster.AfterAny, array))
	alone := func(id cluster.JobID) *logv1.Command { return cancelCmd(id, 0) }
	many := make([]*cluster.Spec, 40)
	for i := range many {
		many[i] = spec(0)
	}
	waits := spec(0)
	for range 24 {
		waits.Depends = append(waits.Depends, cluster.Dependency{Kind: cluster.AfterAny, Job: busy})
	}
	note := &logv1.NoteProgress{}
	for range 5 {
		note.Attempts = append(note.Attempts, conv.NoteProgress(cluster.AttemptID{Job: runs, No: 1}, &cluster.Progress{}))
	}
	for what, c := range map[string]struct {
		cmd  *logv1.Command
		want int
	}{
		"loads of seven services":               {loadsCmd(make([]*logv1.ServiceLoad, 7)...), 8},
		"a cancel of one that nobody waits for": {alone(idle), 1},
		"a cancel of one that three wait for":   {alone(busy), 4},
		"a cancel of a task":                    {alone(array + 3), 3},
		"a report of one that two wait for":     {reportCmd(m.reportOf(runs, cluster.JobCompleted)), 3},
		"ends of what was promised a time":      {expireCmd(busy, idle, 999), 1 + 4 + 1 + 1},
		"a change of an array in two parts":     {tasksCmd(changeCmd(array, "", logv1.TaskChange_TASK_CHANGE_HOLD)), 1 + 2 + 2},
		"a change of no array":                  {tasksCmd(changeCmd(idle, "", logv1.TaskChange_TASK_CHANGE_HOLD)), 1},
		"a submit of forty":                     {submitCmd(999, "r", 1000, many...), 41},
		"a submit of one that waits for many":   {submitCmd(999, "r", 1000, waits), 1 + 1 + 3},
		"a plan":                                {planCmd(dispatch.Plan{Starts: make([]dispatch.Start, 3), Moves: make([]dispatch.QueueMove, 4)}), 8},
		"estimates of two groups":               {estimateCmd(estimated(nil, 1, 2, 3), estimated(nil, 4)), 1 + 4 + 2},
		"progress of five":                      {&logv1.Command{Kind: &logv1.Command_NoteProgress{NoteProgress: note}}, 6},
		"what became of sixteen notices":        {settleCmd(make([]uint64, 12), make([]*logv1.SettleNotices_GivenUp, 4)...), 3},
		"a node with a job":                     {registerCmd(node("n1", "boot1", 2)), 2},
		"a node that is silent":                 {silentCmd("n1", "boot1"), 2},
		"a node that is given up":               {fenceCmd("n1"), 2},
		"a node without":                        {fenceCmd("n2"), 1},
		"a part of what is large":               {&logv1.Command{Kind: &logv1.Command_PutBulk{PutBulk: &logv1.PutBulk{Size: 100 << 10}}}, 101},
		"a drain":                               {drainCmd("n1", true), 1},
		"a token":                               {tokenCmd("s", agentRole, "n9", late), 1},
	} {
		if got := m.f.Cost(c.cmd); got != c.want {
			t.Errorf("%s costs %d, want %d", what, got, c.want)
		}
	}
	before := m.f.Cost(partitionCmd(&cluster.Partition{Name: "gpu"}, 0))
	m.must(submitCmd(m.f.NextJobID(), "forty", 1000, many...))
	if got := m.f.Cost(partitionCmd(&cluster.Partition{Name: "gpu"}, 0)); got <= before || got > before+40 {
		t.Errorf("a partition costs %d with forty more jobs that wait, %d without", got, before)
	}
}

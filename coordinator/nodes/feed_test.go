package nodes

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/fsm"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// TestFeed: whoever waits for a node is woken by each change of it, of its jobs and of
// those that ended there, on every node that they lie on, and by nothing else; who is
// gone is not, and takes nobody along. Where changes were missed all are woken.
func TestFeed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, Config{}, fsm.Options{ChangeRing: 8})
		l.agent("n1")
		l.agent("n2")
		chans := map[string]<-chan struct{}{}
		for _, node := range []cluster.NodeID{"n1", "n2", "n3"} {
			ch, end := l.n.feed.subscribe(node)
			defer end()
			chans[string(node)] = ch
		}
		_, end := l.n.feed.subscribe("n1")
		end()
		woken := func() string {
			synctest.Wait()
			var out []string
			for _, n := range []string{"n1", "n2", "n3"} {
				select {
				case <-chans[n]:
					out = append(out, n)
				default:
				}
			}
			return strings.Join(out, " ")
		}
		want := func(what, nodes string) {
			t.Helper()
			if got := woken(); got != nodes {
				t.Errorf("%s: %q are woken, want %q", what, got, nodes)
			}
		}
		woken()
		id := l.submit(&cluster.Spec{Name: "j", Command: []string{"x"}, Dir: "/", Nodes: 2})
		want("a job came", "")
		l.start(dispatch.Start{Job: id, Attempt: 1, Berth: cluster.Berth{Node: "n1", CPUMilli: 1, MemMiB: 1}, Rest: []cluster.Berth{{Node: "n2", CPUMilli: 1, MemMiB: 1}}})
		want("it starts on two nodes", "n1 n2")
		l.do(&logv1.Command{Kind: &logv1.Command_CancelJob{CancelJob: &logv1.CancelJob{Job: uint64(id), Admin: true}}})
		want("it is cancelled", "n1 n2")
		for _, n := range []string{"n1", "n2"} {
			l.do(&logv1.Command{Kind: &logv1.Command_ReportAttempt{ReportAttempt: &logv1.ReportAttempt{Node: n, Job: uint64(id), Attempt: 1, Token: uint64(l.job(id).Last().Token), State: uint32(cluster.JobCancelled)}}})
		}
		if got := woken(); !strings.Contains(got, "n1 n2") || !l.job(id).State.Terminal() {
			t.Errorf("it ended (%s): %q are woken", l.job(id).State, got)
		}
		l.do(&logv1.Command{Kind: &logv1.Command_DrainNode{DrainNode: &logv1.DrainNode{Node: "n2", Drain: true, Reason: "x"}}})
		want("a node is drained", "n2")
		l.told.Lock()
		before := len(l.told.changes)
		l.told.Unlock()
		var cmds []*logv1.Command
		for i := range 30 {
			cmds = append(cmds, &logv1.Command{Kind: &logv1.Command_DrainNode{DrainNode: &logv1.DrainNode{Node: "n2", Drain: i%2 == 1, Reason: "x"}}})
		}
		if _, err := l.prop.Do(t.Context(), cmds...); err != nil {
			t.Fatal(err)
		}
		if got := woken(); got != "n1 n2 n3" || l.told.missed != 1 || len(l.told.changes) != before {
			t.Errorf("more changes than are kept: %q are woken, missed %d times", got, l.told.missed)
		}
	})
}

package fsm

import (
	"fmt"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/jobs"
)

// checkGangs: an attempt has as many nodes as its job asks for, each once, and
// its state follows from those of its parts.
func checkGangs(j *cluster.Job, a *cluster.Attempt) error {
	if err := jobs.CheckGang(j, a); err != nil {
		return err
	}
	g := a.Gang
	if g == nil {
		return nil
	}
	nodes := map[cluster.NodeID]bool{}
	for rank, b := range a.Berths() {
		if !a.Stays(rank) && !a.PartLive(rank) {
			continue // it may have come back
		}
		if nodes[b.Node] {
			return fmt.Errorf("job %d: attempt %d is on node %s twice", j.ID, a.No, b.Node)
		}
		nodes[b.Node] = true
	}
	for i := range g.Parts {
		p := &g.Parts[i]
		switch {
		case p.State.Live() == p.State.Terminal():
			return fmt.Errorf("job %d: part %d of attempt %d is %s", j.ID, i, a.No, p.State)
		case (p.Left > 0 || p.Token > 0) && (i == 0 || !j.Spec.InPlace || !g.Go):
			return fmt.Errorf("job %d: part %d of attempt %d came or left: %+v", j.ID, i, a.No, *p)
		case p.Left > 0 && g.First == i+1:
			return fmt.Errorf("job %d: part %d of attempt %d left, and decides", j.ID, i, a.No)
		case p.State.Terminal() && (p.Ended == 0 || p.Ended < p.Started || p.Ended < a.Placed):
			return fmt.Errorf("job %d: part %d of attempt %d ended at %d, started at %d", j.ID, i, a.No, p.Ended, p.Started)
		case p.State.Terminal() && p.State != cluster.JobCompleted && p.Reason.Code == "":
			return fmt.Errorf("job %d: part %d of attempt %d is %s for no reason", j.ID, i, a.No, p.State)
		case g.Go && !p.Ready:
			return fmt.Errorf("job %d: attempt %d started before part %d was ready", j.ID, a.No, i)
		}
	}
	switch {
	case g.First > 0 && g.Parts[g.First-1].State.Live():
		return fmt.Errorf("job %d: part %d decides and is alive", j.ID, g.First-1)
	case a.State == cluster.JobCompleted && g.First > 0, a.State == cluster.JobCompleted && g.Undo.Code != "":
		return fmt.Errorf("job %d: attempt %d completed and part %d failed", j.ID, a.No, g.First-1)
	case g.Go && g.Undo.Code != "":
		return fmt.Errorf("job %d: attempt %d started and was given up", j.ID, a.No)
	case a.State.Terminal() && (a.State == cluster.JobFailed || a.State == cluster.JobNodeFail) && g.First == 0 && g.Undo.Code == "":
		return fmt.Errorf("job %d: attempt %d is %s and no part failed", j.ID, a.No, a.State)
	}
	if a.State == cluster.JobCompleted {
		for i := range g.Parts {
			if p := &g.Parts[i]; p.State != cluster.JobCompleted && p.Left == 0 && (p.Token == 0 || i == 0) {
				return fmt.Errorf("job %d completed with part %d %s", j.ID, i, g.Parts[i].State)
			}
		}
	}
	return nil
}

// checkParts: a part that ended does not change, one that is ready stays so, and
// who decides stays who decides.
func (w *watcher) checkParts(_ *State, all []*cluster.Job) error {
	for _, j := range all {
		old := w.prev[j.ID]
		if old == nil || old == j {
			continue
		}
		for i := range old.Attempts {
			was, now := old.Attempts[i].Gang, j.Attempts[i].Gang
			if was == nil {
				continue
			}
			if was.Go && !now.Go || was.First != 0 && was.First != now.First || was.Undo.Code != "" && was.Undo != now.Undo {
				return fmt.Errorf("job %d: gang of attempt %d went back: %+v, then %+v", j.ID, i+1, was, now)
			}
			for k := range was.Parts {
				if was.Parts[k].State.Terminal() && !cmp.Equal(was.Parts[k], now.Parts[k]) || was.Parts[k].Ready && !now.Parts[k].Ready {
					return fmt.Errorf("job %d: part %d of attempt %d changed: %s", j.ID, k, i+1, cmp.Diff(was.Parts[k], now.Parts[k]))
				}
			}
		}
	}
	return nil
}

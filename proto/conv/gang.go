package conv

import (
	"fmt"

	"github.com/berth-scheduler/berth/cluster"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

func berthsToLog(bs []cluster.Berth) []*logv1.Berth {
	var out []*logv1.Berth
	for i := range bs {
		out = append(out, BerthToLog(&bs[i]))
	}
	return out
}

func berthsFromLog(ms []*logv1.Berth) []cluster.Berth {
	var out []cluster.Berth
	for _, m := range ms {
		out = append(out, BerthFromLog(m))
	}
	return out
}

func exitToLog(x *cluster.Exit) *logv1.Exit {
	if x == nil {
		return nil
	}
	return &logv1.Exit{Code: x.Code, Signal: x.Signal}
}

func exitFromLog(m *logv1.Exit) *cluster.Exit {
	if m == nil {
		return nil
	}
	return &cluster.Exit{Code: m.Code, Signal: m.Signal}
}

func gangToLog(g *cluster.Gang) *logv1.Gang {
	if g == nil {
		return nil
	}
	m := &logv1.Gang{Rest: berthsToLog(g.Rest), Go: g.Go, First: uint32(g.First), Undo: reasonToLog(g.Undo)}
	for i := range g.Parts {
		p := &g.Parts[i]
		pm := &logv1.Part{
			BootId: p.BootID, State: uint32(p.State), Ready: p.Ready, StartedUs: int64(p.Started), EndedUs: int64(p.Ended),
			Exit: exitToLog(p.Exit), Reason: reasonToLog(p.Reason), Token: uint64(p.Token), LeftUs: int64(p.Left),
		}
		if p.Usage != (cluster.Usage{}) {
			pm.Usage = UsageToLog(p.Usage)
		}
		m.Parts = append(m.Parts, pm)
	}
	return m
}

// gangFromLog converts back; nil stays nil. There must be as many parts as nodes.
func gangFromLog(m *logv1.Gang) (*cluster.Gang, error) {
	if m == nil {
		return nil, nil
	}
	if len(m.Parts) != len(m.Rest)+1 || int(m.First) > len(m.Parts) {
		return nil, fmt.Errorf("gang of %d nodes and %d parts, of which %d decides, is malformed", len(m.Rest)+1, len(m.Parts), m.First)
	}
	g := &cluster.Gang{Rest: berthsFromLog(m.Rest), Go: m.Go, First: int(m.First), Undo: ReasonFromLog(m.Undo)}
	for i, pm := range m.Parts {
		p := cluster.Part{
			BootID: pm.GetBootId(), State: state(pm.GetState()), Ready: pm.GetReady(), Started: cluster.Time(pm.GetStartedUs()),
			Ended: cluster.Time(pm.GetEndedUs()), Exit: exitFromLog(pm.GetExit()), Reason: ReasonFromLog(pm.GetReason()),
			Usage: UsageFromLog(pm.GetUsage()), Token: cluster.Token(pm.GetToken()), Left: cluster.Time(pm.GetLeftUs()),
		}
		if !p.State.Live() && !p.State.Terminal() {
			return nil, fmt.Errorf("part %d of a gang in state %d", i, pm.GetState())
		}
		g.Parts = append(g.Parts, p)
	}
	return g, nil
}

// ranks returns which processes of an attempt are on the node at rank, nil if the
// attempt has only one process. The coordinator adds where they meet.
func ranks(s *cluster.Spec, a *cluster.Attempt, rank int) *nodev1.Ranks {
	if !s.Ranked() {
		return nil
	}
	m := &nodev1.Ranks{
		Tasks: uint32(s.TaskCount()), MasterPort: uint32(a.Port),
		Go: a.Gang == nil || a.Gang.Go,
	}
	if s.InPlace {
		m.Least, m.Most = uint32(s.NodeRange.Min), uint32(s.NodeRange.Max)
	}
	for _, id := range a.NodeIDs() {
		if id == a.BerthAt(rank).Node {
			m.NodeRank = uint32(len(m.Nodes))
		}
		m.Nodes = append(m.Nodes, string(id))
	}
	return m
}

func changesToLog(cs []cluster.SizeChange) (out []*logv1.SizeChange) {
	for _, c := range cs {
		out = append(out, &logv1.SizeChange{
			AtUs: int64(c.At), From: uint32(c.From), To: uint32(c.To), Why: c.Why, Step: c.Step, StepUs: c.StepTime.Microseconds(), TookUs: c.Took.Microseconds(),
		})
	}
	return out
}

func changesFromLog(ms []*logv1.SizeChange) (out []cluster.SizeChange) {
	for _, m := range ms {
		out = append(out, cluster.SizeChange{
			At: cluster.Time(m.GetAtUs()), From: int(m.GetFrom()), To: int(m.GetTo()), Why: m.GetWhy(), Step: m.GetStep(), StepTime: us(m.GetStepUs()), Took: us(m.GetTookUs()),
		})
	}
	return out
}

// Grow returns the command that gives an attempt further nodes.
func Grow(id cluster.AttemptID, berths []cluster.Berth, why string) *logv1.Command {
	return &logv1.Command{Kind: &logv1.Command_GrowAttempt{GrowAttempt: &logv1.GrowAttempt{
		Job: uint64(id.Job), Attempt: id.No, Berths: berthsToLog(berths), Why: clip(why, maxDetail),
	}}}
}

// GrownBerths returns the berths that a command gives.
func GrownBerths(c *logv1.GrowAttempt) []cluster.Berth { return berthsFromLog(c.Berths) }

// Shrink returns the command that makes an attempt give up nodes, for a job or for
// none in particular.
func Shrink(id cluster.AttemptID, nodes []cluster.NodeID, of cluster.JobID, why string) *logv1.Command {
	c := &logv1.ShrinkAttempt{Job: uint64(id.Job), Attempt: id.No, For: uint64(of), Why: clip(why, maxDetail), Nodes: apiconv.Texts[string](nodes)}
	return &logv1.Command{Kind: &logv1.Command_ShrinkAttempt{ShrinkAttempt: c}}
}

package view

import (
	"fmt"
	"strings"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/units"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// sizeChangeView says how nodes joined or left a running attempt.
type sizeChangeView struct {
	At   *time.Time `json:"at"`
	From uint32     `json:"from"`
	To   uint32     `json:"to"`
	Why  string     `json:"why"`
	// CostSeconds is the time in which the job made no progress, null while unknown.
	CostSeconds *float64 `json:"cost_seconds"`
}

func viewChanges(in []*apiv1.SizeChange) (out []sizeChangeView) {
	for _, c := range in {
		v := sizeChangeView{At: Stamp(c.GetAt()), From: c.GetFrom(), To: c.GetTo(), Why: c.GetWhy()}
		if c.GetTook() != nil {
			v.CostSeconds = new(c.GetTook().AsDuration().Seconds())
		}
		out = append(out, v)
	}
	return out
}

// changesShown is how many changes are put into words: JSON has all that are kept.
const changesShown = 5

// ChangesText says how nodes joined and left during an attempt, the newest
// last; "" if none did.
func ChangesText(e *console.Env, cs []*apiv1.SizeChange) string {
	var lines []string
	for _, c := range cs[max(0, len(cs)-changesShown):] {
		line := fmt.Sprintf("%d to %d at %s: %s", c.GetFrom(), c.GetTo(), console.When(e, c.GetAt()), c.GetWhy())
		if c.GetTook() != nil {
			line += ", which cost it " + units.HumanDuration(c.GetTook().AsDuration())
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "; ")
}

// NodesText returns on how many nodes a job asks to run, "" for one.
func NodesText(s *apiv1.JobSpec) string {
	switch {
	case s.GetInPlace():
		return fmt.Sprintf("%d to %d nodes that join and leave while it runs, this on each", s.GetLeastNodes(), s.GetMostNodes())
	case s.GetMostNodes() > 0:
		return fmt.Sprintf("%d to %d nodes, this on each", s.GetLeastNodes(), s.GetMostNodes())
	case s.GetNodes() > 1:
		return fmt.Sprintf("%d nodes, this on each", s.GetNodes())
	}
	return ""
}

// PartText gives the state of an attempt's part on one node.
func PartText(p *apiv1.Part) string {
	text := p.GetState()
	switch {
	case p.GetState() == cluster.JobStarting.String() && p.GetReady() && !p.GetCame():
		text += " (ready)"
	case p.GetLeft() != nil && p.GetState() != cluster.JobRunning.String() && p.GetState() != cluster.JobStarting.String():
		text += " (given up)"
	case p.GetLeft() != nil:
		text += " (it is given up)"
	}
	return text
}

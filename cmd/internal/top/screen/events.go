package screen

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// mostEvents is how many are kept.
const mostEvents = 2000

// event is something that happened to a node or a GPU, or to a job while the screen was up.
type event struct {
	at         time.Time
	of, detail string
	style      style
	no         int
}

func (s *Screen) event(ev event) {
	ev.no = len(s.events)
	if n := len(s.events); n > 0 {
		ev.no = s.events[n-1].no + 1
	}
	if s.events = append(s.events, ev); len(s.events) > mostEvents+mostEvents/4 {
		s.events = append([]event(nil), s.events[len(s.events)-mostEvents:]...)
	}
}

// jobEvent notes that a job is in another state.
func (s *Screen) jobEvent(was, j *apiv1.Job) {
	if was.GetState() == j.GetState() && was.GetNode() == j.GetNode() {
		return
	}
	detail := j.GetState()
	switch {
	case was == nil && console.Waiting(j.GetState()):
		detail = fmt.Sprintf("submitted by %s: %s", j.GetUser(), j.GetState())
	case console.Terminal(j.GetState()), console.Waiting(j.GetState()):
		if r := console.ReasonText(j.GetReason(), j.GetReasonDetail()); r != "" {
			detail += ": " + r
		}
	default:
		detail += " on " + console.NodesOf(j)
		if len(j.GetGpus()) > 0 {
			detail += ", " + console.GpuNames(j.GetGpus())
		}
	}
	s.event(event{at: s.now, of: "job " + client.JobLabel(j), detail: clean(j.GetName() + " " + detail), style: stateStyle(j.GetState())})
}

// nodeEvents records the events of nodes, each once.
func (s *Screen) nodeEvents() {
	seen := map[string]struct{}{}
	for _, n := range s.nodes {
		for _, h := range n.GetHistory() {
			of := "node " + n.GetId()
			if h.Index != nil {
				of = fmt.Sprintf("GPU %s/%d", n.GetId(), h.GetIndex())
			}
			key := fmt.Sprint(of, h.GetAt().AsTime().UnixNano(), h.GetKind(), h.GetDetail())
			seen[key] = struct{}{}
			if _, known := s.seen[key]; known {
				continue
			}
			st := none
			switch h.GetKind() {
			case "lost", "failing", "quarantined", "fenced":
				st = red
			}
			s.event(event{at: h.GetAt().AsTime(), of: clean(of), detail: clean(strings.TrimSuffix(h.GetKind()+": "+h.GetDetail(), ": ")), style: st})
		}
	}
	s.seen = seen
}

// makeEventRows are the events, the latest first.
func (s *Screen) makeEventRows() []event {
	low := strings.ToLower(s.filters[TabEvents])
	var rows []event
	for _, ev := range s.events {
		if low == "" || strings.Contains(strings.ToLower(ev.of+" "+ev.detail), low) {
			rows = append(rows, ev)
		}
	}
	slices.SortStableFunc(rows, func(a, b event) int {
		if n := b.at.Compare(a.at); n != 0 {
			return n
		}
		return b.no - a.no
	})
	if s.sorts[TabEvents].reverse {
		slices.Reverse(rows)
	}
	return rows
}

func (s drawing) eventTable() table {
	return table{
		cols: []column{{head: "TIME", width: 15}, {head: "OBJECT", width: 16}, {head: "EVENT", width: 11, grow: true}},
		n:    len(s.eventRows),
		key:  func(i int) string { return fmt.Sprint(s.eventRows[i].no) },
		cells: func(i int) []cell {
			ev := s.eventRows[i]
			return []cell{text(ev.at.In(s.now.Location()).Format("Jan 02 15:04:05")), text(ev.of), styled(ev.style, ev.detail)}
		},
		empty: "no events yet",
	}
}

package coordinator

import (
	"strings"

	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// drains is the command that reports lead to in which the agent says that its
// node is to take no more jobs, if there are any. It comes before them, so
// that nothing is placed there in between. What an administrator gave as the
// reason of a drain stays.
func (ss *session) drains(reports []*nodev1.Report) []*logv1.Command {
	for _, r := range reports {
		n, ok := ss.c.fsm.Node(ss.node)
		if r.GetDrain() == "" || !ok || n.Drain {
			continue
		}
		why := r.Drain
		if len(why) > maxReason {
			why = why[:maxReason]
		}
		why = strings.ToValidUTF8(why, "")
		ss.log.Warn("the agent asks for its node to be drained", "reason", why)
		return []*logv1.Command{{Kind: &logv1.Command_DrainNode{DrainNode: &logv1.DrainNode{Node: string(ss.node), Drain: true, Reason: why}}}}
	}
	return nil
}

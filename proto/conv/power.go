package conv

import (
	"fmt"

	"github.com/berth-scheduler/berth/cluster"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// powerToLog converts the power of a node; that of one to which nothing was ever done is
// not stored.
func powerToLog(p cluster.Power) *logv1.NodePower {
	if p == (cluster.Power{}) {
		return nil
	}
	return &logv1.NodePower{
		State: uint32(p.State), SinceUs: int64(p.Since), Asked: p.Asked, By: uint32(p.By), Why: p.Why, NotBeforeUs: int64(p.NotBefore),
	}
}

func powerFromLog(node string, m *logv1.NodePower) (cluster.Power, error) {
	if m.GetState() > uint32(cluster.PowerFailed) {
		return cluster.Power{}, fmt.Errorf("node %s: state of power %d is not known", node, m.GetState())
	}
	return cluster.Power{
		State: cluster.PowerState(m.GetState()), Since: cluster.Time(m.GetSinceUs()), Asked: m.GetAsked(), By: cluster.UID(m.GetBy()),
		Why: m.GetWhy(), NotBefore: cluster.Time(m.GetNotBeforeUs()),
	}, nil
}

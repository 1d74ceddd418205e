package launcher

import (
	"github.com/berth-scheduler/berth/agent/hold"
	"github.com/berth-scheduler/berth/agent/launch"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// RestOfBatch reports whether this node belongs to a batch job whose script runs on another
// node: only its steps run here.
func RestOfBatch(as *nodev1.Assignment) bool {
	return batchStep(as) && as.GetRanks().GetNodeRank() > 0
}

// placeHold makes l hold the attempt's resources until it is told to end or, when it must
// be kept, until nothing keeps it any more.
func (la *Launcher) placeHold(l *launch.Launch, kept bool) {
	cfg := hold.Config{}
	if kept {
		cfg = hold.Defaults()
	}
	l.Args = []string{"/bin/sh"} // never run
	l.Ranks = &launch.Ranks{Tasks: 1, Hold: &cfg}
	l.Env = append(l.Env, hold.Variable+"="+hold.Name())
}

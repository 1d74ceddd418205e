package launcher

import (
	"github.com/berth-scheduler/berth/agent/hold"
	"github.com/berth-scheduler/berth/agent/launch"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// RestOfBatch reports whether this node is one of a batch job on which its script
// does not run: its steps do.
func RestOfBatch(as *nodev1.Assignment) bool {
	return batchStep(as) && as.GetRanks().GetNodeRank() > 0
}

// placeHold makes l hold what its attempt has, until it is told to end or, when
// it must be kept, nobody does any more.
func (la *Launcher) placeHold(l *launch.Launch, kept bool) {
	cfg := hold.Config{}
	if kept {
		cfg = hold.Defaults()
	}
	l.Args = []string{"/bin/sh"} // of which nothing becomes
	l.Ranks = &launch.Ranks{Tasks: 1, Hold: &cfg}
	l.Env = append(l.Env, hold.Variable+"="+hold.Name())
}

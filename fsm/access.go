package fsm

import (
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/table"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

const (
	defaultKeep = 20_000
	maxKeep     = 10_000_000
)

// initCluster gives the log its cluster, once; again with the same id changes
// nothing.
func (s *State) initCluster(c *logv1.InitCluster) Result {
	cfg := c.GetConfig()
	switch {
	case cfg.GetClusterId() == "":
		return refuse(cluster.CodeInvalid, "the cluster id is missing")
	case cfg.KeepFinished > maxKeep:
		return refuse(cluster.CodeInvalid, "keep_finished: %d is outside 0 to %d", cfg.KeepFinished, maxKeep)
	case s.config != nil && s.config.ClusterId != cfg.ClusterId:
		return refuse(cluster.CodeConflict, "the cluster is %q already", s.config.ClusterId)
	case s.config != nil:
		return Result{}
	}
	s.setConfig(cfg)
	s.roll.Forget()
	return Result{}
}

func (s *State) setConfig(c *logv1.Config) {
	s.config = &logv1.Config{ClusterId: c.ClusterId, Name: c.Name, KeepFinished: c.KeepFinished}
	s.configDigest.Touch(table.One{})
	if s.roll.Keep = int(c.KeepFinished); s.roll.Keep == 0 {
		s.roll.Keep = defaultKeep
	}
}

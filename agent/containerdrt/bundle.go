package containerdrt

import (
	"time"

	"github.com/berth-scheduler/berth/agent/containerdrt/shimproc"
)

const runcTimeout = 10 * time.Second

// runcRoot is where shims have runc keep its notes.
const runcRoot = "/run/containerd/runc"

// allShims returns the shims that our containerd started, by their containers.
func (r *Runtime) allShims() map[string][]shimproc.Shim {
	all, err := shimproc.All(r.cfg.Address)
	if err != nil {
		r.cfg.Log.Warn("cannot look for shims", "err", err)
	}
	out := map[string][]shimproc.Shim{}
	for _, s := range all {
		if s.Namespace == r.cfg.Namespace {
			out[s.ID] = append(out[s.ID], s)
		}
	}
	return out
}

package fsm

import (
	"errors"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/proto/conv"
)

// refuseSpec refuses a command for a spec of it, which is called what.
func refuseSpec(what string, err error) Result {
	if errors.Is(err, conv.ErrNoBulk) {
		r := refuse(cluster.CodeUnavailable, "%s: its environment and script are not in the state any more; nothing was done; try again", what)
		r.LacksBulk = true
		return r
	}
	return refuse(cluster.CodeInvalid, "%s: %v", what, err)
}

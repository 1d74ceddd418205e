package conv

import (
	"strings"

	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

// RefusalToNode is err as an agent sends it. It may quote paths, which are
// bytes: what is not UTF-8 could not be sent.
func RefusalToNode(err *cluster.Error) *nodev1.Refusal {
	return &nodev1.Refusal{Reason: apiconv.Reason(err.Code), Message: strings.ToValidUTF8(err.Msg, "?")}
}

// RefusalFromNode is the error that an agent refused with. A reason that is
// not known is CodeConflict: the agent is newer.
func RefusalFromNode(r *nodev1.Refusal) *cluster.Error {
	if code, known := apiconv.ClassOf(r.GetReason()); known {
		return &cluster.Error{Code: code, Msg: r.GetMessage()}
	}
	return &cluster.Error{Code: cluster.CodeConflict, Msg: r.GetMessage()}
}

// VisitOf is what an agent must know of an attempt to show its output after it
// was forgotten there.
func VisitOf(j *cluster.Job, a *cluster.Attempt, rank int) *nodev1.Assignment {
	as := Assignment(j, a, rank)
	return &nodev1.Assignment{
		Job: as.Job, Attempt: as.Attempt, Token: as.Token, Uid: as.Uid, Gid: as.Gid, User: as.User, Name: as.Name,
		Dir: as.Dir, Image: as.Image, Stdout: as.Stdout, Stderr: as.Stderr, Ranks: as.Ranks,
		Array: as.Array,
	}
}

// KeepUnread is how many bytes of output of a kept command may be on the way that its
// user has not said to have.
const KeepUnread = 256 << 10

package conv

import (
	"strings"

	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

// RefusalToNode converts err for an agent to send. It may quote paths, which are
// bytes: text that is not UTF-8 could not be sent.
func RefusalToNode(err *cluster.Error) *nodev1.Refusal {
	return &nodev1.Refusal{Reason: apiconv.Reason(err.Code), Message: strings.ToValidUTF8(err.Msg, "?")}
}

// RefusalFromNode returns the error with which an agent refused. An unknown reason
// is CodeConflict: the agent is newer.
func RefusalFromNode(r *nodev1.Refusal) *cluster.Error {
	if code, known := apiconv.ClassOf(r.GetReason()); known {
		return &cluster.Error{Code: code, Msg: r.GetMessage()}
	}
	return &cluster.Error{Code: cluster.CodeConflict, Msg: r.GetMessage()}
}

// VisitOf returns what an agent must know of an attempt to show its output after
// having forgotten it.
func VisitOf(j *cluster.Job, a *cluster.Attempt, rank int) *nodev1.Assignment {
	as := Assignment(j, a, rank)
	return &nodev1.Assignment{
		Job: as.Job, Attempt: as.Attempt, Token: as.Token, Uid: as.Uid, Gid: as.Gid, User: as.User, Name: as.Name,
		Dir: as.Dir, Image: as.Image, Stdout: as.Stdout, Stderr: as.Stderr, Ranks: as.Ranks,
		Array: as.Array,
	}
}

// KeepUnread is how many bytes of a kept command's output may be in flight that its
// user has not acknowledged.
const KeepUnread = 256 << 10

package authorize

import (
	"context"
	"slices"

	"google.golang.org/grpc/metadata"

	"github.com/berth-scheduler/berth/cluster"
)

// mdBare is sent from one coordinator to another with a call from a node that came
// without a credential where one was due.
const mdBare = "berth-bare"

// showing is what came of looking at a credential.
type showing uint8

const (
	isBare   showing = iota // none, or a wrong one, where one is due
	isShown                 // the right one, or none is due
	isTooNew                // it is of an attempt that may not be known here yet
)

// shows looks at what was shown, "" for nothing, of those live jobs on a node that
// belong to one user. None is due while an attempt of theirs that was given none is
// among them: it could be the one that asks.
func shows(credential string, mine []*cluster.Job, node cluster.NodeID) showing {
	if len(mine) == 0 {
		return isTooNew
	}
	if slices.ContainsFunc(mine, func(j *cluster.Job) bool { a := j.Live(); return a != nil && a.Secret == "" }) {
		return isShown
	}
	id, err := cluster.CredentialOf(credential)
	if err != nil {
		return isBare
	}
	for _, j := range mine {
		if j.ID != id.Job {
			continue
		}
		if j.Holds(credential, node) {
			return isShown
		}
		if a := j.Live(); a != nil && a.No >= id.No {
			return isBare
		}
	}
	return isTooNew
}

// shown is the credential that a call came with, "" for none.
func shown(ctx context.Context) string {
	if v := metadata.ValueFromIncomingContext(ctx, cluster.CredentialKey); len(v) == 1 {
		return v[0]
	}
	return ""
}

// Beyond refuses what reaches beyond the node from which it is asked without a
// credential.
func Beyond(who Caller) error {
	if !who.Bare {
		return nil
	}
	return cluster.Errorf(cluster.CodeDenied, "from a node, only a job running there may do this, with its credential, which $"+cluster.CredentialVar+" names; "+
		"do it inside the job (berth shell enters one), or on a login node")
}

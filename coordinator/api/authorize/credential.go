package authorize

import (
	"context"
	"slices"

	"google.golang.org/grpc/metadata"

	"github.com/berth-scheduler/berth/cluster"
)

// mdBare is sent from one coordinator to another with a call from a node that came
// without a required credential.
const mdBare = "berth-bare"

// showing is the result of checking a credential.
type showing uint8

const (
	isBare   showing = iota // none, or a wrong one, where one is required
	isShown                 // the right one, or none is required
	isTooNew                // it is of an attempt that may not be known here yet
)

// shows checks the credential shown, "" for none, against one user's live jobs on a
// node. None is required while one of their attempts was given none: it could be
// the caller.
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

// shown returns the credential that a call came with, "" for none.
func shown(ctx context.Context) string {
	if v := metadata.ValueFromIncomingContext(ctx, cluster.CredentialKey); len(v) == 1 {
		return v[0]
	}
	return ""
}

// Beyond refuses requests without a credential that reach beyond the node they come
// from.
func Beyond(who Caller) error {
	if !who.Bare {
		return nil
	}
	return cluster.Errorf(cluster.CodeDenied, "from a node, only a job running there may do this, with its credential, which $"+cluster.CredentialVar+" names; "+
		"do it inside the job (berth shell enters one), or on a login node")
}

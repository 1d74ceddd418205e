package coordinator

import (
	"context"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/wait"
	"github.com/berth-scheduler/berth/coordinator/roles"
)

// Denied reports whether a certificate was revoked, by its holder's role and name
// or by its serial number in lower-case hexadecimal. It is meant for handshakes.
func (c *Coordinator) Denied(role, id, serial string) bool {
	return c.fsm.Denied(role, id) || c.fsm.Denied(roles.Serial, serial)
}

// undenied restricts peer to holders that were not denied: every call of a daemon
// goes through it, so that a certificate is void from the moment its holder is
// removed from the cluster, however long it is valid.
func (c *Coordinator) undenied(peer func(context.Context) (role, id string, err error)) func(context.Context) (role, id string, err error) {
	return func(ctx context.Context) (string, string, error) {
		role, id, err := peer(ctx)
		if err == nil && c.fsm.Denied(role, id) {
			return "", "", cluster.Errorf(cluster.CodeDenied, "%s %s was removed from the cluster", role, id)
		}
		return role, id, err
	}
}

// cutLater requests closing the connections of those just denied. It does not wait.
func (c *Coordinator) cutLater() { wait.Poke(c.denials) }

func (c *Coordinator) cutDenied(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.denials:
			if c.cfg.CutDenied != nil {
				c.cfg.CutDenied(c.Denied)
			}
		}
	}
}

package coordinator

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/berth-scheduler/berth/cluster"
)

// Roles of certificates.
const (
	roleCoordinator = "coordinator"
	roleAgent       = "agent"
	roleGate        = "gate"
)

// caller is a user, as the kernel named them to us or to a trusted peer.
type caller struct {
	uid   cluster.UID
	gid   uint32
	name  string
	admin bool
	// plain tells that a node speaks for a user of a job there: whatever the user
	// is elsewhere, there it is no administrator.
	plain bool
}

// owner is the caller as the owner of what it submits.
func (who caller) owner() cluster.Owner {
	return cluster.Owner{UID: who.uid, GID: who.gid, Name: who.name}
}

// action is what a caller wants to do.
type action uint8

const (
	actSubmit  action = iota + 1
	actRead           // jobs in brief, nodes, status
	actReadJob        // one job in full
	actCancel
	actExec  // run something inside of a job, as its owner
	actAdmin // nodes, tokens
)

// authorize is the one place that says who may do what; what it does not
// allow is denied. owner is the owner of the job concerned, if any.
func (c *Coordinator) authorize(who caller, a action, owner *cluster.Owner) error {
	switch a {
	case actSubmit:
		switch {
		case who.uid == 0 && !c.cfg.AllowRoot:
			return cluster.Errorf(cluster.CodeDenied, "root may not submit jobs here; submit as a user, or let the administrator set users.allow_root")
		case who.uid != 0 && who.uid < c.cfg.MinUID:
			return cluster.Errorf(cluster.CodeDenied, "uid %d may not submit jobs: system accounts below %d are refused (users.min_uid)", who.uid, c.cfg.MinUID)
		}
		return nil
	case actRead:
		return nil
	case actReadJob, actCancel, actExec:
		if who.admin || owner != nil && owner.UID == who.uid {
			return nil
		}
		return cluster.Errorf(cluster.CodeDenied, "the job belongs to another user")
	case actAdmin:
		if who.admin {
			return nil
		}
		return cluster.Errorf(cluster.CodeDenied, "only an administrator may do this; administrators are listed in users.admins")
	}
	return cluster.Errorf(cluster.CodeDenied, "not allowed")
}

// Metadata that a trusted peer sends with a forwarded call.
const (
	mdUID       = "berth-on-behalf-of-uid"
	mdGID       = "berth-on-behalf-of-gid"
	mdForwarded = "berth-forwarded"
	mdPlain     = "berth-plain"
)

// speaker is for whom a call is, and by which peer: role and id are "" on the
// local socket.
type speaker struct {
	role, id string
	uid      cluster.UID
	gid      uint32
}

// speaker reads who calls: from the kernel on the local socket, from the
// metadata when a coordinator, a gate or a node speaks for somebody. It does not
// wait, and does not look whether a node may speak for that user.
func (c *Coordinator) speaker(ctx context.Context) (speaker, error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return speaker{}, cluster.Errorf(cluster.CodeUnauthenticated, "no peer")
	}
	forUID := metadata.ValueFromIncomingContext(ctx, mdUID)
	if cred, ok := p.AuthInfo.(UnixPeer); ok {
		if len(forUID) > 0 {
			return speaker{}, cluster.Errorf(cluster.CodeDenied, "only a coordinator or a gate may speak for somebody else")
		}
		return speaker{uid: cred.UID, gid: cred.GID}, nil
	}
	role, id, err := c.cfg.Peer(ctx)
	if err != nil {
		return speaker{}, &cluster.Error{Code: cluster.CodeUnauthenticated, Msg: "a client certificate is needed", Err: err}
	}
	if role != roleCoordinator && role != roleGate && role != roleAgent {
		return speaker{}, cluster.Errorf(cluster.CodeDenied, "role %q may not call this", role)
	}
	uid, err1 := parseID(forUID)
	gid, err2 := parseID(metadata.ValueFromIncomingContext(ctx, mdGID))
	if err1 != nil || err2 != nil {
		return speaker{}, cluster.Errorf(cluster.CodeUnauthenticated, "the call does not say for whom it is")
	}
	if role == roleGate && (uid == 0 || cluster.UID(uid) < c.cfg.MinUID) {
		return speaker{}, cluster.Errorf(cluster.CodeDenied, "a gate may not speak for uid %d", uid)
	}
	return speaker{role: role, id: id, uid: cluster.UID(uid), gid: gid}, nil
}

// identify finds out who calls, and what they are.
func (c *Coordinator) identify(ctx context.Context) (caller, error) {
	var sp speaker
	if a := admittedOf(ctx); a != nil {
		sp = a.speaker
	} else {
		var err error
		if sp, err = c.speaker(ctx); err != nil {
			return caller{}, err
		}
	}
	if sp.role == roleAgent {
		return c.jobUser(ctx, cluster.NodeID(sp.id), sp.uid)
	}
	who := c.user(sp.uid, sp.gid)
	if sp.role != "" && len(metadata.ValueFromIncomingContext(ctx, mdPlain)) > 0 {
		who.plain, who.admin = true, false
	}
	return who, nil
}

// jobUser is a user for whom a node speaks: it may for those whose jobs run
// there, as whoever is root there can be them anyway, and for nobody else. The
// group is the one that the job came with: a node that could name any would
// have its users' next jobs run with it on other nodes.
func (c *Coordinator) jobUser(ctx context.Context, node cluster.NodeID, uid cluster.UID) (caller, error) {
	for deadline := time.Now().Add(c.cfg.Waits.JobUser); ; {
		jobs := c.fsm.NodeJobs(node)
		if i := slices.IndexFunc(jobs, func(j *cluster.Job) bool { return j.Owner.UID == uid }); i >= 0 {
			who := c.user(uid, jobs[i].Owner.GID)
			who.plain, who.admin = true, false
			return who, nil
		}
		if time.Now().After(deadline) || !sleep(ctx, 50*time.Millisecond) {
			return caller{}, cluster.Errorf(cluster.CodeDenied, "node %s may speak only for users whose jobs run there, and uid %d has none", node, uid)
		}
	}
}

// onBehalf is the metadata by which another coordinator learns who calls.
func (c *Coordinator) onBehalf(who caller) metadata.MD {
	md := metadata.Pairs(mdUID, strconv.FormatUint(uint64(who.uid), 10), mdGID, strconv.FormatUint(uint64(who.gid), 10), mdForwarded, c.cfg.ID)
	if who.plain {
		md.Set(mdPlain, "1")
	}
	return md
}

func (c *Coordinator) user(uid cluster.UID, gid uint32) caller {
	return caller{uid: uid, gid: gid, name: c.cfg.Users(uid), admin: c.isAdmin(uid)}
}

func (c *Coordinator) isAdmin(uid cluster.UID) bool {
	return uid == 0 || slices.Contains(c.cfg.Admins, uid)
}

// parseID reads a uid or gid; those beyond 2³¹-1 wrap to others in some
// programs and are refused.
func parseID(v []string) (uint32, error) {
	if len(v) != 1 {
		return 0, strconv.ErrSyntax
	}
	n, err := strconv.ParseUint(strings.TrimSpace(v[0]), 10, 31)
	return uint32(n), err
}

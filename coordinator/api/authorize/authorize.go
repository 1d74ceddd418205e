// Package authorize identifies the callers of a coordinator and decides what they
// may do: users as named by the kernel on the local socket or by a trusted peer,
// and daemons by their certificates. What it does not allow is denied.
package authorize

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/wait"
	"github.com/berth-scheduler/berth/coordinator/roles"
	"github.com/berth-scheduler/berth/fsm"
)

// Caller is a user, as named by the kernel or by a trusted peer.
type Caller struct {
	UID   cluster.UID
	GID   uint32
	Name  string
	Admin bool
	// Plain means that a node speaks for a user of a job there: whatever the user
	// is elsewhere, there it is no administrator.
	Plain bool
	// Bare means that the node did so without a required credential: such a caller
	// may only see what everyone sees.
	Bare bool
}

// Owner returns the caller as the owner of what it submits.
func (who Caller) Owner() cluster.Owner {
	return cluster.Owner{UID: who.UID, GID: who.GID, Name: who.Name}
}

// Action is what a caller wants to do.
type Action uint8

// What callers may want to do.
const (
	Submit  Action = iota + 1
	Read           // jobs in brief, nodes, status
	ReadJob        // one job in full
	Cancel
	Exec  // run something inside a job, as its owner
	Admin // nodes, tokens
)

// Config defines who callers are, and which of them may do more or less than
// others.
type Config struct {
	// ID is this coordinator's id.
	ID string
	// Users names the accounts of this host.
	Users func(uid cluster.UID) string
	// AllowRoot lets uid 0 submit; MinUID is the least uid that may. Admins may do
	// everything; uid 0 always is one.
	AllowRoot bool
	MinUID    cluster.UID
	Admins    []cluster.UID
	// Peer returns the caller over mutual TLS: a role and an id.
	Peer func(ctx context.Context) (role, id string, err error)
	// JobUserWait is how long a job may take to become known here that its node
	// knows.
	JobUserWait time.Duration
}

// Authorizer identifies callers and decides what they may do. It is safe for
// concurrent use.
type Authorizer struct {
	cfg Config
	fsm *fsm.FSM
}

// New returns an authorizer; which users a node may speak for is in the state.
func New(cfg Config, f *fsm.FSM) *Authorizer { return &Authorizer{cfg: cfg, fsm: f} }

// May is the one place that decides who may do what; what it does not allow is
// denied. owner is the owner of the job concerned, if any.
func (a *Authorizer) May(who Caller, act Action, owner *cluster.Owner) error {
	if err := Beyond(who); err != nil && act != Read {
		return err
	}
	switch act {
	case Submit:
		switch {
		case who.UID == 0 && !a.cfg.AllowRoot:
			return cluster.Errorf(cluster.CodeDenied, "root may not submit jobs here; submit as a user, or let the administrator set users.allow_root")
		case who.UID != 0 && who.UID < a.cfg.MinUID:
			return cluster.Errorf(cluster.CodeDenied, "uid %d may not submit jobs: system accounts below %d are refused (users.min_uid)", who.UID, a.cfg.MinUID)
		}
		return nil
	case Read:
		return nil
	case ReadJob, Cancel, Exec:
		if who.Admin || owner != nil && owner.UID == who.UID {
			return nil
		}
		return cluster.Errorf(cluster.CodeDenied, "the job belongs to another user")
	case Admin:
		if who.Admin {
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

// Speaker is the user a call is for, and the peer that makes it: role and id are ""
// on the local socket.
type Speaker struct {
	Role, ID string
	UID      cluster.UID
	GID      uint32
}

// Speaker reads who calls: from the kernel on the local socket, from the metadata
// if a coordinator, a gate or a node speaks for a user. It does not wait, and does
// not check whether a node may speak for that user.
func (a *Authorizer) Speaker(ctx context.Context) (Speaker, error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return Speaker{}, cluster.Errorf(cluster.CodeUnauthenticated, "no peer")
	}
	forUID := metadata.ValueFromIncomingContext(ctx, mdUID)
	if cred, ok := p.AuthInfo.(UnixPeer); ok {
		if len(forUID) > 0 {
			return Speaker{}, cluster.Errorf(cluster.CodeDenied, "only a coordinator or a gate may act for another user")
		}
		return Speaker{UID: cred.UID, GID: cred.GID}, nil
	}
	role, id, err := a.cfg.Peer(ctx)
	if err != nil {
		return Speaker{}, &cluster.Error{Code: cluster.CodeUnauthenticated, Msg: "a client certificate is needed", Err: err}
	}
	if role != roles.Coordinator && role != roles.Gate && role != roles.Agent {
		return Speaker{}, cluster.Errorf(cluster.CodeDenied, "role %q may not call this", role)
	}
	uid, err1 := parseID(forUID)
	gid, err2 := parseID(metadata.ValueFromIncomingContext(ctx, mdGID))
	if err1 != nil || err2 != nil {
		return Speaker{}, cluster.Errorf(cluster.CodeUnauthenticated, "the call does not say whom it is for")
	}
	if role == roles.Gate && (uid == 0 || cluster.UID(uid) < a.cfg.MinUID) {
		return Speaker{}, cluster.Errorf(cluster.CodeDenied, "a gate may not act for uid %d", uid)
	}
	return Speaker{Role: role, ID: id, UID: cluster.UID(uid), GID: gid}, nil
}

// Identify resolves the speaker of a call.
func (a *Authorizer) Identify(ctx context.Context, sp Speaker) (Caller, error) {
	if sp.Role == roles.Agent {
		return a.jobUser(ctx, cluster.NodeID(sp.ID), sp.UID)
	}
	who := a.User(sp.UID, sp.GID)
	if sp.Role != "" && len(metadata.ValueFromIncomingContext(ctx, mdPlain)) > 0 {
		who.Plain, who.Admin = true, false
		who.Bare = len(metadata.ValueFromIncomingContext(ctx, mdBare)) > 0
	}
	return who, nil
}

// jobUser returns the user for whom a node speaks: it may for those whose jobs run
// there, as root there can become them anyway, and for no others. The group is the
// one that the job came with: a node that could name any would have its users' next
// jobs run with it on other nodes. The credential is checked here, since it goes no
// further.
func (a *Authorizer) jobUser(ctx context.Context, node cluster.NodeID, uid cluster.UID) (Caller, error) {
	credential := shown(ctx)
	for deadline := time.Now().Add(a.cfg.JobUserWait); ; {
		mine := slices.DeleteFunc(slices.Clone(a.fsm.NodeJobs(node)), func(j *cluster.Job) bool { return j.Owner.UID != uid })
		had := shows(credential, mine, node)
		if had == isTooNew && time.Now().Before(deadline) && wait.Sleep(ctx, 50*time.Millisecond) {
			continue
		}
		if len(mine) == 0 {
			return Caller{}, cluster.Errorf(cluster.CodeDenied, "node %s may act only for users with jobs there, and uid %d has none", node, uid)
		}
		who := a.User(uid, mine[0].Owner.GID)
		who.Plain, who.Admin, who.Bare = true, false, had != isShown
		return who, nil
	}
}

// OnBehalf returns the metadata by which another coordinator learns who calls.
func (a *Authorizer) OnBehalf(who Caller) metadata.MD {
	md := metadata.Pairs(mdUID, strconv.FormatUint(uint64(who.UID), 10), mdGID, strconv.FormatUint(uint64(who.GID), 10), mdForwarded, a.cfg.ID)
	if who.Plain {
		md.Set(mdPlain, "1")
	}
	if who.Bare {
		md.Set(mdBare, "1")
	}
	return md
}

// User returns a user as named by the kernel of this machine.
func (a *Authorizer) User(uid cluster.UID, gid uint32) Caller {
	return Caller{UID: uid, GID: gid, Name: a.cfg.Users(uid), Admin: a.isAdmin(uid)}
}

func (a *Authorizer) isAdmin(uid cluster.UID) bool {
	return uid == 0 || slices.Contains(a.cfg.Admins, uid)
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

// Forwarded reports whether another coordinator forwarded a call.
func Forwarded(ctx context.Context) bool {
	return len(metadata.ValueFromIncomingContext(ctx, mdForwarded)) > 0
}

// AsAdmin reports whether a speaker is an administrator and speaks as one: a
// forwarded call for a user of a job is not an administrator's.
func (a *Authorizer) AsAdmin(ctx context.Context, sp Speaker) bool {
	return len(metadata.ValueFromIncomingContext(ctx, mdPlain)) == 0 && a.isAdmin(sp.UID)
}

type callerKey struct{}

// With returns a context for a call by who.
func With(ctx context.Context, who Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, who)
}

// CallerOf returns the caller that the interceptor identified.
func CallerOf(ctx context.Context) Caller {
	who, _ := ctx.Value(callerKey{}).(Caller)
	return who
}

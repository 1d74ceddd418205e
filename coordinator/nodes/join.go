package nodes

import (
	"cmp"
	"context"
	"net"
	"time"

	"google.golang.org/grpc/peer"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/roles"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

const (
	defaultTokenTTL = time.Hour
	maxTokenTTL     = 30 * 24 * time.Hour
)

// errBadToken is the one answer to every bad token, so that guessing reveals
// nothing.
var errBadToken = &cluster.Error{Code: cluster.CodeUnauthenticated,
	Msg: "the join token is not valid for this node: it is wrong, used, expired, or for another name; make a new one with: berth token create --id NAME"}

var errGuessing = &cluster.Error{Code: cluster.CodeExhausted,
	Msg: "too many wrong join tokens came from this address; wait a minute, then try with a new one: berth token create --id NAME"}

// join looks a token up before it signs or proposes anything, so that a wrong one
// costs neither. It spends the token before it issues the certificate: of two
// simultaneous uses, one is refused.
func (n *Nodes) join(ctx context.Context, req *nodev1.JoinRequest) (*nodev1.JoinResponse, error) {
	if n.cfg.Certs == nil {
		return nil, cluster.Errorf(cluster.CodeConflict, "this coordinator has no CA key; join at another one")
	}
	if err := cluster.CheckName("node", req.Node); err != nil {
		return nil, err
	}
	if n.office.Term() == nil {
		_, addr := n.office.Leader()
		return nil, cluster.Errorf(cluster.CodeUnavailable, "this coordinator does not lead; the leader is %s", addr)
	}
	var from net.Addr
	if p, ok := peer.FromContext(ctx); ok {
		from = p.Addr
	}
	if !n.guesses.May(from) {
		return nil, errGuessing
	}
	hash, err := n.cfg.Certs.TokenHash(req.TokenSecret)
	if err != nil || !n.fsm.TokenFits(hash, req.Node, cluster.TimeOf(n.clock())) {
		n.guesses.Wrong(from)
		return nil, errBadToken
	}
	cert, ca, err := n.cfg.Certs.Issue(req.Csr, roles.Agent, req.Node)
	if err != nil {
		return nil, cluster.Errorf(cluster.CodeInvalid, "certificate request: %v", err)
	}
	r, err := n.prop.One(ctx, &logv1.Command{Kind: &logv1.Command_UseToken{UseToken: &logv1.UseToken{Hash: hash, Id: req.Node}}})
	if err != nil {
		return nil, err
	}
	if r.Token == nil || r.Token.Role != roles.Agent {
		return nil, errBadToken
	}
	resp := &nodev1.JoinResponse{Certificate: cert, Ca: ca, GossipKey: n.cfg.GossipKey, ClusterId: n.cfg.ClusterID, GossipPeers: n.cfg.GossipPeers, Coordinators: n.cfg.Coordinators}
	n.log.InfoContext(ctx, "node joined", "node", req.Node)
	return resp, nil
}

// CreateToken stores the hash of a new join token and returns its text.
func (n *Nodes) CreateToken(ctx context.Context, by cluster.UID, role, id string, ttl time.Duration) (string, time.Time, error) {
	if n.cfg.Certs == nil {
		return "", time.Time{}, cluster.Errorf(cluster.CodeConflict, "this coordinator has no CA key; ask another one")
	}
	role = cmp.Or(role, roles.Agent)
	if role != roles.Agent {
		return "", time.Time{}, cluster.Errorf(cluster.CodeInvalid, "role %q: tokens are for role %q", role, roles.Agent)
	}
	if err := cluster.CheckName("node", id); err != nil {
		return "", time.Time{}, err
	}
	ttl = cmp.Or(ttl, defaultTokenTTL)
	if ttl < time.Second || ttl > maxTokenTTL {
		return "", time.Time{}, cluster.Errorf(cluster.CodeInvalid, "ttl %s: must be 1s to %s", ttl, maxTokenTTL)
	}
	text, hash, err := n.cfg.Certs.Token()
	if err != nil {
		return "", time.Time{}, err
	}
	expires := n.clock().Add(ttl)
	_, err = n.prop.One(ctx, &logv1.Command{Kind: &logv1.Command_CreateToken{CreateToken: &logv1.CreateToken{Token: &logv1.Token{
		Hash: hash, Role: role, Id: id, ExpiresUs: int64(cluster.TimeOf(expires)), CreatedBy: uint32(by),
	}}}})
	return text, expires, err
}

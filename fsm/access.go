package fsm

import (
	"crypto/sha256"
	"crypto/subtle"
	"strings"

	"github.com/berth-scheduler/berth/cluster"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

const (
	maxIdentity = 255
	maxTokens   = 10_000
	maxKeep     = 10_000_000
)

func (s *State) isDenied(role, id string) bool {
	_, ok := s.denied[identity{role, id}]
	return ok
}

// checkIdentity bounds what becomes a key.
func checkIdentity(role, id string) *cluster.Error {
	if role == "" || id == "" || len(role)+len(id) > maxIdentity || strings.Contains(role, "/") {
		return cluster.Errorf(cluster.CodeInvalid, "role %.40q and id %.40q: each must be given, role without '/', at most %d bytes together", role, id, maxIdentity)
	}
	return nil
}

// deny keeps a certificate's identity out of the cluster until it is allowed
// again.
func (s *State) deny(c *logv1.DenyIdentity) Result {
	if err := checkIdentity(c.Role, c.Id); err != nil {
		return Result{Err: err}
	}
	who := identity{c.Role, c.Id}
	switch _, denied := s.denied[who]; {
	case c.Allow && !denied:
		return refuse(cluster.CodeNotFound, "%s %s is not denied", c.Role, c.Id)
	case c.Allow:
		delete(s.denied, who)
	case denied:
		return Result{}
	default:
		s.denied[who] = s.now
	}
	s.hash.rest.touch(entity{kindDenied, who.key()})
	return Result{}
}

// createToken stores the hash of a join token; nobody but its maker has seen
// the token itself.
func (s *State) createToken(t *logv1.Token) Result {
	if len(t.GetHash()) != sha256.Size {
		return refuse(cluster.CodeInvalid, "token hash has %d bytes, want %d", len(t.GetHash()), sha256.Size)
	}
	if err := checkIdentity(t.Role, t.Id); err != nil {
		return Result{Err: err}
	}
	if s.rules < changeVersion {
		s.expireTokens() // from then on a refusal forgets nothing
	}
	old, twice := s.tokens[string(t.Hash)]
	twice = twice && !s.expired(old)
	switch {
	case s.isDenied(t.Role, t.Id):
		return refuse(cluster.CodeDenied, "%s %s was removed from the cluster; use another name", t.Role, t.Id)
	case twice:
		return refuse(cluster.CodeConflict, "the token exists already; make a new one")
	case len(s.tokens) >= maxTokens && s.openTokens() >= maxTokens:
		return refuse(cluster.CodeExhausted, "%d join tokens are open, at most %d may be; wait until some expire", s.openTokens(), maxTokens)
	}
	s.expireTokens()
	s.tokens[string(t.Hash)] = copyToken(t)
	s.hash.rest.touch(entity{kindToken, string(t.Hash)})
	return Result{}
}

// copyToken leaves behind what a newer version may have put beside what this
// one knows; stored messages have no unknown fields.
func copyToken(t *logv1.Token) *logv1.Token {
	return &logv1.Token{Hash: t.Hash, Role: t.Role, Id: t.Id, ExpiresUs: t.ExpiresUs, CreatedBy: t.CreatedBy}
}

func (s *State) expired(t *logv1.Token) bool { return cluster.Time(t.ExpiresUs) < s.now }

func (s *State) openTokens() (n int) {
	for _, t := range s.tokens {
		if !s.expired(t) {
			n++
		}
	}
	return n
}

func (s *State) expireTokens() {
	for k, t := range s.tokens { // which are dropped does not depend on the order
		if s.expired(t) {
			delete(s.tokens, k)
			s.hash.rest.touch(entity{kindToken, k})
		}
	}
}

// useToken spends a token. Every wrong one gets the same answer, which helps
// nobody to guess.
func (s *State) useToken(c *logv1.UseToken) Result {
	t, ok := s.tokens[string(c.Hash)]
	if !ok || t.Id != c.Id || s.expired(t) || s.isDenied(t.Role, t.Id) {
		return refuse(cluster.CodeUnauthenticated, "the join token is wrong, used, expired, or for another name; make a new one with: berth token create --id NAME")
	}
	delete(s.tokens, string(c.Hash))
	s.hash.rest.touch(entity{kindToken, string(c.Hash)})
	return Result{Token: &TokenInfo{Role: t.Role, ID: t.Id}}
}

// initCluster gives the log its cluster, once; again with the same id changes
// nothing.
func (s *State) initCluster(c *logv1.InitCluster) Result {
	cfg := c.GetConfig()
	switch {
	case cfg.GetClusterId() == "":
		return refuse(cluster.CodeInvalid, "the cluster id is missing")
	case cfg.KeepFinished > maxKeep:
		return refuse(cluster.CodeInvalid, "keep_finished: %d is outside 0 to %d", cfg.KeepFinished, maxKeep)
	case s.config != nil && s.config.ClusterId != cfg.ClusterId:
		return refuse(cluster.CodeConflict, "the cluster is %q already", s.config.ClusterId)
	case s.config != nil:
		return Result{}
	}
	s.config = copyConfig(cfg)
	s.hash.rest.touch(entity{kind: kindConfig})
	s.forgetOldest()
	return Result{}
}

func copyConfig(c *logv1.Config) *logv1.Config {
	return &logv1.Config{ClusterId: c.ClusterId, Name: c.Name, KeepFinished: c.KeepFinished}
}

// TokenFits reports whether a join token of this hash would be taken now for
// the daemon id. It changes nothing; only using the token spends it. It takes
// as long wherever the hashes differ.
func (f *FSM) TokenFits(hash []byte, id string, now cluster.Time) (fits bool) {
	f.Read(func(s *State) {
		for _, t := range s.tokens {
			if subtle.ConstantTimeCompare(t.Hash, hash) == 1 {
				fits = t.Id == id && cluster.Time(t.ExpiresUs) >= max(now, s.now) && !s.isDenied(t.Role, t.Id)
			}
		}
	})
	return fits
}

// Package credentials is the part of the state machine that controls who may join
// the cluster: open join tokens and denied identities.
package credentials

import (
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/command"
	"github.com/berth-scheduler/berth/fsm/table"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

const (
	maxIdentity = 255
	maxTokens   = 10_000
)

type identity struct{ role, id string }

// key joins the parts; roles hold no slash.
func (i identity) key() string { return i.role + "/" + i.id }

// Keyring holds the join tokens, keyed by hash, and the denied identities.
type Keyring struct {
	tokens *table.Table[string, *logv1.Token]
	denied *table.Table[identity, cluster.Time]
}

// New returns a keyring without tokens or denied identities.
func New(h *table.Hash) Keyring {
	return Keyring{
		tokens: table.New(h, table.Of[string, *logv1.Token]{
			Kind: table.Token, Key: table.Text[string], Compare: strings.Compare,
			Record: func(_ string, t *logv1.Token) proto.Message { return t },
		}),
		denied: table.New(h, table.Of[identity, cluster.Time]{
			Kind: table.Denied, Key: func(i identity) []byte { return []byte(i.key()) },
			Compare: func(a, b identity) int { return cmp.Compare(a.key(), b.key()) },
			Record:  func(i identity, at cluster.Time) proto.Message { return deniedRecord(i, at) },
		}),
	}
}

func deniedRecord(i identity, at cluster.Time) *logv1.DeniedIdentity {
	return &logv1.DeniedIdentity{Role: i.role, Id: i.id, AtUs: int64(at)}
}

// Denied reports whether an identity is denied.
func (k *Keyring) Denied(role, id string) bool { return k.denied.Has(identity{role, id}) }

// Identity is an identity that may not take part in the cluster.
type Identity struct {
	Role, ID string
	At       cluster.Time
}

// AllDenied returns all denied identities, by role and id.
func (k *Keyring) AllDenied() []Identity {
	out := make([]Identity, 0, k.denied.Len())
	for _, who := range k.denied.Keys() {
		out = append(out, Identity{Role: who.role, ID: who.id, At: k.denied.Get(who)})
	}
	return out
}

// Check bounds the parts of a key.
func Check(role, id string) *cluster.Error {
	if role == "" || id == "" || len(role)+len(id) > maxIdentity || strings.Contains(role, "/") {
		return cluster.Errorf(cluster.CodeInvalid, "role %.40q and id %.40q: each must be given, role without '/', at most %d bytes together", role, id, maxIdentity)
	}
	return nil
}

// Apply applies a command about tokens and identities.
func (k *Keyring) Apply(at command.Entry, cmd *logv1.Command) command.Result {
	switch c := cmd.Kind.(type) {
	case *logv1.Command_CreateToken:
		return k.create(at, c.CreateToken.GetToken())
	case *logv1.Command_UseToken:
		return k.use(at, c.UseToken)
	case *logv1.Command_DenyIdentity:
		return k.Deny(at, c.DenyIdentity)
	}
	panic(fmt.Sprintf("credentials: %T is not for this machine", cmd.Kind))
}

// Deny denies a certificate's identity until it is allowed again.
func (k *Keyring) Deny(at command.Entry, c *logv1.DenyIdentity) command.Result {
	if err := Check(c.Role, c.Id); err != nil {
		return command.Result{Err: err}
	}
	who := identity{c.Role, c.Id}
	switch denied := k.denied.Has(who); {
	case c.Allow && !denied:
		return command.Refuse(cluster.CodeNotFound, "%s %s is not denied", c.Role, c.Id)
	case c.Allow:
		k.denied.Drop(who)
	case !denied:
		k.denied.Put(who, at.Now)
	}
	return command.Result{}
}

// create stores the hash of a join token; only its maker has seen the token itself.
func (k *Keyring) create(at command.Entry, t *logv1.Token) command.Result {
	if len(t.GetHash()) != sha256.Size {
		return command.Refuse(cluster.CodeInvalid, "token hash has %d bytes, want %d", len(t.GetHash()), sha256.Size)
	}
	if err := Check(t.Role, t.Id); err != nil {
		return command.Result{Err: err}
	}
	if at.Version < command.ChangeVersion {
		k.Expire(at.Now) // from that version on a refusal expires nothing
	}
	old := k.tokens.Get(string(t.Hash))
	twice := old != nil && !expired(old, at.Now)
	switch {
	case k.Denied(t.Role, t.Id):
		return command.Refuse(cluster.CodeDenied, "%s %s was removed from the cluster; use another name", t.Role, t.Id)
	case twice:
		return command.Refuse(cluster.CodeConflict, "the token exists already; make a new one")
	case k.tokens.Len() >= maxTokens && k.open(at.Now) >= maxTokens:
		return command.Refuse(cluster.CodeExhausted, "%d join tokens are open, at most %d may be; wait until some expire", k.open(at.Now), maxTokens)
	}
	k.Expire(at.Now)
	k.tokens.Put(string(t.Hash), copyToken(t))
	return command.Result{}
}

// copyToken drops fields that a newer version may have set; stored messages have no
// unknown fields.
func copyToken(t *logv1.Token) *logv1.Token {
	return &logv1.Token{Hash: t.Hash, Role: t.Role, Id: t.Id, ExpiresUs: t.ExpiresUs, CreatedBy: t.CreatedBy}
}

func expired(t *logv1.Token, now cluster.Time) bool { return cluster.Time(t.ExpiresUs) < now }

func (k *Keyring) open(now cluster.Time) (n int) {
	for _, t := range k.tokens.Rows() {
		if !expired(t, now) {
			n++
		}
	}
	return n
}

// Expire drops expired tokens.
func (k *Keyring) Expire(now cluster.Time) {
	for h, t := range k.tokens.Rows() { // the result is independent of the order
		if expired(t, now) {
			k.tokens.Drop(h)
		}
	}
}

// VoidTokens drops all tokens.
func (k *Keyring) VoidTokens() {
	for _, h := range k.tokens.Keys() {
		k.tokens.Drop(h)
	}
}

// use spends a token. All wrong tokens get the same answer, which helps nobody to
// guess.
func (k *Keyring) use(at command.Entry, c *logv1.UseToken) command.Result {
	t := k.tokens.Get(string(c.Hash))
	if t == nil || t.Id != c.Id || expired(t, at.Now) || k.Denied(t.Role, t.Id) {
		return command.Refuse(cluster.CodeUnauthenticated, "the join token is wrong, used, expired, or for another name; make a new one with: berth token create --id NAME")
	}
	k.tokens.Drop(string(c.Hash))
	return command.Result{Token: &command.TokenInfo{Role: t.Role, ID: t.Id}}
}

// Fits reports whether a join token with this hash would be accepted at now for the
// daemon id. Only use spends it. The comparison takes constant time.
func (k *Keyring) Fits(hash []byte, id string, now cluster.Time) (fits bool) {
	for _, t := range k.tokens.Rows() {
		if subtle.ConstantTimeCompare(t.Hash, hash) == 1 {
			fits = t.Id == id && !expired(t, now) && !k.Denied(t.Role, t.Id)
		}
	}
	return fits
}

// Tokens returns the number of tokens.
func (k *Keyring) Tokens() int { return k.tokens.Len() }

// View returns a copy for writing a snapshot; it does not change.
func (k *Keyring) View() Keyring { return Keyring{tokens: k.tokens.View(), denied: k.denied.View()} }

// Each sends all records.
func (k *Keyring) Each(w *table.Writer) {
	for _, t := range k.tokens.List() {
		w.Send(&logv1.Record{Kind: &logv1.Record_Token{Token: t}})
	}
	for _, i := range k.denied.Keys() {
		w.Send(&logv1.Record{Kind: &logv1.Record_Denied{Denied: deniedRecord(i, k.denied.Get(i))}})
	}
}

// Load restores a record that Each sent.
func (k *Keyring) Load(r *logv1.Record) error {
	switch m := r.Kind.(type) {
	case *logv1.Record_Token:
		k.tokens.Put(string(m.Token.Hash), copyToken(m.Token))
	case *logv1.Record_Denied:
		k.denied.Put(identity{m.Denied.Role, m.Denied.Id}, cluster.Time(m.Denied.AtUs))
	}
	return nil
}

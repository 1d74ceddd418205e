package cluster

import "fmt"

// Scope says whose jobs may lie beside each other on a GPU.
type Scope string

// The scopes, from the widest. The empty one, of nodes that say nothing, is
// ScopeAnyone.
const (
	ScopeAnyone    Scope = ""
	ScopeSameGroup Scope = "same-group" // of users with one primary group
	ScopeSameUser  Scope = "same-user"
	ScopeNever     Scope = "never" // one job at a time
)

// ParseScope reads a scope as agents and operators write it.
func ParseScope(s string) (Scope, error) {
	switch sc := Scope(s); sc {
	case ScopeAnyone, ScopeSameGroup, ScopeSameUser, ScopeNever:
		return sc, nil
	case "anyone":
		return ScopeAnyone, nil
	}
	return ScopeNever, fmt.Errorf("scope of sharing %.40q is none of anyone, same-group, same-user, never", s)
}

// String returns the scope as operators write it.
func (s Scope) String() string {
	if s == ScopeAnyone {
		return "anyone"
	}
	return string(s)
}

// Allows reports whether jobs of two owners may lie beside each other. What is
// not known allows nobody.
func (s Scope) Allows(a, b *Owner) bool {
	switch s {
	case ScopeAnyone:
		return true
	case ScopeSameGroup:
		return a.GID == b.GID
	case ScopeSameUser:
		return a.UID == b.UID
	}
	return false
}

// Among says in words among whom a card with this scope is shared.
func (s Scope) Among() string {
	switch s {
	case ScopeAnyone:
		return "among all users"
	case ScopeSameGroup:
		return "only among users of one primary group"
	case ScopeSameUser:
		return "only among jobs of one user"
	}
	return "by nobody"
}

package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Names of the lists that control who may use a partition.
const (
	AllowAccounts = "allow-accounts"
	DenyAccounts  = "deny-accounts"
	AllowQOS      = "allow-qos"
	DenyQOS       = "deny-qos"
	AllowGroups   = "allow-groups"
)

// AccessLists returns the names of all lists, in the order in which they are
// checked.
func AccessLists() []string {
	return []string{AllowAccounts, DenyAccounts, AllowQOS, DenyQOS, AllowGroups}
}

// WordsNoGroup is Slurm's message to a user whom a partition's group list excludes.
const WordsNoGroup = "User's group not permitted to use this partition"

// maxAccess bounds the names in one list.
const maxAccess = 1024

// Access lists who may use a partition: sorted names by list. A missing list
// imposes no restriction; nil admits everyone. Values are immutable.
type Access map[string][]string

// With returns a copy of a with one list replaced, or removed if names is empty.
func (a Access) With(list string, names []string) Access {
	out := Access{}
	maps.Copy(out, a)
	if delete(out, list); len(names) > 0 {
		out[list] = slices.Compact(slices.Sorted(slices.Values(names)))
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// Check returns an *Error of CodeInvalid that names the list if a partition may not
// have a.
func (a Access) Check() error {
	for list := range a {
		if !slices.Contains(AccessLists(), list) {
			return Errorf(CodeInvalid, "access: %s is not a list; the lists are %s", QuoteShort(list), strings.Join(AccessLists(), ", "))
		}
	}
	for _, list := range AccessLists() {
		names := a[list]
		if len(names) > maxAccess {
			return Errorf(CodeInvalid, "%s: %d names, at most %d are allowed", list, len(names), maxAccess)
		}
		for i, s := range names {
			switch {
			case s == "" || len(s) > MaxNameLen || strings.ContainsAny(s, ", \t\n"):
				return Errorf(CodeInvalid, "%s: %s must have 1 to %d characters, none of them a space or comma", list, QuoteShort(s), MaxNameLen)
			case i > 0 && names[i-1] >= s:
				return Errorf(CodeInvalid, "%s: %s is out of order, or named twice", list, QuoteShort(s))
			}
		}
	}
	for _, pair := range [][2]string{{AllowAccounts, DenyAccounts}, {AllowQOS, DenyQOS}} {
		if len(a[pair[0]]) > 0 && len(a[pair[1]]) > 0 {
			return Errorf(CodeInvalid, "%s and %s: give only one of them; clear the other with %s=", pair[0], pair[1], pair[1])
		}
	}
	return nil
}

// Asker is a user who wants to use a partition.
type Asker struct {
	// Accounts holds the charged account and its ancestors, nearest first.
	Accounts []string
	QOS      string
	// InGroup reports whether the user is in a group.
	InGroup func(group string) bool
}

// Refuses returns the rule that keeps a user out of the named partition, nil if
// there is none.
func (a Access) Refuses(partition string, who *Asker) *Error {
	of := func(what, name string) string {
		if name == "" {
			return "the job has no " + what
		}
		return fmt.Sprintf("the job's is %s", name)
	}
	account := ""
	if len(who.Accounts) > 0 {
		account = who.Accounts[0]
	}
	among := func(list string) bool {
		return slices.ContainsFunc(who.Accounts, func(s string) bool { return slices.Contains(a[list], s) })
	}
	rule := func(words, list, is string) *Error {
		return Errorf(CodeDenied, "%s: partition %s has %s=%s, and %s; see: berth partition show %s", words, partition, list, strings.Join(a[list], ","), is, partition)
	}
	switch {
	case len(a[AllowAccounts]) > 0 && !among(AllowAccounts):
		return rule(WordsNoAccount, AllowAccounts, of("account", account))
	case among(DenyAccounts):
		return rule(WordsNoAccount, DenyAccounts, of("account", account))
	case len(a[AllowQOS]) > 0 && !slices.Contains(a[AllowQOS], who.QOS):
		return rule(WordsNoQOS, AllowQOS, of("qos", who.QOS))
	case slices.Contains(a[DenyQOS], who.QOS):
		return rule(WordsNoQOS, DenyQOS, of("qos", who.QOS))
	case len(a[AllowGroups]) > 0 && !slices.ContainsFunc(a[AllowGroups], who.InGroup):
		return rule(WordsNoGroup, AllowGroups, "the user is in none of these groups")
	}
	return nil
}

// MaxNice bounds a job's nice value in either direction, as in Slurm.
const MaxNice = 2147483645

// Slurm's messages about an account or a quality of service that a job may not use;
// users know these sentences.
const (
	WordsNoAccount = "Invalid account or account/partition combination specified"
	WordsNoQOS     = "Invalid qos specification"
)

// CheckAccountName reports whether s may name an account, by the rule of
// CheckName.
func CheckAccountName(s string) error { return CheckName("account", s) }

// CheckQOSName reports whether s may name a quality of service, by the rule of
// CheckName.
func CheckQOSName(s string) error { return CheckName("qos", s) }

// checkStanding checks the fields that say which account is charged and how the job
// is ranked.
func (s *Spec) checkStanding() error {
	if s.Account != "" {
		if err := CheckAccountName(s.Account); err != nil {
			return err
		}
	}
	if s.QOS != "" {
		if err := CheckQOSName(s.QOS); err != nil {
			return err
		}
	}
	if s.Nice > MaxNice || s.Nice < -MaxNice {
		return Errorf(CodeInvalid, "nice: %d is outside -%d to %d", s.Nice, MaxNice, MaxNice)
	}
	return nil
}

// Scope says whose jobs may share a GPU.
type Scope string

// The scopes, widest first. The empty scope, of nodes that report none, means
// ScopeAnyone.
const (
	ScopeAnyone    Scope = ""
	ScopeSameGroup Scope = "same-group" // of users with one primary group
	ScopeSameUser  Scope = "same-user"
	ScopeNever     Scope = "never" // one job at a time
)

// ParseScope parses a scope as agents and operators write it.
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

// Allows reports whether jobs of two owners may share a GPU. An unknown scope
// allows no one.
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

// Among describes in words which users share a GPU with this scope.
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

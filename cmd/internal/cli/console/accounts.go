package console

import (
	"context"
	"errors"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"sync"
	"time"
)

// getentTime is how long a name service may take.
const getentTime = 10 * time.Second

// SystemAccounts returns the accounts of this machine. The program is static:
// it asks getent for those that are not in the machine's files but in LDAP or
// the like.
func SystemAccounts() Accounts {
	a := &accounts{ask: getent, known: map[string][]string{}}
	return Accounts{
		User: func(name string) (*user.User, error) {
			u, err := user.Lookup(name)
			if errors.As(err, new(user.UnknownUserError)) {
				return a.user(name, func(u *user.User) bool { return u.Username == name }, err)
			}
			return u, err
		},
		UserID: func(uid string) (*user.User, error) {
			u, err := user.LookupId(uid)
			if errors.As(err, new(user.UnknownUserIdError)) {
				return a.user(uid, func(u *user.User) bool { return u.Uid == uid }, err)
			}
			return u, err
		},
		GroupID: func(gid string) (*user.Group, error) {
			g, err := user.LookupGroupId(gid)
			if errors.As(err, new(user.UnknownGroupIdError)) {
				if f := a.entry("group", gid); len(f) > 2 && f[2] == gid {
					return &user.Group{Name: f[0], Gid: gid}, nil
				}
			}
			return g, err
		},
	}
}

// Unknown returns the first of some users, by name or number, that this
// machine does not know, "" when it knows all.
func (a Accounts) Unknown(users []string) string {
	for _, u := range users {
		if _, err := strconv.ParseUint(u, 10, 32); err == nil {
			continue
		}
		if _, err := a.User(u); err != nil {
			return u
		}
	}
	return ""
}

// WarnUnknown names on stderr the users that this machine does not know, for
// a list that came out empty: users of other machines and former users have
// jobs.
func (e *Env) WarnUnknown(users []string) {
	if u := e.Accounts.Unknown(users); u != "" {
		e.Warnf("there is no user %s, nor any job of theirs", ShortQuote(u))
	}
}

// accounts caches the name service's answers, negative ones included.
type accounts struct {
	ask func(database, key string) string

	mu    sync.Mutex
	known map[string][]string
}

// user looks up the account key, which must satisfy is, or returns unknown.
func (a *accounts) user(key string, is func(*user.User) bool, unknown error) (*user.User, error) {
	f := a.entry("passwd", key)
	if len(f) < 6 {
		return nil, unknown
	}
	u := &user.User{Username: f[0], Uid: f[2], Gid: f[3], Name: f[4], HomeDir: f[5]}
	if !is(u) {
		return nil, unknown
	}
	return u, nil
}

// entry returns the fields of the line of one key.
func (a *accounts) entry(database, key string) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := database + " " + key
	if f, ok := a.known[at]; ok {
		return f
	}
	line, _, _ := strings.Cut(a.ask(database, key), "\n")
	a.known[at] = strings.Split(line, ":")
	return a.known[at]
}

// getent asks the C library's name service; "" means that it knows none, or
// does not exist.
func getent(database, key string) string {
	ctx, cancel := context.WithTimeout(context.Background(), getentTime)
	defer cancel()
	out, err := exec.CommandContext(ctx, "getent", database, "--", key).Output()
	if err != nil {
		return ""
	}
	return string(out)
}

// Package session keeps who is admitted to a coordinator's web page: links, each of
// which opens one session, and the sessions of browsers. All of it is bounded, in
// memory only, and ends with the process.
package session

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"strings"
	"sync"
	"time"

	"github.com/berth-scheduler/berth/cluster"
)

// What is kept, and for how long.
const (
	LinkLife     = time.Minute
	IdleLife     = 2 * time.Hour
	MostLife     = 12 * time.Hour
	linksPerUser = 4
	linksTotal   = 1024
	mostPerUser  = 16
	mostTotal    = 4096
)

// User is the user of a session.
type User struct {
	UID cluster.UID
	GID uint32
}

// Session is one browser that was admitted. Only Table modifies it.
type Session struct {
	User User
	// Name is the user's name by the site's proxy, "" for sessions of links.
	Name string
	// CSRF is what requests that change something must send, which other sites
	// cannot read.
	CSRF string
	// Done is closed when the session ends.
	Done <-chan struct{}

	done        chan struct{}
	began, used time.Time
}

type link struct {
	user User
	ends time.Time
}

// hash is what is kept of a secret.
type hash = [sha256.Size]byte

// Table keeps the links and sessions of one coordinator. It is safe for concurrent use.
type Table struct {
	cluster, id string
	now         func() time.Time

	mu       sync.Mutex
	links    map[hash]link
	sessions map[hash]*Session
}

// New returns an empty table for a coordinator of a cluster. now is the clock.
func New(clusterID, id string, now func() time.Time) *Table {
	return &Table{cluster: clusterID, id: id, now: now, links: map[hash]link{}, sessions: map[hash]*Session{}}
}

// secret draws 256 bits.
func secret() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails, see crypto/rand
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// NewLink returns what opens a session of u once, and until when.
func (t *Table) NewLink(u User) (text string, ends time.Time, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	mine, oldest := 0, hash{}
	for k, l := range t.links {
		switch {
		case !now.Before(l.ends):
			delete(t.links, k)
		case l.user.UID == u.UID:
			if mine++; mine == 1 || l.ends.Before(t.links[oldest].ends) {
				oldest = k
			}
		}
	}
	if mine >= linksPerUser {
		delete(t.links, oldest)
	}
	if len(t.links) >= linksTotal {
		return "", time.Time{}, cluster.Errorf(cluster.CodeExhausted, "%d links to this page are waiting to be opened, which is the limit; try again in a minute", linksTotal)
	}
	text, ends = secret(), now.Add(LinkLife)
	t.links[sha256.Sum256([]byte(text))] = link{user: u, ends: ends}
	return text, ends, nil
}

// Open turns a link into a session, which voids the link, and returns its cookie.
func (t *Table) Open(text string) (cookie string, s *Session, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now, k := t.now(), sha256.Sum256([]byte(text))
	l, ok := t.links[k]
	delete(t.links, k)
	if !ok || !now.Before(l.ends) {
		return "", nil, cluster.Errorf(cluster.CodeUnauthenticated, "this link has been used, is older than a minute, or is not for coordinator %s; get another with: berth web", t.id)
	}
	cookie, s = t.begin(l.user, now)
	return cookie, s, nil
}

// Admit creates a session of u, whom a site's proxy knows by name, and returns its
// cookie.
func (t *Table) Admit(u User, name string) (cookie string, s *Session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	cookie, s = t.begin(u, t.now())
	s.Name = name
	return cookie, s
}

func (t *Table) begin(u User, now time.Time) (cookie string, s *Session) {
	t.makeRoom(u, now)
	key := secret()
	s = &Session{User: u, CSRF: secret(), done: make(chan struct{}), began: now, used: now}
	s.Done = s.done
	t.sessions[sha256.Sum256([]byte(key))] = s
	return strings.Join([]string{t.cluster, t.id, key}, "/"), s
}

// makeRoom ends expired sessions, and the least recently used ones if there are too
// many, the user's before those of others.
func (t *Table) makeRoom(u User, now time.Time) {
	t.endOver(now)
	drop := func(of func(*Session) bool, most int) {
		n, oldest := 0, hash{}
		for k, s := range t.sessions {
			if of(s) {
				if n++; n == 1 || s.used.Before(t.sessions[oldest].used) {
					oldest = k
				}
			}
		}
		if n >= most {
			t.end(oldest)
		}
	}
	drop(func(s *Session) bool { return s.User.UID == u.UID }, mostPerUser)
	drop(func(*Session) bool { return true }, mostTotal)
}

func (t *Table) endOver(now time.Time) {
	for k, s := range t.sessions {
		if s.over(now) {
			t.end(k)
		}
	}
}

func (s *Session) over(now time.Time) bool {
	return now.Sub(s.used) >= IdleLife || now.Sub(s.began) >= MostLife
}

func (t *Table) end(k hash) {
	close(t.sessions[k].done)
	delete(t.sessions, k)
}

// Find returns the session of a cookie. The error says for users why there is none.
func (t *Table) Find(cookie string) (*Session, error) {
	parts := strings.Split(cookie, "/")
	switch {
	case cookie == "":
		return nil, cluster.Errorf(cluster.CodeUnauthenticated, "this browser is not logged in at coordinator %s; open the link printed by: berth web", t.id)
	case len(parts) != 3:
		return nil, cluster.Errorf(cluster.CodeUnauthenticated, "the browser's cookie is not one of Berth's; open the link printed by: berth web")
	case parts[0] != t.cluster:
		return nil, cluster.Errorf(cluster.CodeUnauthenticated, "the browser is logged in at another cluster, %.64q, and this one is %q; open the link printed by: berth web", parts[0], t.cluster)
	case parts[1] != t.id:
		return nil, cluster.Errorf(cluster.CodeUnauthenticated, "the browser is logged in at coordinator %.64q, and this one is %q; each keeps its own sessions: open the link printed by: berth web", parts[1], t.id)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now, k := t.now(), sha256.Sum256([]byte(parts[2]))
	s := t.sessions[k]
	if s != nil && s.over(now) {
		t.end(k)
		s = nil
	}
	if s == nil {
		return nil, cluster.Errorf(cluster.CodeUnauthenticated, "this session has ended, or coordinator %s was restarted; open the link printed by: berth web", t.id)
	}
	s.used = now
	return s, nil
}

// End ends a session; it may have ended already.
func (t *Table) End(s *Session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for k, have := range t.sessions {
		if have == s {
			t.end(k)
			return
		}
	}
}

// Sweep ends what has expired, so that streams of unused sessions end. Call it from
// time to time.
func (t *Table) Sweep() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.endOver(t.now())
}

// Lives reports whether a user has any session left.
func (t *Table) Lives(u User) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.sessions {
		if s.User == u {
			return true
		}
	}
	return false
}

// Vouches reports whether a request sent what only the session's page has.
func (s *Session) Vouches(csrf string) bool {
	return subtle.ConstantTimeCompare([]byte(csrf), []byte(s.CSRF)) == 1
}

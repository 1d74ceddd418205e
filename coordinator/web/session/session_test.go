package session

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster"
)

// clock is one that tests set.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

func opened(t *testing.T, tab *Table, u User) (string, *Session) {
	t.Helper()
	text, _, err := tab.NewLink(u)
	if err != nil {
		t.Fatal(err)
	}
	cookie, s, err := tab.Open(text)
	if err != nil {
		t.Fatal(err)
	}
	return cookie, s
}

func codeOf(err error) cluster.Code {
	e, _ := errors.AsType[*cluster.Error](err)
	if e == nil {
		return cluster.CodeInternal
	}
	return e.Code
}

func refused(t *testing.T, err error, words string) {
	t.Helper()
	if codeOf(err) != cluster.CodeUnauthenticated || !strings.Contains(err.Error(), words) {
		t.Errorf("error %v, want unauthenticated with %q", err, words)
	}
}

func TestALinkOpensOneSession(t *testing.T) {
	c := &clock{time.Unix(1e9, 0)}
	tab := New("hpc", "c1", c.now)
	text, ends, err := tab.NewLink(User{UID: 1000, GID: 100})
	if err != nil || ends.Sub(c.at) != LinkLife {
		t.Fatalf("link until %v: %v", ends, err)
	}
	cookie, s, err := tab.Open(text)
	if err != nil || s.User != (User{UID: 1000, GID: 100}) {
		t.Fatalf("session %+v: %v", s, err)
	}
	_, _, err = tab.Open(text)
	refused(t, err, "has been used")
	if got, err := tab.Find(cookie); err != nil || got != s {
		t.Errorf("find: %v, %v", got, err)
	}
	if s.Vouches("") || s.Vouches(s.CSRF+"x") || !s.Vouches(s.CSRF) {
		t.Error("the token is not compared")
	}
	late, _, _ := tab.NewLink(User{UID: 1000})
	c.at = c.at.Add(LinkLife)
	_, _, err = tab.Open(late)
	refused(t, err, "older than a minute")
}

func TestCookiesOfOthersAreRefusedInWords(t *testing.T) {
	c := &clock{time.Unix(1e9, 0)}
	tab := New("hpc", "c1", c.now)
	elsewhere, _ := opened(t, New("lab", "c1", c.now), User{UID: 1000})
	beside, _ := opened(t, New("hpc", "c2", c.now), User{UID: 1000})
	own, s := opened(t, tab, User{UID: 1000})
	for cookie, words := range map[string]string{
		"": "not logged in", "x": "not one of Berth's", elsewhere: "another cluster", beside: `coordinator "c2"`, "hpc/c1/x": "has ended",
	} {
		_, err := tab.Find(cookie)
		refused(t, err, words)
	}
	tab.End(s)
	tab.End(s)
	<-s.Done
	_, err := tab.Find(own)
	refused(t, err, "has ended")
}

func TestSessionsEnd(t *testing.T) {
	c := &clock{time.Unix(1e9, 0)}
	tab := New("hpc", "c1", c.now)
	cookie, s := opened(t, tab, User{UID: 1000})
	for c.at.Sub(time.Unix(1e9, 0)) < MostLife-time.Hour {
		c.at = c.at.Add(time.Hour)
		if _, err := tab.Find(cookie); err != nil {
			t.Fatal(err)
		}
	}
	c.at = c.at.Add(time.Hour)
	_, err := tab.Find(cookie)
	refused(t, err, "has ended")
	<-s.Done
	_, idle := opened(t, tab, User{UID: 1001})
	c.at = c.at.Add(IdleLife)
	tab.Sweep()
	<-idle.Done
	if tab.Lives(User{UID: 1001}) {
		t.Error("the user is still in")
	}
}

// TestBounds: one user has no more than so many links and sessions, and takes none of
// another's.
func TestBounds(t *testing.T) {
	c := &clock{time.Unix(1e9, 0)}
	tab := New("hpc", "c1", c.now)
	other, _ := opened(t, tab, User{UID: 1001})
	first, s := opened(t, tab, User{UID: 1000})
	for range 3 * mostPerUser {
		c.at = c.at.Add(time.Millisecond)
		opened(t, tab, User{UID: 1000})
	}
	<-s.Done
	if _, err := tab.Find(first); err == nil || len(tab.sessions) != mostPerUser+1 {
		t.Errorf("%d sessions, the oldest: %v", len(tab.sessions), err)
	}
	if _, err := tab.Find(other); err != nil {
		t.Errorf("another user's: %v", err)
	}
	for i := range linksTotal + 10 {
		_, _, err := tab.NewLink(User{UID: cluster.UID(2000 + i)})
		if i >= linksTotal && codeOf(err) != cluster.CodeExhausted {
			t.Fatalf("link %d: %v", i, err)
		}
	}
	c.at = c.at.Add(LinkLife)
	for range 2 * linksPerUser {
		if _, _, err := tab.NewLink(User{UID: 1000}); err != nil {
			t.Fatal(err)
		}
	}
	if len(tab.links) != linksPerUser {
		t.Errorf("%d links are kept of one user", len(tab.links))
	}
}

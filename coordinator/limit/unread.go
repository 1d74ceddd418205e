package limit

import "sync"

const (
	// answerCost is what an answer takes besides its own bytes until it was read:
	// its stream.
	answerCost = 4 << 10
	// smallAnswer is up to how many bytes an answer is sent however much is unread:
	// changes are always confirmed.
	smallAnswer = 64 << 10
	// unreadPart is the part of Config.Bytes that a user's answers may take unread.
	unreadPart = 4
)

// Unread counts an answer of so many bytes, which is in memory until its reader has
// taken it, even after the call: a caller that does not read fills no memory. read
// records that it was taken, and may be called more than once. The error is a
// *Refusal, only for large answers; a user with too much unread begins nothing
// else. It may be called on nil.
func (c *Call) Unread(bytes int) (read func(), err error) {
	if c == nil {
		return func() {}, nil
	}
	t, u, n := c.t, c.u, int64(bytes)+answerCost
	t.mu.Lock()
	defer t.mu.Unlock()
	if bytes > smallAnswer && (u.unread > 0 && u.unread+n > c.mostUnread() || t.unread > 0 && t.unread+n > t.cfg.BytesTotal) {
		return nil, t.refuse(tooManyUnread, retrySoon)
	}
	u.unread += n
	t.unread += n
	return sync.OnceFunc(func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		u.unread -= n
		t.unread -= n
	}), nil
}

func (c *Call) mostUnread() int64 { return int64(c.times) * c.t.cfg.Bytes / unreadPart }

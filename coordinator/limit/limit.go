// Package limit bounds what one user may ask of a coordinator at once and per
// second, so that no user's script, careless or hostile, crowds out the others.
// Calls are counted when their headers arrive, before anything else of them is
// read.
package limit

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/berth-scheduler/berth/cluster"
)

// Class is a kind of call.
type Class uint8

// The classes of calls.
const (
	Plain     Class = iota // changes something, or reads one thing
	Expensive              // reads much: lists, history, reports, predictions
	Lasting                // a stream that lasts as long as its reader
	classes
)

// Config says how much one user may ask for. Fields that are 0 have the values
// of Default.
type Config struct {
	// Rate is how many calls per second one user may sustain; four times as many
	// may come at once.
	Rate int
	// Bandwidth is how many bytes of requests per second one user may sustain;
	// eight times as many may come at once.
	Bandwidth int
	// WorkMilli is how many thousandths of a core expensive calls and watches of
	// one user may sustain, in handlers; five seconds' worth may come at once.
	WorkMilli int
	// Calls is how many calls of one user may be in progress, Streams how many
	// lasting streams may be open.
	Calls, Streams int
	// Expensive is how many expensive calls of one user may be in progress,
	// ExpensiveTotal how many of all users.
	Expensive, ExpensiveTotal int
	// Arriving is how many requests of one user may have begun to arrive but not be
	// complete; ArrivingTotal is for all users.
	Arriving, ArrivingTotal int
	// Bytes is what requests in progress of one user may take, BytesTotal those of
	// all users.
	Bytes, BytesTotal int64
	// Users is how many users are counted separately at once.
	Users int
}

// Default returns limits that honest scripts do not reach.
func Default() Config {
	return Config{
		Rate: 500, Bandwidth: 1 << 20, WorkMilli: 100, Calls: 128, Streams: 256, Expensive: 4, ExpensiveTotal: 16,
		Arriving: 16, ArrivingTotal: 128, Bytes: 64 << 20, BytesTotal: 256 << 20, Users: 4096,
	}
}

// Unlimited returns limits that no user reaches.
func Unlimited() Config {
	const many = 1 << 30
	return Config{Rate: many, Bandwidth: 1 << 40, WorkMilli: many, Calls: many, Streams: many, Expensive: many, ExpensiveTotal: many,
		Arriving: many, ArrivingTotal: many, Bytes: 1 << 50, BytesTotal: 1 << 50, Users: 1 << 16}
}

func (c Config) withDefaults() Config {
	d := Default()
	for _, f := range []struct{ have, want *int }{
		{&c.Rate, &d.Rate}, {&c.Bandwidth, &d.Bandwidth}, {&c.WorkMilli, &d.WorkMilli}, {&c.Calls, &d.Calls}, {&c.Streams, &d.Streams}, {&c.Expensive, &d.Expensive}, {&c.ExpensiveTotal, &d.ExpensiveTotal},
		{&c.Arriving, &d.Arriving}, {&c.ArrivingTotal, &d.ArrivingTotal}, {&c.Users, &d.Users},
	} {
		if *f.have <= 0 {
			*f.have = *f.want
		}
	}
	if c.Bytes <= 0 {
		c.Bytes = d.Bytes
	}
	if c.BytesTotal <= 0 {
		c.BytesTotal = d.BytesTotal
	}
	return c
}

const (
	burstSeconds = 4                // calls that may come at once, in seconds of Rate
	bytesBurst   = 8 * time.Second  // bytes that may come at once, in time of Bandwidth
	wasteBurst   = 16 * time.Second // bytes that may come and be no requests, in time of Bandwidth
	workBurst    = 5 * time.Second  // work that may come at once, in time of WorkMilli
	longestDebt  = 20 * time.Second // that one call incurs, whatever it took
	// Refusals cost time, too: a user that does not wait as told gets no more than
	// so many per second, and nothing is read meanwhile.
	refusalSpan  = 10 * time.Millisecond
	refusalBurst = 200 * refusalSpan
	longestPause = time.Second
	// privilege is how many times a user's share of calls in progress an
	// administrator has. Their rate is unbounded.
	privilege = 8
	// retrySoon is when to retry if a call in progress must end first.
	retrySoon = 100 * time.Millisecond
)

// Who is counted separately: a user, or a user for whom a node speaks, which must
// not use up what the user has elsewhere.
type Who struct {
	UID  cluster.UID
	Node string // "" for what the kernel or a gate says
	// Admin means that the user is an administrator.
	Admin bool
}

type key struct {
	uid  cluster.UID
	node string
}

// Table counts calls by user. It is safe for concurrent use.
type Table struct {
	cfg     Config
	now     func() time.Time
	refused *prometheus.CounterVec

	mu       sync.Mutex
	users    map[key]*user
	dear     int // expensive calls in progress
	arriving int
	bytes    int64
	unread   int64 // of answers
}

type user struct {
	key      key
	bucket   *rate.Limiter
	sent     debt // bytes
	waste    debt // bytes that came on connections and were no requests, or not yet
	admin    bool
	work     debt
	refused  debt
	open     [classes]int
	arriving int
	bytes    int64
	unread   int64
}

func (u *user) idle(now time.Time) bool {
	return u.unread == 0 && u.open == [classes]int{} && u.sent.none(now) && u.waste.none(now) && u.work.none(now) && u.refused.none(now) && u.bucket.TokensAt(now) >= float64(u.bucket.Burst())
}

// New returns an empty table that registers its metrics with reg. now is the clock.
func New(cfg Config, now func() time.Time, reg prometheus.Registerer) *Table {
	t := &Table{cfg: cfg.withDefaults(), now: now, users: map[key]*user{}, refused: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "berth_api_refused_total", Help: "Requests refused because their user exceeded a limit, by limit; the commands wait and retry.",
	}, []string{"limit"})}
	for _, r := range reasons {
		t.refused.WithLabelValues(r.metric)
	}
	reg.MustRegister(t.refused, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "berth_api_users", Help: "Users whose requests are being counted for the limits.",
	}, func() float64 { return float64(t.Len()) }), prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "berth_api_request_bytes", Help: "Size of users' requests in progress.",
	}, func() float64 {
		t.mu.Lock()
		defer t.mu.Unlock()
		return float64(t.bytes)
	}))
	return t
}

// Len returns how many users are counted now.
func (t *Table) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.users)
}

// Begin counts a call whose headers arrived. The error is a *Refusal. The call
// must be ended by End.
func (t *Table) Begin(who Who, class Class) (*Call, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	u := t.user(key{who.UID, who.Node}, now)
	if u == nil {
		return nil, t.refuse(tooManyUsers, retrySoon)
	}
	c := &Call{t: t, u: u, class: class, times: 1}
	if u.admin = who.Admin; who.Admin {
		c.times = privilege
	}
	if r := c.refusal(now, who.Admin); r != nil {
		u.refused.add(now, refusalSpan)
		return nil, r
	}
	c.arriving = true
	u.arriving++
	t.arriving++
	u.open[class]++
	if class == Expensive {
		t.dear++
	}
	return c, nil
}

// refusal returns why a call may not begin, nil if it may.
func (c *Call) refusal(now time.Time, admin bool) *Refusal {
	t, u, class, times := c.t, c.u, c.class, c.times
	switch {
	case class == Expensive && !admin && !fair(int64(u.open[Expensive]+1), int64(t.dear+1), int64(t.cfg.Expensive), int64(t.cfg.ExpensiveTotal), 1), class == Expensive && u.open[Expensive] >= times*t.cfg.Expensive:
		return t.refuse(tooManyExpensive, retrySoon)
	case class == Lasting && u.open[Lasting] >= times*t.cfg.Streams:
		return t.refuse(tooManyStreams, 10*retrySoon)
	case class == Plain && u.open[Plain] >= times*t.cfg.Calls:
		return t.refuse(tooManyCalls, retrySoon)
	case u.unread >= c.mostUnread():
		return t.refuse(tooManyUnread, 10*retrySoon)
	case !admin && !fair(int64(u.arriving+1), int64(t.arriving+1), int64(t.cfg.Arriving), int64(t.cfg.ArrivingTotal), 1), u.arriving >= times*t.cfg.Arriving:
		return t.refuse(tooManyArriving, retrySoon)
	case !admin && u.sent.wait(now, bytesBurst) > 0:
		return t.refuse(tooMuch, max(u.sent.wait(now, bytesBurst), retrySoon))
	case !admin && class != Plain && u.work.wait(now, workBurst) > 0:
		return t.refuse(tooMuchWork, max(u.work.wait(now, workBurst), retrySoon))
	case !admin && !u.bucket.AllowN(now, 1):
		r := u.bucket.ReserveN(now, 1)
		wait := r.DelayFrom(now)
		r.CancelAt(now)
		return t.refuse(tooFast, max(wait, retrySoon))
	}
	return nil
}

// Came counts bytes that were read from a local user's connection, and returns how
// long nothing more should be read of the user: who keeps asking though refused, or
// sends what becomes no request, is let wait.
func (t *Table) Came(uid cluster.UID, bytes int) (pause time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	u := t.users[key{uid: uid}]
	if u == nil {
		return 0
	}
	now := t.now()
	if !u.admin {
		u.waste.add(now, t.worth(bytes))
	}
	return min(max(u.refused.wait(now, refusalBurst), u.waste.wait(now, wasteBurst)), longestPause)
}

// worth returns how long a user may take to send so many bytes.
func (t *Table) worth(bytes int) time.Duration {
	return time.Duration(float64(bytes) / float64(t.cfg.Bandwidth) * float64(time.Second))
}

// user finds or creates the entry of a user; nil if the table is full of users that
// are not idle.
func (t *Table) user(k key, now time.Time) *user {
	if u := t.users[k]; u != nil {
		return u
	}
	if len(t.users) >= t.cfg.Users {
		for k, u := range t.users {
			if u.idle(now) {
				delete(t.users, k)
			}
		}
		if len(t.users) >= t.cfg.Users {
			return nil
		}
	}
	u := &user{key: k, bucket: rate.NewLimiter(rate.Limit(t.cfg.Rate), burstSeconds*t.cfg.Rate)}
	t.users[k] = u
	return u
}

// Call is a call in progress.
type Call struct {
	t        *Table
	u        *user
	class    Class
	times    int
	arriving bool
	ended    bool
	bytes    int64
}

// Arrived records that the request is complete, and its size. The error is a
// *Refusal; the call must be ended then too.
func (c *Call) Arrived(bytes int) error {
	t := c.t
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.ended {
		return nil
	}
	arrives := c.arriving
	c.land()
	n := int64(bytes)
	if err := c.hold(n); err != nil {
		return err
	}
	if arrives {
		c.u.waste.sub(t.worth(bytes))
	}
	if c.times == 1 { // any excess is owed: the next calls wait for it
		c.u.sent.add(t.now(), t.worth(bytes))
	}
	return nil
}

// Followed records that a message of so many bytes followed the request.
func (c *Call) Followed(bytes int) {
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	c.u.waste.sub(c.t.worth(bytes))
}

// hold counts bytes that are in memory until the call ends. The caller holds t.mu.
func (c *Call) hold(n int64) error {
	t := c.t
	// One request alone may always come, however large: it was already read.
	if t.bytes > 0 && !fair(c.u.bytes+n, t.bytes+n, int64(c.times)*t.cfg.Bytes, t.cfg.BytesTotal, smallBytes) {
		return t.refuse(tooManyBytes, retrySoon)
	}
	c.bytes += n
	c.u.bytes += n
	t.bytes += n
	return nil
}

// Holds counts what an answer takes until its reader has it. The error is a
// *Refusal. It may be called on nil.
func (c *Call) Holds(bytes int64) error {
	if c == nil {
		return nil
	}
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	if c.ended {
		return nil
	}
	return c.hold(bytes)
}

// Brings counts what a request brings into memory beyond what was sent, as if it
// had been sent. The error is a *Refusal. It may be called on nil.
func (c *Call) Brings(bytes int) error {
	if c == nil {
		return nil
	}
	return c.Arrived(bytes)
}

func (c *Call) land() {
	if c.arriving {
		c.arriving = false
		c.u.arriving--
		c.t.arriving--
	}
}

// End ends the call. It may be called more than once.
func (c *Call) End() {
	t := c.t
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.ended {
		return
	}
	c.ended = true
	c.land()
	c.u.open[c.class]--
	c.u.bytes -= c.bytes
	t.bytes -= c.bytes
	if c.class == Expensive {
		t.dear--
	}
}

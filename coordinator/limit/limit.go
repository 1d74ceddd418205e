// Package limit bounds what one user may ask of a coordinator at once and in a
// second, so that nobody's script, careless or hostile, takes the others' place.
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
	// Rate is how many calls a second one user may make for long; four times as
	// many may come at once. A request counts as one more for each 8 KiB of it.
	Rate int
	// Calls is how many calls of one user may be under way, Streams how many
	// lasting streams may be open.
	Calls, Streams int
	// Expensive is how many expensive calls of one user may be under way,
	// ExpensiveTotal how many of all users.
	Expensive, ExpensiveTotal int
	// Arriving is how many requests of one user may have begun to arrive, and not
	// be here as a whole; ArrivingTotal is for all users.
	Arriving, ArrivingTotal int
	// Bytes is what requests under way of one user may take, BytesTotal those of
	// all users.
	Bytes, BytesTotal int64
	// Users is how many users are counted apart at once.
	Users int
}

// Default returns limits that honest scripts do not meet.
func Default() Config {
	return Config{
		Rate: 500, Calls: 128, Streams: 256, Expensive: 4, ExpensiveTotal: 16,
		Arriving: 16, ArrivingTotal: 128, Bytes: 64 << 20, BytesTotal: 256 << 20, Users: 4096,
	}
}

// Unlimited returns limits that nobody reaches.
func Unlimited() Config {
	const many = 1 << 30
	return Config{Rate: many, Calls: many, Streams: many, Expensive: many, ExpensiveTotal: many,
		Arriving: many, ArrivingTotal: many, Bytes: 1 << 50, BytesTotal: 1 << 50, Users: 1 << 16}
}

func (c Config) withDefaults() Config {
	d := Default()
	for _, f := range []struct{ have, want *int }{
		{&c.Rate, &d.Rate}, {&c.Calls, &d.Calls}, {&c.Streams, &d.Streams}, {&c.Expensive, &d.Expensive}, {&c.ExpensiveTotal, &d.ExpensiveTotal},
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
	callBytes    = 8 << 10 // of a request count as one more call
	burstSeconds = 4       // calls that may come at once, in seconds of Rate
	// privilege is how many times a user's share of what is under way an
	// administrator has. Their rate has no bound.
	privilege = 8
	// retrySoon is when to ask again where something under way must end first.
	retrySoon = 100 * time.Millisecond
)

// Who is counted by itself: a user, or a user for whom a node speaks, which
// must not use up what the user has elsewhere.
type Who struct {
	UID  cluster.UID
	Node string // "" for what the kernel or a gate says
	// Admin tells that the user is an administrator.
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
	dear     int // expensive calls under way
	arriving int
	bytes    int64
}

type user struct {
	key      key
	bucket   *rate.Limiter
	open     [classes]int
	arriving int
	bytes    int64
}

func (u *user) idle(now time.Time) bool {
	return u.open == [classes]int{} && u.bucket.TokensAt(now) >= float64(u.bucket.Burst())
}

// New makes an empty table that registers its metrics with reg. now is the
// clock.
func New(cfg Config, now func() time.Time, reg prometheus.Registerer) *Table {
	t := &Table{cfg: cfg.withDefaults(), now: now, users: map[key]*user{}, refused: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "berth_api_refused_total", Help: "Requests that were turned away because their user asks for too much at once, by limit; the commands wait and ask again.",
	}, []string{"limit"})}
	for _, r := range reasons {
		t.refused.WithLabelValues(r.metric)
	}
	reg.MustRegister(t.refused, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "berth_api_users", Help: "Users whose requests are counted now, to bound them.",
	}, func() float64 { return float64(t.Len()) }), prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "berth_api_request_bytes", Help: "Size of users' requests that are under way.",
	}, func() float64 {
		t.mu.Lock()
		defer t.mu.Unlock()
		return float64(t.bytes)
	}))
	return t
}

// Len is how many users are counted now.
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
	times := 1
	if who.Admin {
		times = privilege
	}
	c := &Call{t: t, u: u, class: class, times: times}
	switch {
	case class == Expensive && u.open[Expensive] >= times*t.cfg.Expensive, class == Expensive && t.dear >= t.cfg.ExpensiveTotal && !who.Admin:
		return nil, t.refuse(tooManyExpensive, retrySoon)
	case class == Lasting && u.open[Lasting] >= times*t.cfg.Streams:
		return nil, t.refuse(tooManyStreams, 10*retrySoon)
	case class == Plain && u.open[Plain] >= times*t.cfg.Calls:
		return nil, t.refuse(tooManyCalls, retrySoon)
	case u.arriving >= times*t.cfg.Arriving, t.arriving >= t.cfg.ArrivingTotal && !who.Admin:
		return nil, t.refuse(tooManyArriving, retrySoon)
	case !who.Admin && !u.bucket.AllowN(now, 1):
		r := u.bucket.ReserveN(now, 1)
		wait := r.DelayFrom(now)
		r.CancelAt(now)
		return nil, t.refuse(tooFast, max(wait, retrySoon))
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

// user finds or makes the entry of a user; nil when the table is full of users
// who are not idle.
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

// Call is a call under way.
type Call struct {
	t        *Table
	u        *user
	class    Class
	times    int
	arriving bool
	ended    bool
	bytes    int64
}

// Arrived says that the request is here as a whole, and how large it is. The
// error is a *Refusal; the call must be ended then too.
func (c *Call) Arrived(bytes int) error {
	t := c.t
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.ended {
		return nil
	}
	c.land()
	n := int64(bytes)
	// One request alone may always come, however large: it was read already.
	if c.u.bytes > 0 && c.u.bytes+n > int64(c.times)*t.cfg.Bytes || t.bytes > 0 && t.bytes+n > t.cfg.BytesTotal {
		return t.refuse(tooManyBytes, retrySoon)
	}
	if more := min(bytes/callBytes, c.u.bucket.Burst()); more > 0 && c.times == 1 {
		c.u.bucket.ReserveN(t.now(), more) // owed, where it is not there: the next calls wait for it
	}
	c.bytes += n
	c.u.bytes += n
	t.bytes += n
	return nil
}

func (c *Call) land() {
	if c.arriving {
		c.arriving = false
		c.u.arriving--
		c.t.arriving--
	}
}

// End says that the call is over. It may be called more than once.
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

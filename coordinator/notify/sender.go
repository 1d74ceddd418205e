package notify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berth-scheduler/berth/cluster/wait"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

const (
	page = 5_000
	// mostMails and mostPosts are how many mails and requests to webhooks are on their
	// way at once. A user has up to eight webhooks, each of which may take ten seconds.
	mostMails = 8
	mostPosts = 32
	// mostWhy bounds what is kept of why a notice was given up, in characters.
	mostWhy      = 300
	defaultTries = 15
	firstPause   = time.Second
	longestPause = 5 * time.Minute
	// burst is how many mails one address may get at once, refill how long until it
	// may get another; faster ones are combined into one mail.
	burst  = 30
	refill = time.Minute
)

// Source supplies waiting notices; fsm.FSM is one.
type Source interface {
	Notices(after uint64, limit int) []*logv1.Notice
	Webhooks() ([]*logv1.Webhook, *logv1.Telling)
	WaitNotices(ctx context.Context, after uint64) error
}

// Config configures a Sender.
type Config struct {
	Source Source
	// Settle removes notices from those that wait, and returns when they are.
	Settle func(context.Context, *logv1.SettleNotices) error
	Mailer *Mailer
	Poster *Poster
	// Tries is how often something is sent at most, 0 for 15: over 40 minutes
	// then, since pauses double from FirstPause, 0 for a second, up to 5 minutes.
	Tries      int
	FirstPause time.Duration
	// Clock defaults to time.Now.
	Clock   func() time.Time
	Log     *slog.Logger
	Metrics *Metrics
}

// Metrics count what is sent. One set serves all Senders of a process.
type Metrics struct{ sent, failed, dead *prometheus.CounterVec }

// NewMetrics registers the metrics.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	vec := func(name, help string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "berth_notify_" + name + "_total", Help: help}, []string{"by"})
		reg.MustRegister(v)
		return v
	}
	return &Metrics{
		vec("sent", "Notices delivered, by mail or webhook."),
		vec("failed", "Failed attempts to send notices."),
		vec("dead", "Notices that were abandoned."),
	}
}

// Sender sends waiting notices, while it runs. Every address and every webhook has
// its own line: one that does not answer holds up no other.
type Sender struct {
	cfg   Config
	lines map[lineKey]*line
	done  chan outcome
	wg    sync.WaitGroup
	mails int // on their way
	posts int
}

type lineKey struct {
	hook uint64 // 0 for mail
	to   string
}

// line is the state of one receiver.
type line struct {
	busy   bool
	began  time.Time // when something was last sent to it
	tries  int
	next   time.Time
	tokens float64
	filled time.Time
}

// outcome is the outcome of a batch.
type outcome struct {
	key   lineKey
	batch []*logv1.Notice
	err   error
}

// New returns a sender.
func New(cfg Config) *Sender {
	cfg.Tries = cmp.Or(cfg.Tries, defaultTries)
	cfg.FirstPause = cmp.Or(cfg.FirstPause, firstPause)
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	cfg.Log = cfg.Log.With("component", "notify")
	return &Sender{cfg: cfg, lines: map[lineKey]*line{}, done: make(chan outcome, mostMails+mostPosts)}
}

// Run sends until ctx ends, or Settle fails. The next Sender may send again what
// was on its way then.
func (s *Sender) Run(ctx context.Context) error {
	sctx, cancel := context.WithCancel(ctx)
	defer s.wg.Wait()
	defer cancel()
	news := make(chan struct{}, 1)
	s.wg.Go(func() { s.listen(sctx, news) })
	for {
		wait, err := s.round(sctx)
		if err != nil {
			return err
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-news:
		case <-timer.C:
		case o := <-s.done:
			if err := s.settle(sctx, o); err != nil {
				timer.Stop()
				return err
			}
		}
		timer.Stop()
	}
}

// listen signals news.
func (s *Sender) listen(ctx context.Context, news chan<- struct{}) {
	last := uint64(0)
	for {
		if s.cfg.Source.WaitNotices(ctx, last) != nil {
			return
		}
		if ns := s.cfg.Source.Notices(last, page); len(ns) > 0 {
			last = ns[len(ns)-1].Seq
		}
		wait.Poke(news)
	}
}

// round starts to send what is due, and returns how long to wait for more.
func (s *Sender) round(ctx context.Context) (time.Duration, error) {
	now, wait := s.cfg.Clock(), time.Minute
	hooks, _ := s.cfg.Source.Webhooks()
	byID := map[uint64]*logv1.Webhook{}
	for _, h := range hooks {
		byID[h.Id] = h
	}
	batches, order := map[lineKey][]*logv1.Notice{}, []lineKey{}
	for _, n := range s.waiting() {
		key := lineKey{hook: n.Target}
		if n.Target == 0 {
			key.to = cmp.Or(n.To, n.User)
		}
		if batches[key] == nil {
			order = append(order, key)
		}
		batches[key] = append(batches[key], n)
	}
	// Whoever has waited longest comes first: a receiver that is slow to take what it
	// has in plenty always has the oldest notice.
	slices.SortStableFunc(order, func(a, b lineKey) int { return s.line(a, now).began.Compare(s.line(b, now).began) })
	var off []*logv1.Notice
	for _, key := range order {
		l := s.line(key, now)
		switch {
		case l.busy:
			continue
		case key.hook == 0 && s.cfg.Mailer.Program == "":
			off = append(off, batches[key]...)
			continue
		}
		l.fill(now)
		due := l.next
		if key.hook == 0 && l.tokens < 1 {
			due = later(due, now.Add(time.Duration((1-l.tokens)*float64(refill))))
		}
		if d := due.Sub(now); d > 0 {
			wait = min(wait, d)
			continue
		}
		if on, most := s.under(key); *on == most {
			continue // one that ends triggers another round
		}
		s.start(ctx, key, l, byID[key.hook], batches[key])
	}
	s.forget(batches, now)
	return wait, s.discard(ctx, off)
}

// under returns how much is on its way in the manner of a line, and how much may be.
func (s *Sender) under(key lineKey) (on *int, most int) {
	if key.hook != 0 {
		return &s.posts, mostPosts
	}
	return &s.mails, mostMails
}

// waiting returns the oldest waiting notices. Each line sees all of its own among
// them; one that is far behind does not hide the others forever, as its notices are
// bounded.
func (s *Sender) waiting() (out []*logv1.Notice) {
	after := uint64(0)
	for {
		ns := s.cfg.Source.Notices(after, page)
		out = append(out, ns...)
		if len(ns) < page {
			return out
		}
		after = ns[len(ns)-1].Seq
	}
}

// discard settles mail of a site that sends none.
func (s *Sender) discard(ctx context.Context, ns []*logv1.Notice) error {
	if len(ns) == 0 {
		return nil
	}
	m := &logv1.SettleNotices{}
	for _, n := range ns {
		m.Dead = append(m.Dead, &logv1.SettleNotices_GivenUp{Seq: n.Seq, Error: "this cluster sends no mail: notify.sendmail of its coordinators is not set"})
	}
	return s.cfg.Settle(ctx, m)
}

func (s *Sender) line(key lineKey, now time.Time) *line {
	l := s.lines[key]
	if l == nil {
		l = &line{tokens: burst, filled: now}
		s.lines[key] = l
	}
	return l
}

// fill gives a line the allowance accrued by now.
func (l *line) fill(now time.Time) {
	if d := now.Sub(l.filled); d > 0 {
		l.tokens = min(burst, l.tokens+float64(d)/float64(refill))
	}
	l.filled = now
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// forget drops lines with nothing left to send and a full allowance.
func (s *Sender) forget(batches map[lineKey][]*logv1.Notice, now time.Time) {
	for key, l := range s.lines {
		if l.fill(now); !l.busy && batches[key] == nil && (key.hook != 0 || l.tokens >= burst) {
			delete(s.lines, key)
		}
	}
}

// start sends the first notices that wait for one receiver.
func (s *Sender) start(ctx context.Context, key lineKey, l *line, h *logv1.Webhook, ns []*logv1.Notice) {
	switch {
	case key.hook != 0:
		ns = ns[:min(len(ns), mostInPost)]
	case len(ns) > mostSingle || l.tokens < float64(len(ns)):
		ns = ns[:min(len(ns), mostInMail)]
		l.tokens--
	default:
		ns = ns[:1]
		l.tokens--
	}
	l.busy, l.began = true, s.cfg.Clock()
	on, _ := s.under(key)
	*on++
	s.wg.Go(func() {
		o := outcome{key: key, batch: ns}
		switch now := s.cfg.Clock(); {
		case key.hook == 0:
			o.err = s.cfg.Mailer.Send(ctx, ns, now)
		case h == nil:
			o.err = errForGood
		default:
			o.err = s.cfg.Poster.Post(ctx, h, ns, now)
		}
		s.done <- o
	})
}

// settle records the outcome of a batch.
func (s *Sender) settle(ctx context.Context, o outcome) error {
	l := s.lines[o.key]
	l.busy = false
	on, _ := s.under(o.key)
	*on--
	if ctx.Err() != nil {
		return ctx.Err() // the next leader tries
	}
	by := "mail"
	if o.key.hook != 0 {
		by = "webhook"
	}
	m := &logv1.SettleNotices{}
	switch l.tries++; {
	case o.err == nil:
		for _, n := range o.batch {
			m.Sent = append(m.Sent, n.Seq)
		}
		l.tries, l.next = 0, time.Time{}
		s.cfg.Metrics.sent.WithLabelValues(by).Add(float64(len(o.batch)))
	case errors.Is(o.err, errForGood) || l.tries >= s.cfg.Tries:
		for _, n := range o.batch {
			m.Dead = append(m.Dead, &logv1.SettleNotices_GivenUp{Seq: n.Seq, Error: plain(fmt.Sprintf("%.*s", mostWhy, o.err))})
		}
		s.cfg.Log.WarnContext(ctx, "notices are given up", "webhook", o.key.hook, "notices", len(o.batch), "tries", l.tries, "err", o.err)
		l.tries, l.next = 0, time.Time{}
		s.cfg.Metrics.dead.WithLabelValues(by).Add(float64(len(o.batch)))
	default:
		s.cfg.Metrics.failed.WithLabelValues(by).Inc()
		s.cfg.Log.InfoContext(ctx, "notices did not arrive; they are sent again", "webhook", o.key.hook, "tries", l.tries, "err", o.err)
		l.next = s.cfg.Clock().Add(pause(s.cfg.FirstPause, l.tries))
		return nil
	}
	return s.cfg.Settle(ctx, m)
}

// pause doubles with each try, within its bound, and is drawn from its upper half
// so that retries spread out.
func pause(first time.Duration, tries int) time.Duration {
	d := longestPause
	if tries < 20 {
		d = min(longestPause, first<<(tries-1))
	}
	return d/2 + rand.N(d/2+1) // #nosec G404 -- spreads what many do at once
}

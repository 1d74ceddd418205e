package notify

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// box is a Source in memory, as the state machine is one.
type box struct {
	mu      sync.Mutex
	notices []*logv1.Notice
	hooks   []*logv1.Webhook
	settled []*logv1.SettleNotices
	news    chan struct{}
	seq     uint64
}

func newBox(hooks ...*logv1.Webhook) *box { return &box{hooks: hooks, news: make(chan struct{})} }

func (b *box) put(change func(*logv1.Notice)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seq++
	n := notice(change)
	n.Seq = b.seq
	b.notices = append(b.notices, n)
	close(b.news)
	b.news = make(chan struct{})
}

func (b *box) Notices(after uint64, limit int) (out []*logv1.Notice) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range b.notices {
		if n.Seq > after && len(out) < limit {
			out = append(out, n)
		}
	}
	return out
}

func (b *box) Webhooks() ([]*logv1.Webhook, *logv1.Telling) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.hooks, &logv1.Telling{}
}

func (b *box) WaitNotices(ctx context.Context, after uint64) error {
	for {
		b.mu.Lock()
		found, news := len(b.notices) > 0 && b.notices[len(b.notices)-1].Seq > after, b.news
		b.mu.Unlock()
		if found {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-news:
		}
	}
}

func (b *box) settle(_ context.Context, m *logv1.SettleNotices) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	gone := map[uint64]bool{}
	for _, s := range m.Sent {
		gone[s] = true
	}
	for _, d := range m.Dead {
		gone[d.Seq] = true
	}
	var kept []*logv1.Notice
	for _, n := range b.notices {
		if !gone[n.Seq] {
			kept = append(kept, n)
		}
	}
	b.notices, b.settled = kept, append(b.settled, m)
	return nil
}

// counts are how many notices arrived and were given up.
func (b *box) counts() (sent, dead int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.settled {
		sent, dead = sent+len(m.Sent), dead+len(m.Dead)
	}
	return sent, dead
}

func run(t *testing.T, b *box, m *Mailer, tries int) {
	t.Helper()
	p := NewPoster("lab", "lab-1", loopback())
	s := New(Config{
		Source: b, Settle: b.settle, Mailer: m, Poster: p, Tries: tries, FirstPause: time.Millisecond,
		Log: slog.New(slog.DiscardHandler), Metrics: NewMetrics(prometheus.NewRegistry()),
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		p.Close()
	})
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("in two minutes not: " + what)
		}
	}
}

// TestAgainUntilItArrives: a webhook that fails twice has each event once after
// that, in order, and one that is slow holds up neither mail nor others.
func TestAgainUntilItArrives(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	calls := map[string]int{}
	release := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		calls[r.URL.Path]++
		n := calls[r.URL.Path]
		mu.Unlock()
		switch {
		case r.URL.Path == "/slow":
			<-release
		case n <= 2:
			w.WriteHeader(http.StatusBadGateway)
		}
	}))
	t.Cleanup(srv.Close)
	t.Cleanup(func() { close(release) })
	path, dir := script(t, "cat >>mails\n")
	b := newBox(&logv1.Webhook{Id: 1, Url: srv.URL + "/slow", Secret: []byte("s")}, &logv1.Webhook{Id: 2, Url: srv.URL + "/twice", Secret: []byte("s")})
	for range 3 {
		b.put(func(n *logv1.Notice) { n.Target = 1 })
		b.put(func(n *logv1.Notice) { n.Target = 2 })
		b.put(nil)
	}
	run(t, b, &Mailer{Program: path, Sender: "x@y"}, 5)
	until(t, "all but the slow one arrive", func() bool { sent, _ := b.counts(); return sent == 6 })
	mails, err := os.ReadFile(filepath.Join(dir, "mails"))
	if err != nil || strings.Count(string(mails), "X-Berth-Notice:") != 3 {
		t.Errorf("%v\n%s", err, mails)
	}
	mu.Lock()
	defer mu.Unlock()
	if calls["/slow"] != 1 || calls["/twice"] < 3 {
		t.Errorf("%v", calls)
	}
}

// TestGivenUp: what never arrives is, after the tries that it has, and so is what
// another try does not mend, at once; what goes to a webhook that is gone, too.
func TestGivenUp(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	calls := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		calls++
		mu.Unlock()
		w.WriteHeader(http.StatusInternalServerError)
	}))
	t.Cleanup(srv.Close)
	b := newBox(&logv1.Webhook{Id: 1, Url: srv.URL, Secret: []byte("s")})
	b.put(func(n *logv1.Notice) { n.Target = 1 })
	b.put(func(n *logv1.Notice) { n.Target = 9 })
	b.put(func(n *logv1.Notice) { n.User = "" })
	path, _ := script(t, "exit 0\n")
	run(t, b, &Mailer{Program: path, Sender: "x@y"}, 4)
	until(t, "all are given up", func() bool { _, dead := b.counts(); return dead == 3 })
	mu.Lock()
	defer mu.Unlock()
	if calls != 4 {
		t.Errorf("%d tries, want 4", calls)
	}
}

// TestWhyIsTextOfOneLine: what a webhook answers is kept only as far as the log can hold it:
// otherwise no notice would ever be settled again.
func TestWhyIsTextOfOneLine(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		io.WriteString(conn, "HTTP/1.1 410 \xff\x1b[2J"+strings.Repeat("x", 60_000)+"\r\nContent-Length: 0\r\n\r\n")
	}))
	t.Cleanup(srv.Close)
	b := newBox(&logv1.Webhook{Id: 1, Url: srv.URL, Secret: []byte("s")})
	for range mostInPost {
		b.put(func(n *logv1.Notice) { n.Target = 1 })
	}
	run(t, b, &Mailer{}, 4)
	until(t, "all are given up", func() bool { _, dead := b.counts(); return dead == mostInPost })
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.settled {
		if data, err := proto.Marshal(m); err != nil || len(data) > 100_000 || strings.ContainsRune(m.Dead[0].Error, '\x1b') {
			t.Errorf("%d bytes, %v", len(data), err)
		}
	}
}

// TestSlowWebhooksHoldUpNobody: as many as a user may have, that all take their time, leave
// room for mail and for the webhooks of others.
func TestSlowWebhooksHoldUpNobody(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			<-release
		}
	}))
	t.Cleanup(srv.Close)
	t.Cleanup(func() { close(release) })
	path, _ := script(t, "exit 0\n")
	b := newBox(&logv1.Webhook{Id: 9, Url: srv.URL, Secret: []byte("s")})
	for id := range uint64(8) {
		b.hooks = append(b.hooks, &logv1.Webhook{Id: 1 + id, Url: srv.URL + "/slow", Secret: []byte("s")})
		b.put(func(n *logv1.Notice) { n.Target = 1 + id })
	}
	b.put(func(n *logv1.Notice) { n.Target = 9 })
	b.put(nil)
	run(t, b, &Mailer{Program: path, Sender: "x@y"}, 5)
	until(t, "the mail and the other webhook's arrive", func() bool { sent, _ := b.counts(); return sent == 2 })
}

// TestReceiversTakeTurns: with room for one more, what goes next is for the one to whom
// nothing was sent for longest, although the other's notices are older.
func TestReceiversTakeTurns(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(srv.Close)
	b := newBox(&logv1.Webhook{Id: 1, Url: srv.URL, Secret: []byte("s")}, &logv1.Webhook{Id: 2, Url: srv.URL, Secret: []byte("s")})
	for _, id := range []uint64{1, 1, 2} {
		b.put(func(n *logv1.Notice) { n.Target = id })
	}
	p := NewPoster("lab", "lab-1", loopback())
	t.Cleanup(p.Close)
	s := New(Config{Source: b, Settle: b.settle, Mailer: &Mailer{}, Poster: p, Log: slog.New(slog.DiscardHandler), Metrics: NewMetrics(prometheus.NewRegistry())})

	s.line(lineKey{hook: 1}, time.Now()).began = time.Now()
	s.posts = mostPosts - 1
	if _, err := s.round(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.wg.Wait()
	if o := <-s.done; o.key.hook != 2 || o.err != nil || s.posts != mostPosts {
		t.Errorf("webhook %d had its turn, %v; %d are on their way", o.key.hook, o.err, s.posts)
	}
}

// TestNoMailHere: mail of a cluster that sends none does not wait for ever.
func TestNoMailHere(t *testing.T) {
	t.Parallel()
	b := newBox()
	run(t, b, &Mailer{}, 4)
	b.put(nil)
	until(t, "it is given up", func() bool { _, dead := b.counts(); return dead == 1 })
}

// TestAFloodIsOneMail: many that wait for one address come in few mails, others'
// one by one.
func TestAFloodIsOneMail(t *testing.T) {
	t.Parallel()
	path, dir := script(t, "cat >mail.$$\n")
	b := newBox()
	for range 1200 {
		b.put(nil)
	}
	b.put(func(n *logv1.Notice) { n.To = "bob" })
	run(t, b, &Mailer{Program: path, Sender: "x@y"}, 4)
	until(t, "all arrive", func() bool { sent, _ := b.counts(); return sent == 1201 })
	mails, err := filepath.Glob(filepath.Join(dir, "mail.*"))
	if err != nil || len(mails) != 4 {
		t.Errorf("%d mails, %v", len(mails), err)
	}
}

// TestMailsAreMetered: what comes one after the other goes one by one, up to a
// bound, and together from then on.
func TestMailsAreMetered(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	l := &line{tokens: burst, filled: now}
	sent := 0
	for range 100 {
		now = now.Add(time.Second)
		if l.fill(now); l.tokens >= 1 {
			l.tokens--
			sent++
		}
	}
	if sent != burst+1 {
		t.Errorf("%d mails in 100 s, want %d", sent, burst+1)
	}
	if l.fill(now.Add(time.Hour)); l.tokens != burst {
		t.Errorf("%v may be sent after an hour", l.tokens)
	}
}

func TestPausesGrow(t *testing.T) {
	t.Parallel()
	for tries := 1; tries < 100; tries++ {
		want := longestPause
		if tries < 10 {
			want = min(want, time.Second<<(tries-1))
		}
		if d := pause(time.Second, tries); d < want/2 || d > want+1 {
			t.Errorf("after %d tries %s", tries, d)
		}
	}
}

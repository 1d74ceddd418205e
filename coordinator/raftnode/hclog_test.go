package raftnode

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
)

// buffer is a bytes.Buffer that many may write to.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func textLogger(b *buffer, level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

func TestHclog(t *testing.T) {
	t.Parallel()
	var b buffer
	l := newHclog(textLogger(&b, slog.LevelDebug)).Named("raft").With("node", "a")
	l.Info("entering follower state", "leader-address", "x")
	l.Warn("heartbeat timeout reached, starting election")
	l.Error("failed to heartbeat to", "peer", "b", "error", errors.New("refused"))
	l.Error("failed to heartbeat to", "peer", "b", "error", errors.New("refused again"))
	l.Error("failed to heartbeat to", "peer", "c", "error", errors.New("refused"))
	l.Error("failed to decode incoming command", "error", fmt.Errorf("read: %w", syscall.ECONNRESET))
	l.Error("failed to decode incoming command", "error", errors.New("tls: bad certificate"))
	l.Info("servers", "servers", hclog.Fmt("%d of %d", 1, 2), "odd")
	want := `level=DEBUG msg="entering follower state" node=a leader-address=x
level=DEBUG msg="heartbeat timeout reached, starting election" node=a
level=WARN msg="failed to heartbeat to" node=a peer=b err=refused
level=WARN msg="failed to heartbeat to" node=a peer=c err=refused
level=DEBUG msg="failed to decode incoming command" node=a err="read: connection reset by peer"
level=WARN msg="failed to decode incoming command" node=a err="tls: bad certificate"
level=DEBUG msg=servers node=a servers="1 of 2"
`
	if got := b.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if l.Name() != "raft" || !l.IsDebug() || newHclog(textLogger(&b, slog.LevelInfo)).IsInfo() {
		t.Error("name or levels are wrong")
	}
}

// TestHealthyClusterIsSilent starts a cluster, uses it, takes snapshots, hands
// over and closes: at info level there is nothing but who leads.
func TestHealthyClusterIsSilent(t *testing.T) {
	t.Parallel()
	var b buffer
	c := newCluster(t, 3, func(cfg *Config) {
		cfg.Log = textLogger(&b, slog.LevelInfo)
		const long = 30 * time.Second // none misses another, however busy the machine is
		cfg.Timing.HeartbeatTimeout, cfg.Timing.ElectionTimeout, cfg.Timing.LeaderLeaseTimeout = long, long, long
	})
	c.stand(c.members[0])
	lead := c.leader()
	propose(t, lead, "x")
	c.agree([]string{"x"})
	if err := lead.raft.Snapshot().Error(); err != nil {
		t.Fatal(err)
	}
	if err := lead.TransferLeadership(t.Context()); err != nil {
		t.Fatal(err)
	}
	next := c.leader()
	c.agree([]string{"x"})
	waitFor(t, "the change to be logged", func() bool { return strings.Contains(b.String(), "leader="+next.id) })
	for line := range strings.Lines(b.String()) {
		if !strings.Contains(line, `level=INFO msg="leader changed"`) {
			t.Errorf("logged: %s", line)
		}
	}
}

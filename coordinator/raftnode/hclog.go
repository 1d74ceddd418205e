package raftnode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
)

// slogLogger lets hashicorp's libraries log through slog. Their info level reports
// every step, so it becomes debug; Node itself logs leader changes. Their errors
// are mostly about absent peers, which they handle by retrying: they become
// warnings, and a repeated one is shown once per repeatEvery. What really ends a
// node goes through Config.Fatal.
type slogLogger struct {
	log    *slog.Logger
	name   string
	args   []any
	recent *recent
}

// repeatEvery is how often the same warning is shown.
const repeatEvery = 30 * time.Second

var _ hclog.Logger = (*slogLogger)(nil)

func newHclog(l *slog.Logger) *slogLogger {
	return &slogLogger{log: l, recent: &recent{seen: map[string]time.Time{}}}
}

// routine reports whether a warning belongs to a healthy cluster's start or to an
// orderly hand-over.
func routine(msg string, args []any) bool {
	switch msg {
	case "failed to decode incoming command":
		// A peer that went away; anything else, such as a bad certificate, is
		// shown.
		return slices.ContainsFunc(args, func(a any) bool {
			err, ok := a.(error)
			return ok && (errors.Is(err, syscall.ECONNRESET) || errors.Is(err, net.ErrClosed) || errors.Is(err, io.EOF))
		})
	case "heartbeat timeout reached, starting election", "Election timeout reached, restarting election",
		"rejecting pre-vote request since we have a leader", "rejecting vote request since we have a leader",
		"rejecting pre-vote request since our last term is greater", "rejecting vote request since our last term is greater",
		"rejecting pre-vote request since our last index is greater", "rejecting vote request since our last index is greater",
		"peer has newer term, stopping replication", "new leader elected, stepping down",
		"no known peers, aborting election", "found temporary snapshot",
		"appendEntries rejected, sending older logs", "previous log term mis-match", "failed to get previous log",
		"heartbeat timeout reached, not part of a stable configuration or a non-voter, not triggering a leader election":
		return true
	}
	return false
}

// Log writes one message.
func (l *slogLogger) Log(level hclog.Level, msg string, args ...any) {
	to := slog.LevelDebug
	if level >= hclog.Warn && level < hclog.Off && !routine(msg, args) {
		to = slog.LevelWarn
	}
	ctx := context.Background()
	if !l.log.Enabled(ctx, to) {
		return
	}
	attrs := l.attrs(args)
	if to == slog.LevelWarn && !l.recent.first(msg, attrs) {
		return
	}
	l.log.LogAttrs(ctx, to, msg, attrs...)
}

// attrs turns hclog's pairs into attributes; "error" is "err" here.
func (l *slogLogger) attrs(args []any) []slog.Attr {
	all := slices.Concat(l.args, args)
	out := make([]slog.Attr, 0, len(all)/2+1)
	for i := 0; i+1 < len(all); i += 2 {
		key, v := fmt.Sprint(all[i]), all[i+1]
		if key == "error" {
			key = "err"
		}
		switch x := v.(type) {
		case hclog.Format:
			if len(x) > 0 {
				if f, ok := x[0].(string); ok {
					v = fmt.Sprintf(f, x[1:]...)
				}
			}
		case fmt.Stringer, error:
			v = fmt.Sprint(x)
		}
		out = append(out, slog.Any(key, v))
	}
	return out
}

// recent remembers recent messages.
type recent struct {
	mu   sync.Mutex
	seen map[string]time.Time
}

// first reports whether this message about this peer is due again. Attributes
// that vary, such as times, are left out of the comparison.
func (r *recent) first(msg string, attrs []slog.Attr) bool {
	key := msg
	for _, a := range attrs {
		if a.Key == "peer" || a.Key == "server-id" || a.Key == "name" {
			key += "\x00" + a.Value.String()
		}
	}
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if at, ok := r.seen[key]; ok && now.Sub(at) < repeatEvery {
		return false
	}
	if len(r.seen) > 256 {
		clear(r.seen)
	}
	r.seen[key] = now
	return true
}

// Trace implements hclog.Logger.
func (l *slogLogger) Trace(msg string, args ...any) { l.Log(hclog.Trace, msg, args...) }

// Debug implements hclog.Logger.
func (l *slogLogger) Debug(msg string, args ...any) { l.Log(hclog.Debug, msg, args...) }

// Info implements hclog.Logger.
func (l *slogLogger) Info(msg string, args ...any) { l.Log(hclog.Info, msg, args...) }

// Warn implements hclog.Logger.
func (l *slogLogger) Warn(msg string, args ...any) { l.Log(hclog.Warn, msg, args...) }

// Error implements hclog.Logger.
func (l *slogLogger) Error(msg string, args ...any) { l.Log(hclog.Error, msg, args...) }

func (l *slogLogger) enabled(v slog.Level) bool { return l.log.Enabled(context.Background(), v) }

// IsTrace implements hclog.Logger.
func (l *slogLogger) IsTrace() bool { return l.enabled(slog.LevelDebug) }

// IsDebug implements hclog.Logger.
func (l *slogLogger) IsDebug() bool { return l.enabled(slog.LevelDebug) }

// IsInfo implements hclog.Logger.
func (l *slogLogger) IsInfo() bool { return l.enabled(slog.LevelDebug) }

// IsWarn implements hclog.Logger.
func (l *slogLogger) IsWarn() bool { return l.enabled(slog.LevelWarn) }

// IsError implements hclog.Logger.
func (l *slogLogger) IsError() bool { return l.enabled(slog.LevelWarn) }

// ImpliedArgs implements hclog.Logger.
func (l *slogLogger) ImpliedArgs() []any { return l.args }

// With implements hclog.Logger.
func (l *slogLogger) With(args ...any) hclog.Logger {
	c := *l
	c.args = slices.Concat(l.args, args)
	return &c
}

// Name implements hclog.Logger.
func (l *slogLogger) Name() string { return l.name }

// Named implements hclog.Logger.
func (l *slogLogger) Named(name string) hclog.Logger {
	if l.name != "" {
		name = l.name + "." + name
	}
	return l.ResetNamed(name)
}

// ResetNamed implements hclog.Logger.
func (l *slogLogger) ResetNamed(name string) hclog.Logger {
	c := *l
	c.name = name
	return &c
}

// SetLevel does nothing: slog's handler decides.
func (l *slogLogger) SetLevel(hclog.Level) {}

// GetLevel implements hclog.Logger.
func (l *slogLogger) GetLevel() hclog.Level { return hclog.Trace }

// StandardLogger implements hclog.Logger.
func (l *slogLogger) StandardLogger(*hclog.StandardLoggerOptions) *log.Logger {
	return slog.NewLogLogger(l.log.Handler(), slog.LevelDebug)
}

// StandardWriter implements hclog.Logger.
func (l *slogLogger) StandardWriter(o *hclog.StandardLoggerOptions) io.Writer {
	return l.StandardLogger(o).Writer()
}

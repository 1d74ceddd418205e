package client

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/wait"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/link"
	"github.com/berth-scheduler/berth/cmd/internal/cli/wire"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

// How long the client goes on without a definite answer.
const (
	// downAfter is when the client gives up if nothing ever listened on any socket.
	downAfter = 8 * time.Second
	// firstTry bounds the first attempts at all sockets together, so that
	// processes that accept and never answer do not hide a healthy one for
	// long.
	firstTry  = 9 * time.Second
	laterTry  = 15 * time.Second
	FirstWait = 50 * time.Millisecond
	mostWait  = 2 * time.Second
	noticeAt  = time.Second
	maxAnswer = 256 << 20
)

// Client asks one coordinator after another until one gives a definite answer
// or the timeout passes. The transport is gRPC over unix sockets, where the
// kernel tells the server who the caller is. It serves one command and is not
// safe for concurrent use.
type Client struct {
	env     *console.Env
	Timeout time.Duration
	conns   []*conn
	best    int // index of the socket that answered last
}

// conn is the connection to one socket. It records whether a request ever
// went out on it, which decides between "not done" and "unknown".
type conn struct {
	socket  string
	wire    *wire.Conn
	reached atomic.Bool   // something listened
	sent    atomic.Bool   // a request left since the last reset
	dialErr atomic.Value  // the last error
	busy    time.Duration // how long the server said to wait at the last attempt
}

// NewClient returns a client of the sockets named by e.
func NewClient(e *console.Env) *Client { return &Client{env: e, Timeout: DefaultTimeout} }

func (c *Client) connect() error {
	if c.conns != nil {
		return nil
	}
	header := [][2]string{{"user-agent", "berth-cli/" + console.Version().Version}}
	if shows := link.Credential(c.env.Getenv(cluster.CredentialVar)); shows != "" {
		header = append(header, [2]string{cluster.CredentialKey, shows})
	}
	for _, s := range c.env.Sockets() {
		cn := &conn{socket: s}
		cn.wire = &wire.Conn{Conn: link.Conn{
			Header: header, Most: maxAnswer,
			Sent: func() { cn.sent.Store(true) }, Unsent: func() { cn.sent.Store(false) },
			Dial: func(ctx context.Context) (net.Conn, error) {
				nc, err := c.env.Dial(ctx, cn.socket)
				if err != nil {
					cn.dialErr.Store(fmt.Errorf("%w", err)) // one concrete type, as atomic.Value requires
					return nil, err
				}
				cn.reached.Store(true)
				return nc, nil
			},
		}}
		c.conns = append(c.conns, cn)
	}
	return nil
}

// Close closes the connections.
func (c *Client) Close() {
	for _, cn := range c.conns {
		cn.wire.Close()
	}
	c.conns = nil
}

// effect says whether a call changes anything.
type effect int

const (
	// Reads is a call that changes nothing, so that repeating it is always safe.
	Reads effect = iota
	// Changes is a call that changes something: its outcome may be unknown.
	Changes
)

// outcome is why one socket gave no definite answer.
type outcome struct {
	socket string
	err    *cluster.Error
}

// Call runs do, which may make several calls, with one coordinator after
// another until the answer is definite: done, or refused for a reason that
// retrying does not cure. do must be safe to repeat. When time runs out the
// error is CodeUnknown if do Changes something and a request was sent without
// an answer, and CodeUnavailable otherwise.
func (c *Client) Call(ctx context.Context, eff effect, do func(context.Context, *wire.Conn) error) error {
	if c.Timeout <= 0 {
		return console.Usagef("--timeout %s: must be more than 0, such as 60s", c.Timeout)
	}
	if err := c.connect(); err != nil {
		return err
	}
	all, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	start, noticed, unknown := time.Now(), false, false
	limit := max(firstTry/time.Duration(len(c.conns)), time.Second)
	for pause := FirstWait; ; pause = min(2*pause, mostWait) {
		var tried []outcome
		var busy time.Duration
		for i := range c.conns {
			k := (c.best + i) % len(c.conns)
			err := c.conns[k].attempt(all, limit, do)
			if err == nil {
				c.best = k
				return nil
			}
			if !Indefinite(err) {
				c.best = k
				return afterUnknown(err, eff == Changes && unknown)
			}
			busy = max(busy, c.conns[k].busy)
			unknown = unknown || err.Code == cluster.CodeUnknown
			tried = append(tried, outcome{c.conns[k].socket, err})
			if all.Err() != nil {
				break
			}
		}
		if ctx.Err() == nil && !noticed && time.Since(start) > noticeAt {
			noticed = true
			what := "no coordinator answers yet"
			if busy > 0 {
				what = "the coordinators are overloaded"
			}
			c.env.Warnf("%s, trying again (%s)", what, console.Escape(tried[len(tried)-1].err.Msg))
		}
		limit = laterTry
		if c.down() && (time.Since(start) > downAfter || c.absent()) {
			return c.giveUp(eff, unknown, tried, ctx)
		}
		if !wait.Sleep(all, max(pause/2, busy)+rand.N(pause/2)) { // #nosec G404 -- spreads what many do at once
			return c.giveUp(eff, unknown, tried, ctx)
		}
	}
}

// attempt runs do once and classifies the error.
func (cn *conn) attempt(ctx context.Context, limit time.Duration, do func(context.Context, *wire.Conn) error) *cluster.Error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cn.sent.Store(false)
	cn.busy = 0
	start := time.Now()
	err := do(ctx, cn.wire)
	if err == nil {
		return nil
	}
	ce := fromStatus(err)
	cn.busy, _ = apiconv.RetryAfter(err)
	if ce.Code == cluster.CodeUnknown && !cn.sent.Load() {
		ce.Code = cluster.CodeUnavailable
	}
	if status.Code(err) == codes.Unimplemented {
		ce.Msg = "the coordinator at " + cn.socket + " does not know this request; it is older than this program (" + console.Version().Version + "), or much newer; nothing was done; use the same release (" + ce.Msg + ")"
	}
	if dial, ok := cn.dialErr.Load().(error); ok && !cn.reached.Load() {
		ce.Msg = dial.Error()
	} else if end, _ := ctx.Deadline(); errors.Is(ctx.Err(), context.DeadlineExceeded) || ctx.Err() == nil && !time.Now().Before(end) {
		// The coordinator has the same deadline, and may be the first to notice.
		ce.Msg = fmt.Sprintf("no answer within %s", time.Since(start).Round(time.Second))
	}
	return ce
}

// fromStatus converts a server's error; one that says when to retry is
// CodeUnavailable, and its request is retried.
func fromStatus(err error) *cluster.Error {
	ce := apiconv.FromStatus(err)
	if _, again := apiconv.RetryAfter(err); again && ce != nil {
		ce.Code = cluster.CodeUnavailable
	}
	return ce
}

// Indefinite reports whether e leaves the outcome of a request open.
func Indefinite(e *cluster.Error) bool {
	return e.Code == cluster.CodeUnknown || e.Code == cluster.CodeUnavailable
}

// afterUnknown judges a refusal that follows a try of unknown outcome: a
// refusal because of the cluster's state may mean that the first try
// succeeded. Other refusals would have met the first try as well.
func afterUnknown(err *cluster.Error, unknown bool) error {
	if unknown && (err.Code == cluster.CodeExhausted || err.Code == cluster.CodeConflict) {
		return cluster.Errorf(cluster.CodeUnknown, "an earlier attempt got no answer, and the last one was refused: %s", err.Msg)
	}
	return err
}

// down reports whether nothing ever listened on any socket.
func (c *Client) down() bool {
	return !slices.ContainsFunc(c.conns, func(cn *conn) bool { return cn.reached.Load() })
}

// absent reports whether not even the folder of any socket exists. A
// restarting daemon removes its socket for a moment, never its folder.
func (c *Client) absent() bool {
	return !slices.ContainsFunc(c.conns, func(cn *conn) bool {
		_, err := os.Stat(filepath.Dir(cn.socket))
		return !errors.Is(err, fs.ErrNotExist)
	})
}

// giveUp lists what was tried, one line per socket.
func (c *Client) giveUp(eff effect, unknown bool, tried []outcome, ctx context.Context) error {
	if eff == Reads && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	code, head := cluster.CodeUnavailable, "no coordinator answers; tried:"
	if eff == Changes && unknown {
		code, head = cluster.CodeUnknown, "no definite answer; tried:"
	} else if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var b strings.Builder
	b.WriteString(head)
	for _, t := range tried {
		fmt.Fprintf(&b, "\n  %s: %s", t.socket, strings.TrimSpace(t.err.Msg))
	}
	if c.down() {
		b.WriteString("\nIs Berth running on this machine? $BERTH_SOCKET lists the sockets to try; berth dev starts a trial cluster.")
	}
	return cluster.Errorf(code, "%s", b.String())
}

// Bound returns run, as console.Formatted takes it, for an environment and a client.
func Bound(e *console.Env, c *Client, run func(context.Context, *console.Env, *Client, console.Format, []string) error) func(context.Context, console.Format, []string) error {
	return func(ctx context.Context, f console.Format, args []string) error { return run(ctx, e, c, f, args) }
}

// GetJob reads one job in full.
func (c *Client) GetJob(ctx context.Context, id uint64) (*apiv1.Job, error) {
	return c.GetTask(ctx, id, nil)
}

// GetTask reads one job, or a task of the array with that id, in full.
func (c *Client) GetTask(ctx context.Context, id uint64, task *uint32) (*apiv1.Job, error) {
	resp, err := GetJob.Ask(ctx, c, Reads, &apiv1.GetJobRequest{Id: id, Task: task})
	if err != nil {
		return nil, err
	}
	job := resp.GetJob()
	if job == nil {
		return nil, cluster.Errorf(cluster.CodeInternal, "job %d: the coordinator's answer is empty", id)
	}
	return job, nil
}

// DefaultTimeout is how long the client keeps trying unless --timeout says otherwise.
const DefaultTimeout = 60 * time.Second

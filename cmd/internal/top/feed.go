package top

import (
	"context"
	"sync"
	"time"

	"github.com/berth-scheduler/berth/cluster/wait"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/wire"
	"github.com/berth-scheduler/berth/cmd/internal/top/screen"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

const (
	// gather is how long changes of jobs are collected before they are shown.
	gather = 250 * time.Millisecond
	// answerIn is how long an answer about nodes may take before the user is told.
	answerIn = 5 * time.Second
	// fullEvery is how many requests for nodes there are to one in full, with their history.
	fullEvery = 10
	// standingEvery is how often fair shares are asked for.
	standingEvery = 15 * time.Second
)

// feed keeps a screen up to date with the cluster.
type feed struct {
	ctx  context.Context // the screen's life
	env  *console.Env
	send func(msg any)
	wg   sync.WaitGroup

	mu      sync.Mutex
	changed []*apiv1.Job
	all     bool
	flusher *time.Timer
	leave   context.CancelFunc // ends requests about the selected job
	lost    map[string]bool
}

func newFeed(ctx context.Context, e *console.Env) *feed {
	quiet := *e
	quiet.Stderr = discard{}
	return &feed{ctx: ctx, env: &quiet, leave: func() {}, lost: map[string]bool{}}
}

type discard struct{}

// Write implements io.Writer.
func (discard) Write(b []byte) (int, error) { return len(b), nil }

// begin starts what runs until the feed's context ends.
func (f *feed) begin() {
	f.wg.Go(f.jobs)
	f.wg.Go(f.nodes)
	f.wg.Go(f.standing)
}

// wait returns once everything that the feed started has ended.
func (f *feed) wait() {
	f.mu.Lock()
	f.leave()
	if f.flusher != nil {
		f.flusher.Stop()
	}
	f.mu.Unlock()
	f.wg.Wait()
}

// client returns a client for a single goroutine.
func (f *feed) client(timeout time.Duration) *client.Client {
	c := client.NewClient(f.env)
	c.Timeout = timeout
	return c
}

func (f *feed) jobs() {
	c := f.client(answerIn)
	defer c.Close()
	_ = c.Follow(f.ctx, f.collect, func(err error) { f.link("jobs", err) })
}

// collect collects jobs to be shown soon.
func (f *feed) collect(jobs []*apiv1.Job, all bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if all {
		f.changed, f.all = nil, true
	}
	f.changed = append(f.changed, jobs...)
	if f.flusher == nil {
		f.flusher = time.AfterFunc(gather, f.flush)
	}
}

func (f *feed) flush() {
	f.mu.Lock()
	msg := screen.Jobs{All: f.all, Jobs: f.changed}
	f.changed, f.all, f.flusher = nil, false, nil
	f.mu.Unlock()
	if f.ctx.Err() == nil {
		f.send(msg)
	}
}

// link reports whether something answers, if that has changed.
func (f *feed) link(of string, err error) {
	f.mu.Lock()
	was := f.lost[of]
	f.lost[of] = err != nil
	f.mu.Unlock()
	switch {
	case f.ctx.Err() != nil:
	case err != nil:
		_, msg := console.Classify(f.ctx, err)
		f.send(screen.Link{Of: of, Err: oneLine(msg)})
	case was:
		f.send(screen.Link{Of: of})
	}
}

// nodes fetches the nodes repeatedly.
func (f *feed) nodes() {
	c := f.client(answerIn)
	defer c.Close()
	named := false
	for i := 0; ; i++ {
		full := i%fullEvery == 0
		var nodes []*apiv1.Node
		err := c.Call(f.ctx, client.Reads, func(ctx context.Context, on *wire.Conn) error {
			resp, err := client.ListNodes.On(ctx, on, &apiv1.ListNodesRequest{Brief: !full})
			nodes = resp.GetNodes()
			if err == nil && !named {
				if st, err := client.GetStatus.On(ctx, on, &apiv1.GetStatusRequest{Brief: true}); err == nil {
					named = true
					f.send(screen.Cluster{Name: st.GetName()})
				}
			}
			return err
		})
		if f.link("nodes", err); err == nil {
			f.send(screen.Nodes{Nodes: nodes, History: full})
		}
		if !wait.Sleep(f.ctx, screen.Every) {
			return
		}
	}
}

// standing fetches accounts and fair shares repeatedly. A site may have none.
func (f *feed) standing() {
	c := f.client(answerIn)
	defer c.Close()
	for {
		resp, err := client.ListStanding.Ask(f.ctx, c, client.Reads, &apiv1.ListStandingRequest{Usage: true})
		if err == nil {
			f.send(screen.Standing{Resp: resp})
		}
		if !wait.Sleep(f.ctx, standingEvery) {
			return
		}
	}
}

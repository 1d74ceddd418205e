package statuscmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/wire"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// NewStatusCmd returns the command status.
func NewStatusCmd(e *console.Env, c *client.Client) *cobra.Command {
	return console.Formatted(&cobra.Command{
		Use: "status", Short: "Show the cluster and your jobs at a glance",
		Long: "Show at a glance the GPUs and who holds them, the number of running and waiting jobs, your own jobs\n" +
			"and when the next is expected to start, and what is out of order. berth alone does the same.",
		Example: "  berth status\n  berth status -o json",
		Args:    console.NoArgs,
	}, client.Bound(e, c, run), console.FormatTable, console.FormatJSON, console.FormatYAML)
}

// dialTime is how long a coordinator's socket has to accept a connection.
const dialTime = 2 * time.Second

// Bare is berth without a command: the status, or how to begin if there is
// no coordinator.
func Bare(ctx context.Context, e *console.Env, c *client.Client) error {
	dial, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	var why []string
	for _, s := range e.Sockets() {
		conn, err := e.Dial(dial, s)
		if err == nil {
			conn.Close()
			return run(ctx, e, c, console.FormatTable, nil)
		}
		cause := err
		for next := errors.Unwrap(cause); next != nil; next = errors.Unwrap(cause) {
			cause = next
		}
		why = append(why, fmt.Sprintf("%s (%v)", s, cause))
	}
	return cluster.Errorf(cluster.CodeUnavailable, "no cluster can be reached at %s\n"+
		"To try one on this machine: berth dev; to use another cluster's socket: export BERTH_SOCKET=PATH\n"+
		"For help: berth --help", strings.Join(why, ", "))
}

// facts are the coordinator's answers, unprocessed.
type facts struct {
	status *apiv1.GetStatusResponse
	nodes  []*apiv1.Node
	mine   []*apiv1.Job
	// asked are the caller's jobs that were forecast, and starts the forecasts.
	asked  []*apiv1.Job
	starts map[uint64]*apiv1.JobForecast
}

// mostAsked is how many waiting jobs are forecast: the coordinator
// simulates each of them.
const mostAsked = 5

func run(ctx context.Context, e *console.Env, c *client.Client, f console.Format, _ []string) error {
	var got facts
	err := c.Call(ctx, client.Reads, func(ctx context.Context, on *wire.Conn) error {
		return got.gather(ctx, e.User(), on)
	})
	if err != nil {
		return err
	}
	if err := got.forecast(ctx, c); err != nil {
		return err
	}
	v := got.view()
	if done, err := console.PrintList(e, f, v); done {
		return err
	}
	v.print(e)
	return nil
}

// gather asks everything concurrently, so that it takes only as long as the
// slowest answer.
func (f *facts) gather(ctx context.Context, me string, on *wire.Conn) error {
	*f = facts{}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		f.status, err = client.GetStatus.On(ctx, on, &apiv1.GetStatusRequest{Brief: true})
		return err
	})
	g.Go(func() error {
		resp, err := client.ListNodes.On(ctx, on, &apiv1.ListNodesRequest{Brief: true})
		f.nodes = resp.GetNodes()
		return err
	})
	if me != "" {
		g.Go(func() (err error) {
			f.mine, err = client.BriefFrom(ctx, on, &apiv1.ListJobsRequest{Users: []string{me}})
			f.mine = slices.DeleteFunc(f.mine, func(j *apiv1.Job) bool { return j.GetReason() == string(cluster.ReasonStandby) }) // nothing of it is wanted now
			return err
		})
	}
	return g.Wait()
}

// forecast asks when the caller's first waiting jobs are expected to start.
func (f *facts) forecast(ctx context.Context, c *client.Client) error {
	var ids []uint64
	for _, j := range f.mine {
		if console.Waiting(j.GetState()) && len(ids) < mostAsked {
			f.asked, ids = append(f.asked, j), append(ids, j.GetId())
		}
	}
	if len(ids) == 0 {
		return nil
	}
	var err error
	f.starts, err = client.Forecasts(ctx, c, ids)
	return err
}

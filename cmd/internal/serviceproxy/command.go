package serviceproxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cluster/service"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/units"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// Short is the command's short help.
const Short = "Serve one address that forwards to a service's replicas"

// NewCommand returns the command service of the program that runs proxies.
func NewCommand(e *console.Env, c *client.Client) *cobra.Command {
	cmd := &cobra.Command{Use: "service", Short: "Run servers with health checks, rolling updates and scaling"}
	var listen, user, hold string
	var queue int
	proxy := &cobra.Command{
		Use: "proxy NAME", Short: Short,
		Long: Short + ". Each request goes to the\n" +
			"ready replica with the fewest in flight; one that was not accepted goes to another. The proxy runs\n" +
			"as whoever starts it, until it is ended, and keeps using the replicas it knows while no coordinator\n" +
			"can be asked. It speaks plain HTTP without authentication: let it listen where only those who may\n" +
			"use the service can reach it.",
		Example: "  berth service proxy chat --listen 127.0.0.1:8000", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if user == "" {
				user = e.User()
			}
			var one sync.Mutex // a client is for one caller at a time
			p := New(func(ctx context.Context) (There, error) {
				one.Lock()
				defer one.Unlock()
				return ready(ctx, c, user, args[0])
			}, slog.New(slog.NewTextHandler(os.Stderr, nil)))
			var err error
			if p.hold, err = units.ParseDuration(hold); err != nil {
				return console.Usagef("--hold: %w", err)
			}
			if p.queue = queue; queue < 1 || queue > maxQueue {
				return console.Usagef("--queue %d: want a number from 1 to %d", queue, maxQueue)
			}
			return run(cmd.Context(), listen, p, func(ctx context.Context, proxy string, counted *service.Counted) error {
				one.Lock()
				defer one.Unlock()
				return report(ctx, c, user, args[0], proxy, counted)
			})
		},
	}
	proxy.Flags().StringVar(&listen, "listen", "127.0.0.1:8000", "`ADDRESS` to listen on")
	proxy.Flags().StringVar(&user, "user", "", "the service of this `USER`; by default yours")
	proxy.Flags().StringVar(&hold, "hold", units.FormatDuration(DefaultHold), "how long a request to a service scaled to none waits for a replica, a `TIME`")
	proxy.Flags().IntVar(&queue, "queue", DefaultQueue, "at most this `NUMBER` of requests wait at once; more are answered 503")
	cmd.AddCommand(proxy)
	return cmd
}

// maxQueue bounds how many requests may wait for a replica at once.
const maxQueue = 100_000

// report sends a coordinator the measurements of a service.
func report(ctx context.Context, c *client.Client, user, name, proxy string, n *service.Counted) error {
	req := &apiv1.ReportRequestsRequest{
		User: user, Service: name, Proxy: proxy, Requests: n.Requests, Held: n.Held, InFlight: uint32(n.InFlight), Waiting: uint32(n.Waiting), Latency: n.Latency[:],
	}
	_, err := client.ReportRequests.Ask(ctx, c, client.Reads, req)
	return err
}

// ready returns where the replicas of a service accept requests.
func ready(ctx context.Context, c *client.Client, user, name string) (There, error) {
	jobs, err := client.ListJobs(ctx, c, &apiv1.ListJobsRequest{Brief: true, Replicas: true, Users: []string{user}})
	if err != nil {
		return There{}, err
	}
	var out There
	for _, j := range jobs { // by id: the newest revision is the last
		r := j.GetReplica()
		if r.GetService() != name {
			continue
		}
		if out.Sleeps = r.GetLeast() == 0; r.GetState() == service.Ready.String() {
			out.Addrs = append(out.Addrs, net.JoinHostPort(r.GetAddress(), strconv.FormatUint(uint64(r.GetPort()), 10)))
		}
	}
	return out, nil
}

// run serves until ctx ends, and then lets requests finish for a while.
func run(ctx context.Context, addr string, p *Proxy, tell Tell) error {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	p.log.InfoContext(ctx, "listening", "address", ln.Addr().String())
	go p.Follow(ctx)
	go p.Report(ctx, tell)
	srv := &http.Server{Handler: p, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
	ended := make(chan error, 1)
	go func() {
		<-ctx.Done()
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		ended <- srv.Shutdown(last)
	}()
	if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-ended
}

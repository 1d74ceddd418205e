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
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cluster/service"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// Short says what the command does.
const Short = "Serve one address that hands requests on to the replicas of a service"

// NewCommand returns the command service of the program that runs proxies.
func NewCommand(e *console.Env, c *client.Client) *cobra.Command {
	cmd := &cobra.Command{Use: "service", Short: "Run servers that are kept healthy, replaced and scaled"}
	var listen, user string
	proxy := &cobra.Command{
		Use: "proxy NAME", Short: Short,
		Long: Short + ". A request goes to the\n" +
			"replica that is ready with the fewest in flight; one that nobody took goes to another. It runs\n" +
			"until it is ended, as whoever starts it, and goes on with the replicas that it knows while no\n" +
			"coordinator can be asked. It speaks plain HTTP, and asks nobody who they are: let it listen where\n" +
			"those may reach it that may use the service.",
		Example: "  berth service proxy chat --listen 127.0.0.1:8000", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if user == "" {
				user = e.User()
			}
			return run(cmd.Context(), listen, New(func(ctx context.Context) ([]string, error) { return ready(ctx, c, user, args[0]) }, slog.New(slog.NewTextHandler(os.Stderr, nil))))
		},
	}
	proxy.Flags().StringVar(&listen, "listen", "127.0.0.1:8000", "`ADDRESS` to listen on")
	proxy.Flags().StringVar(&user, "user", "", "the service of this `USER`; without it yours")
	cmd.AddCommand(proxy)
	return cmd
}

// ready is where the replicas of a service take requests.
func ready(ctx context.Context, c *client.Client, user, name string) ([]string, error) {
	jobs, err := client.ListJobs(ctx, c, &apiv1.ListJobsRequest{Brief: true, Replicas: true, Users: []string{user}})
	if err != nil {
		return nil, err
	}
	var out []string
	for _, j := range jobs {
		if r := j.GetReplica(); r.GetService() == name && r.GetState() == service.Ready.String() {
			out = append(out, net.JoinHostPort(r.GetAddress(), strconv.FormatUint(uint64(r.GetPort()), 10)))
		}
	}
	return out, nil
}

// run serves until ctx ends, and then lets requests come to their end for a while.
func run(ctx context.Context, addr string, p *Proxy) error {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	p.log.InfoContext(ctx, "listening", "address", ln.Addr().String())
	go p.Follow(ctx)
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

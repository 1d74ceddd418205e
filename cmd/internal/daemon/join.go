package daemon

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/berth-scheduler/berth/agent"
	"github.com/berth-scheduler/berth/agent/launcher"
	"github.com/berth-scheduler/berth/agent/login"
	"github.com/berth-scheduler/berth/agent/runtime"
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/config"
	"github.com/berth-scheduler/berth/cmd/internal/tlsconf"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/berth/node/v1/noderpc"
)

type joinOptions struct {
	token        string
	coordinators []string
	node         string
	dir          string
	dataDir      string
}

const joinTimeout = 30 * time.Second

// newJoinCommand makes a machine a node of the cluster.
func newJoinCommand() *cobra.Command {
	var o joinOptions
	cmd := &cobra.Command{
		Use: "join", Short: "Join this machine to a cluster as a node", Args: cobra.NoArgs,
		Long: `Exchange a single-use token for a certificate and write the agent's configuration. The token carries
the hash of the cluster's CA, so the coordinator must prove itself before anything is sent to it.`,
		Example: "  berth agent join --node n17 --coordinator head1:7070 --token berth-join-v1.…",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.node == "" {
				o.node, _ = os.Hostname() // without a name the error is that --node is empty
			}
			if o.token == "" {
				o.token = os.Getenv("BERTH_JOIN_TOKEN")
			}
			path, err := o.join(cmd.Context())
			if err == nil {
				fmt.Fprintf(cmd.OutOrStdout(), "Joined as %s. The configuration is %s; start the agent with: systemctl enable --now berth-agent\n", o.node, path)
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.token, "token", "", "join token (or set BERTH_JOIN_TOKEN, which process lists do not show)")
	f.StringArrayVar(&o.coordinators, "coordinator", nil, "host:port of a coordinator; repeatable")
	f.StringVar(&o.node, "node", "", "name of this node, as given when the token was created (default: the host name)")
	f.StringVar(&o.dir, "dir", "/etc/berth", "directory for certificate and configuration")
	f.StringVar(&o.dataDir, "data-dir", config.DefaultAgent().Data.Dir, "directory for the agent's state")
	return cmd
}

func (o *joinOptions) join(ctx context.Context) (string, error) {
	if err := cluster.CheckName("--node", o.node); err != nil {
		return "", err
	}
	if len(o.coordinators) == 0 {
		return "", errors.New("--coordinator is missing; give host:port of a running one")
	}
	token, err := tlsconf.ParseToken(o.token)
	if err != nil {
		return "", fmt.Errorf("--token: %w", err)
	}
	confPath := filepath.Join(o.dir, "agent.yaml")
	if _, err := os.Stat(confPath); err == nil {
		return "", fmt.Errorf("%s exists: this machine has already joined; move it away to join again", confPath)
	}
	key, csr, err := tlsconf.NewKeyAndCSR()
	if err != nil {
		return "", err
	}
	resp, err := o.ask(ctx, token, csr)
	if err != nil {
		return "", err
	}
	return confPath, o.write(confPath, key, resp)
}

// ask tries each coordinator until the leader answers.
func (o *joinOptions) ask(ctx context.Context, token tlsconf.Token, csr []byte) (*nodev1.JoinResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	var errs []error
	for _, addr := range o.coordinators {
		conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(credentials.NewTLS(tlsconf.ClientConfigPinned(token.CAHash))))
		if err != nil {
			return nil, err
		}
		resp, err := noderpc.NewNodeServiceClient(conn).Join(ctx, &nodev1.JoinRequest{TokenSecret: token.SecretText(), Node: o.node, Csr: csr})
		conn.Close()
		if err == nil {
			return resp, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", addr, err))
	}
	return nil, errors.Join(errs...)
}

func (o *joinOptions) write(confPath string, key []byte, resp *nodev1.JoinResponse) error {
	a := config.DefaultAgent()
	a.Node.Name = o.node
	a.Cluster = config.Cluster{ID: resp.ClusterId}
	a.Coordinators = resp.Coordinators
	a.Data.Dir = o.dataDir
	tlsDir := filepath.Join(o.dir, "tls")
	a.TLS = config.AgentTLS{CA: filepath.Join(tlsDir, "ca.crt"), Cert: filepath.Join(tlsDir, "agent.crt"), Key: filepath.Join(tlsDir, "agent.key")}
	a.Gossip.KeyFile = filepath.Join(o.dir, "gossip.key")
	a.Gossip.Join = resp.GossipPeers
	if len(resp.GossipKey) == 0 {
		a.Gossip.Addr = ""
	}
	for _, d := range []string{tlsDir, o.dataDir} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return err
		}
	}
	files := tlsconf.Files{CA: a.TLS.CA, Cert: a.TLS.Cert, Key: a.TLS.Key}
	if err := tlsconf.WriteFiles(files, tlsconf.Material{CA: resp.Ca, Cert: resp.Certificate, Key: key}); err != nil {
		return err
	}
	if len(resp.GossipKey) > 0 {
		if err := os.WriteFile(a.Gossip.KeyFile, []byte(hex.EncodeToString(resp.GossipKey)+"\n"), 0o600); err != nil {
			return err
		}
	}
	data, err := yaml.Marshal(a)
	if err != nil {
		return err
	}
	return os.WriteFile(confPath, data, 0o644)
}

// newClearCommand removes what a node's agent left.
func newClearCommand() *cobra.Command {
	var o daemonOptions
	var patience time.Duration
	cmd := &cobra.Command{
		Use: "clear", Short: "End all jobs on this node and remove what its agent left", Args: cobra.NoArgs,
		Long: `For a node whose agent will not run again. Jobs of an agent that was killed continue, and the next agent takes
them over or clears up after them; without one their processes, containers, control groups and mounts stay.
This ends every job here and removes those. The agent must not be running. It runs no hooks, and leaves the
agent's own files and the power limits of GPUs.`,
		Example: "  systemctl disable --now berth-agent && berth agent clear",
		RunE: func(cmd *cobra.Command, _ []string) error {
			src, err := o.sources()
			if err != nil {
				return err
			}
			l, err := config.LoadAgent(src)
			if err != nil {
				return configError(err)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), patience)
			defer cancel()
			return clearNode(ctx, l.Config, cmd.OutOrStdout())
		},
	}
	o.flags(cmd, "/etc/berth/agent.yaml")
	cmd.Flags().DurationVar(&patience, "for", time.Minute, "how long to wait for processes that do not end")
	return cmd
}

func clearNode(ctx context.Context, cfg *config.Agent, out io.Writer) error {
	if conn, err := net.Dial("unix", filepath.Join(cfg.Data.Dir, login.SocketName)); err == nil {
		conn.Close()
		return fmt.Errorf("the agent of %s is running: stop it first (systemctl disable --now berth-agent)", cfg.Data.Dir)
	}
	var ac agent.Config
	done, err := openRuntime(ctx, cfg, nil, &ac, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer done()
	n := 0
	err = agent.Clear(ctx, ac.Host, func(t runtime.Task) {
		n++
		fmt.Fprintf(out, "attempt %s (%s): ended and removed\n", t.ID, t.Phase)
	})
	if err == nil { // the files of jobs that are still there stay
		err = launcher.LeaveRooms(cfg.Jobs.Scripts)
	}
	fmt.Fprintf(out, "%d attempts removed\n", n)
	return err
}

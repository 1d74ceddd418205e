package daemon

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/config"
	"github.com/berth-scheduler/berth/cmd/internal/tlsconf"
)

type initOptions struct {
	id           string
	dir          string
	coordinators []string
	etc          string
	gossipPort   string
}

// newClusterCommand returns the part of `berth cluster` that needs no cluster
// yet; the command line merges it with the rest.
func newClusterCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "cluster", Short: "Set up and inspect the cluster"}
	cmd.AddCommand(newInitCommand())
	return cmd
}

// newInitCommand returns `berth cluster init`, which makes a cluster's
// authority and one directory of files for each of its coordinators.
func newInitCommand() *cobra.Command {
	var o initOptions
	cmd := &cobra.Command{
		Use: "init", Short: "Create the certificates and configuration of a new cluster", Args: cobra.NoArgs,
		Long: `Create a new cluster: its certificate authority, its gossip key, and for each coordinator a directory
with its certificate and configuration, to be copied to /etc/berth on that machine. Guard the
authority's key (ca.key) like root's password: whoever has it controls the cluster.`,
		Example: "  berth cluster init --id hpc --dir ./berth-hpc --coordinator c1=head1:7070 --coordinator c2=head2:7070 --coordinator c3=head3:7070",
		RunE: func(cmd *cobra.Command, _ []string) error {
			peers, err := o.run()
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			fmt.Fprintf(out, "Cluster %s is prepared in %s. Copy to each coordinator, preserving modes and owners (cp -a):\n", o.id, o.dir)
			for _, p := range peers {
				host, _, _ := net.SplitHostPort(p.Addr)
				fmt.Fprintf(out, "  %s  →  %s:%s\n", filepath.Join(o.dir, p.ID), host, o.etc)
			}
			if len(peers)%2 == 0 {
				fmt.Fprintf(cmd.ErrOrStderr(), "warning: %d coordinators survive no more failures than %d; use an odd number\n", len(peers), len(peers)-1)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.id, "id", "", "name of the cluster, part of every certificate")
	f.StringVar(&o.dir, "dir", "", "new directory for the files")
	f.StringArrayVar(&o.coordinators, "coordinator", nil, "ID=HOST:PORT of a coordinator; give 1, 3 or 5")
	f.StringVar(&o.etc, "etc", "/etc/berth", "directory of these files on the coordinators")
	f.StringVar(&o.gossipPort, "gossip-port", "7072", "port for gossip")
	return cmd
}

func (o *initOptions) peers() ([]config.Peer, error) {
	if len(o.coordinators) == 0 || len(o.coordinators) > 7 {
		return nil, fmt.Errorf("--coordinator: %d given, 1 to 7 are allowed; 3 survive the failure of one", len(o.coordinators))
	}
	var out []config.Peer
	seen := map[string]bool{}
	for _, s := range o.coordinators {
		id, addr, ok := strings.Cut(s, "=")
		if !ok {
			return nil, fmt.Errorf("--coordinator %q: want ID=HOST:PORT", s)
		}
		if err := cluster.CheckName("--coordinator", id); err != nil {
			return nil, err
		}
		if host, _, err := net.SplitHostPort(addr); err != nil || host == "" {
			return nil, fmt.Errorf("--coordinator %q: %q is not HOST:PORT", s, addr)
		}
		if seen[id] || seen[addr] {
			return nil, fmt.Errorf("--coordinator %q: the id or the address is given twice", s)
		}
		seen[id], seen[addr] = true, true
		out = append(out, config.Peer{ID: id, Addr: addr})
	}
	return out, nil
}

func (o *initOptions) run() ([]config.Peer, error) {
	if err := cluster.CheckName("--id", o.id); err != nil {
		return nil, err
	}
	peers, err := o.peers()
	if err != nil {
		return nil, err
	}
	if o.dir == "" {
		return nil, errors.New("--dir is missing; name a new directory")
	}
	if entries, err := os.ReadDir(o.dir); err == nil && len(entries) > 0 {
		return nil, fmt.Errorf("--dir %s: not empty; name a new directory", o.dir)
	}
	if err := os.MkdirAll(o.dir, 0o700); err != nil {
		return nil, err
	}
	ca, err := tlsconf.NewCA(o.id, time.Now())
	if err != nil {
		return nil, err
	}
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		return nil, err
	}
	for _, p := range peers {
		if err := o.writeOne(ca, key, p, peers); err != nil {
			return nil, fmt.Errorf("coordinator %s: %w", p.ID, err)
		}
	}
	return peers, nil
}

func (o *initOptions) writeOne(ca *tlsconf.CA, gossipKey []byte, p config.Peer, peers []config.Peer) error {
	dir := filepath.Join(o.dir, p.ID)
	tlsDir := filepath.Join(dir, "tls")
	if err := ca.Save(tlsDir); err != nil {
		return err
	}
	key, csr, err := tlsconf.NewKeyAndCSR()
	if err != nil {
		return err
	}
	cert, err := ca.Sign(csr, tlsconf.RoleCoordinator, p.ID, 0)
	if err != nil {
		return err
	}
	files := tlsconf.Files{CA: filepath.Join(tlsDir, "ca.crt"), Cert: filepath.Join(tlsDir, "coordinator.crt"), Key: filepath.Join(tlsDir, "coordinator.key")}
	if err := tlsconf.WriteFiles(files, tlsconf.Material{CA: ca.CertPEM(), Cert: cert, Key: key}); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "gossip.key"), []byte(hex.EncodeToString(gossipKey)+"\n"), 0o600); err != nil {
		return err
	}
	c := config.DefaultCoordinator()
	c.ID, c.Cluster, c.Peers = p.ID, config.Cluster{ID: o.id}, peers
	_, port, _ := net.SplitHostPort(p.Addr)
	c.Listen.Addr = net.JoinHostPort("0.0.0.0", port)
	c.TLS = config.CoordinatorTLS{
		CA: filepath.Join(o.etc, "tls/ca.crt"), Cert: filepath.Join(o.etc, "tls/coordinator.crt"),
		Key: filepath.Join(o.etc, "tls/coordinator.key"), CAKey: filepath.Join(o.etc, "tls/ca.key"),
	}
	c.Gossip.Addr, c.Gossip.KeyFile = net.JoinHostPort("0.0.0.0", o.gossipPort), filepath.Join(o.etc, "gossip.key")
	for _, q := range peers {
		host, _, _ := net.SplitHostPort(q.Addr)
		c.Gossip.Join = append(c.Gossip.Join, net.JoinHostPort(host, o.gossipPort))
	}
	data, err := yaml.Marshal(c)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "coordinator.yaml"), data, 0o644)
}

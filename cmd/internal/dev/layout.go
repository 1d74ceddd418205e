package dev

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/berth-scheduler/berth/cmd/internal/config"
	"github.com/berth-scheduler/berth/cmd/internal/tlsconf"
)

// What a simulated node pretends to have for each of its GPUs, so that cores
// and host memory do not limit a demonstration.
const (
	simCPUsPerGPU = 16
	simMiBPerGPU  = 64 << 10
	simCPUs       = 16
	simMiB        = 64 << 10
)

const clusterID = "dev"

// portsEach is how many ports a coordinator has.
const portsEach = 4

// layout is the files of a development cluster: one directory a daemon, with
// its configuration in the same form as a site's, so that any of them can be
// started by hand again.
type layout struct {
	dir          string
	ca           *tlsconf.CA
	coordinators []daemonFiles
	agents       []daemonFiles
	ports        []net.Listener // mark the ports as this cluster's while it runs
}

type daemonFiles struct {
	name   string
	dir    string
	config string
	gossip string
	node   NodeSpec // of an agent
	// Of a coordinator.
	socket, addr, web, metrics string
}

func (d daemonFiles) path(parts ...string) string {
	return filepath.Join(append([]string{d.dir}, parts...)...)
}

// prepare writes everything a cluster needs before its daemons start.
func prepare(o *Options) (*layout, error) {
	ca, err := tlsconf.NewCA(clusterID, time.Now())
	if err != nil {
		return nil, err
	}
	l := &layout{dir: o.Dir, ca: ca}
	addrs, err := l.takePorts(portsEach*o.Coordinators + len(o.Nodes))
	if err != nil {
		return nil, err
	}
	for i := range o.Coordinators {
		name := fmt.Sprintf("c%d", i+1)
		d := daemonFiles{name: name, dir: filepath.Join(o.Dir, name), addr: addrs[portsEach*i], gossip: addrs[portsEach*i+1], web: addrs[portsEach*i+2], metrics: addrs[portsEach*i+3]}
		d.config, d.socket = d.path("coordinator.yaml"), filepath.Join(o.Dir, name+".sock")
		l.coordinators = append(l.coordinators, d)
	}
	for i, n := range o.Nodes {
		name := fmt.Sprintf("n%d", i+1)
		d := daemonFiles{name: name, dir: filepath.Join(o.Dir, name), gossip: addrs[portsEach*o.Coordinators+i], node: n}
		d.config = d.path("agent.yaml")
		l.agents = append(l.agents, d)
	}
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		return nil, err
	}
	for _, d := range l.coordinators {
		if err := errors.Join(l.credentials(d, tlsconf.RoleCoordinator, key), l.writeCoordinator(d, o)); err != nil {
			return nil, err
		}
	}
	for _, d := range l.agents {
		if err := errors.Join(l.credentials(d, tlsconf.RoleAgent, key), l.writeAgent(d, o)); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// takePorts returns loopback addresses that are free now, with ports below the
// kernel's ephemeral ones, so that a daemon that is down for a moment finds its
// own still free, and below those where gangs meet. Daemons listen on them later;
// until then, an abstract Unix socket for each port, which ends with this process,
// keeps other development clusters from taking it.
func (l *layout) takePorts(n int) (addrs []string, err error) {
	for tries := 0; len(addrs) < n; tries++ {
		port := 12000 + mathrand.IntN(8000) // #nosec G404 -- a guess that is tried
		var addr string
		if addr, err = l.takePort(port); err == nil {
			addrs = append(addrs, addr)
		} else if tries > 100*n {
			l.freePorts()
			return nil, fmt.Errorf("find %d free ports between 12000 and 20000: %w", n, err)
		}
	}
	return addrs, nil
}

func (l *layout) takePort(port int) (string, error) {
	mark, err := net.Listen("unix", fmt.Sprintf("@berth-dev-port-%d", port))
	if err != nil {
		return "", err
	}
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return "", errors.Join(err, mark.Close())
	}
	if err := ln.Close(); err != nil {
		return "", errors.Join(err, mark.Close())
	}
	l.ports = append(l.ports, mark)
	return addr, nil
}

// freePorts releases the ports to other development clusters.
func (l *layout) freePorts() {
	for _, mark := range l.ports {
		_ = mark.Close() // it holds no data
	}
	l.ports = nil
}

// credentials gives a daemon its certificate and the cluster's keys.
func (l *layout) credentials(d daemonFiles, role tlsconf.Role, gossipKey []byte) error {
	if err := os.MkdirAll(d.path("tls"), 0o700); err != nil {
		return err
	}
	m, err := l.certify(role, d.name)
	if err != nil {
		return err
	}
	files := tlsconf.Files{CA: d.path("tls", "ca.crt"), Cert: d.path("tls", "daemon.crt"), Key: d.path("tls", "daemon.key")}
	if role == tlsconf.RoleCoordinator {
		// Coordinators issue certificates, so they hold the CA's key.
		if err := l.ca.Save(d.path("tls")); err != nil {
			return err
		}
	}
	if err := tlsconf.WriteFiles(files, m); err != nil {
		return err
	}
	return os.WriteFile(d.path("gossip.key"), []byte(hex.EncodeToString(gossipKey)+"\n"), 0o600)
}

// certify returns a certificate of the cluster.
func (l *layout) certify(role tlsconf.Role, name string) (m tlsconf.Material, err error) {
	key, csr, err := tlsconf.NewKeyAndCSR()
	if err != nil {
		return m, err
	}
	cert, err := l.ca.Sign(csr, role, name, 0)
	return tlsconf.Material{CA: l.ca.CertPEM(), Cert: cert, Key: key}, err
}

func (l *layout) writeCoordinator(d daemonFiles, o *Options) error {
	c := config.DefaultCoordinator()
	c.ID = d.name
	c.Cluster = config.Cluster{ID: clusterID, Name: "development"}
	c.Listen = config.CoordinatorListen{Addr: d.addr, Advertise: d.addr, Socket: d.socket, Web: d.web, Metrics: d.metrics}
	c.Data.Dir = d.path("data")
	for _, p := range l.coordinators {
		c.Peers = append(c.Peers, config.Peer{ID: p.name, Addr: p.addr})
		c.Gossip.Join = append(c.Gossip.Join, p.gossip)
	}
	c.Raft = config.Raft{Heartbeat: 500 * time.Millisecond, Election: 500 * time.Millisecond, Lease: 400 * time.Millisecond, SnapshotThreshold: c.Raft.SnapshotThreshold, SnapshotInterval: c.Raft.SnapshotInterval}
	c.TLS = config.CoordinatorTLS{
		CA: d.path("tls", "ca.crt"), Cert: d.path("tls", "daemon.crt"), Key: d.path("tls", "daemon.key"), CAKey: d.path("tls", "ca.key"),
	}
	c.Gossip.Addr, c.Gossip.KeyFile = d.gossip, d.path("gossip.key")
	// Whoever started the cluster may use it, root and system users too.
	c.Users = config.Users{AllowRoot: true, MinUID: 1, Admins: []string{fmt.Sprint(os.Getuid())}}
	c.Scheduling.Policy, c.Scheduling.Overcommit = o.Policy, cmp.Or(o.Overcommit, c.Scheduling.Overcommit)
	c.Lease.Agent = 10 * time.Second
	if o.Configure != nil {
		o.Configure(&c)
	}
	return writeConfig(d.config, c)
}

func (l *layout) writeAgent(d daemonFiles, o *Options) error {
	a := config.DefaultAgent()
	a.Node.Name = d.name
	a.Cluster = config.Cluster{ID: clusterID, Name: "development"}
	a.Listen = config.AgentListen{}
	for _, p := range l.coordinators {
		a.Coordinators = append(a.Coordinators, p.addr)
		a.Gossip.Join = append(a.Gossip.Join, p.gossip)
	}
	a.TLS = config.AgentTLS{CA: d.path("tls", "ca.crt"), Cert: d.path("tls", "daemon.crt"), Key: d.path("tls", "daemon.key")}
	a.Data.Dir = d.path("data")
	a.Gossip.Addr, a.Gossip.KeyFile = d.gossip, d.path("gossip.key")
	a.GPUs.Provider = d.node.Provider
	a.Node.Features, a.Node.Data = d.node.Features, d.node.Data
	if d.node.Provider == "sim" {
		a.GPUs.Sim = fmt.Sprintf("%dx%s", d.node.GPUs, d.node.Type)
		a.GPUs.SimSocket, a.GPUs.Recut = filepath.Join(l.dir, d.name+"-gpu", "sock"), true
	}
	if d.node.Provider != "nvml" {
		a.Node.CPUs, a.Node.MemoryMiB = simCPUs+simCPUsPerGPU*d.node.GPUs, simMiB+simMiBPerGPU*d.node.GPUs
	}
	a.Runtime.Kind = o.Runtime
	if d.node.Provider == "nvml" && o.Runtime == "process" {
		a.Unsafe = []string{config.UnsafeIsolation} // whoever tries it out owns the GPUs
	}
	if o.containerdSocket != "" {
		a.Runtime.Containerd.Socket = o.containerdSocket
	}
	a.Runtime.Containerd.Namespace = o.namespace(d.name)
	a.Cgroup.Parent = o.cgroupParent(d.name)
	a.Jobs.Scripts = filepath.Join(l.dir, d.name+"-scripts")
	a.Users = config.Users{AllowRoot: true, MinUID: 1}
	return writeConfig(d.config, a)
}

func writeConfig(path string, cfg any) error {
	data, err := yaml.Marshal(cfg)
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o600)
}

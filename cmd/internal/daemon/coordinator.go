// Package daemon wires Berth's daemons together: it turns their configuration
// into certificates, listeners, runtimes and providers, and runs them until
// they are told to stop.
package daemon

import (
	"context"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"golang.org/x/sync/errgroup"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/config"
	"github.com/berth-scheduler/berth/cmd/internal/safefile"
	"github.com/berth-scheduler/berth/cmd/internal/tlsconf"
	"github.com/berth-scheduler/berth/coordinator"
	"github.com/berth-scheduler/berth/coordinator/api/calls"
	"github.com/berth-scheduler/berth/coordinator/learner"
	"github.com/berth-scheduler/berth/coordinator/limit"
	"github.com/berth-scheduler/berth/coordinator/raftnode"
	"github.com/berth-scheduler/berth/coordinator/space"
)

// Exit codes of daemons beyond those of the command line: restarting does not
// fix their causes, and the units do not try.
const (
	exitBadState = 65 // the state on disk must not be served
	exitExposed  = 77 // others can read a key
	exitConfig   = 78 // the configuration is wrong
)

// RunCoordinator runs a coordinator until ctx ends.
func RunCoordinator(ctx context.Context, conf *Configured, version string, log *slog.Logger) error {
	cfg := conf.Config
	src, err := tlsconf.OpenSource(tlsconf.Files{CA: cfg.TLS.CA, Cert: cfg.TLS.Cert, Key: cfg.TLS.Key}, log)
	if err != nil {
		return err
	}
	if err := space.Await(ctx, spaceOf(&cfg.Disk), cfg.Data.Dir, log); err != nil {
		return nil // stopped in the meantime
	}
	ports, err := listenCoordinator(cfg, src, log)
	if err != nil {
		return err
	}
	defer ports.close()
	svc, err := newService(log)
	if err != nil {
		return err
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	cc, err := coordinatorConfig(cfg, src, ports)
	if err != nil {
		return err
	}
	cc.Version, cc.Log, cc.Registry, cc.Underway = version, log, svc.reg, svc.under
	cc.Fatal = func(err error) { fail(ending(err)) }
	cc.CutDenied = func(denied func(role, id, serial string) bool) {
		ports.mux.Cut(func(who tlsconf.Identity, serial string) bool { return denied(string(who.Role), who.ID, serial) })
	}
	c, err := coordinator.New(*cc)
	if err != nil {
		if _, corrupt := errors.AsType[*raftnode.CorruptError](err); corrupt || errors.Is(err, raftnode.ErrNewer) {
			return &console.ExitError{Code: exitBadState, Err: err}
		}
		return err
	}
	src.Deny(func(who tlsconf.Identity, serial string) bool { return c.Denied(string(who.Role), who.ID, serial) })
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return ports.mux.Run(gctx) })
	g.Go(func() error { return c.Run(gctx) })
	g.Go(func() error { return renewCoordinator(gctx, src, cfg) })
	reload := newReloader(conf, c, svc.reg, log)
	g.Go(func() error { return reload.run(gctx, svc.notify) })
	svc.pages = map[string]http.Handler{"GET /services": c.Endpoints(), "GET /services/{name}": c.Endpoints()}
	if err := svc.run(gctx, g, cfg.Listen.Metrics, c.Healthy); err != nil {
		fail(err)
	}
	err = g.Wait()
	cause := context.Cause(ctx)
	if _, told := errors.AsType[*console.Interruption](cause); told {
		return nil // the command line received the signal first
	}
	if cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// ending says how the process ends when its coordinator must not go on.
// systemd restarts it where that helps: with a full disk it waits for space.
func ending(err error) error {
	if raftnode.NoRoom(err) {
		return err
	}
	return &console.ExitError{Code: exitBadState, Err: err}
}

// ports are what a coordinator listens on.
type ports struct {
	mux    *tlsconf.Mux
	socket net.Listener
	web    net.Listener // nil for no web page
	stream *tlsconf.StreamLayer[raft.ServerAddress]
}

func (p *ports) close() {
	_ = p.mux.Close()
	for _, ln := range []net.Listener{p.socket, p.web} {
		if ln != nil {
			ln.Close()
		}
	}
}

func listenCoordinator(cfg *config.Coordinator, src *tlsconf.Source, log *slog.Logger) (*ports, error) {
	ln, err := net.Listen("tcp", cfg.Listen.Addr)
	if err != nil {
		return nil, fmt.Errorf("listen.addr: %w", err)
	}
	mux, err := tlsconf.NewMux(tlsconf.MuxConfig{
		Listener: ln, Log: log, Strangers: tlsconf.Strangers{Total: calls.MaxStrangers, PerHost: calls.MaxStrangersPerHost},
		Protocols: map[string]*tls.Config{
			tlsconf.ProtoRaft: tlsconf.ServerConfig(src, tlsconf.RoleCoordinator),
			tlsconf.ProtoGRPC: tlsconf.JoinServerConfig(src, tlsconf.RoleCoordinator, tlsconf.RoleAgent, tlsconf.RoleGate),
		},
	})
	if err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	p := &ports{mux: mux}
	p.stream = tlsconf.NewStreamLayer[raft.ServerAddress](mux.Listener(tlsconf.ProtoRaft), src, cfg.AdvertiseAddr())
	if p.socket, err = ListenSocket(cfg.Listen.Socket); err != nil {
		_ = p.mux.Close()
		return nil, fmt.Errorf("listen.socket: %w", err)
	}
	if cfg.Listen.Web != "" {
		if p.web, err = net.Listen("tcp", cfg.Listen.Web); err != nil {
			p.close()
			return nil, fmt.Errorf("listen.web: %w", err)
		}
	}
	return p, nil
}

// ListenSocket listens on a unix socket that every user may connect to: the
// kernel identifies the caller. A socket that nothing answers on is replaced.
func ListenSocket(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	if conn, err := net.DialTimeout("unix", path, time.Second); err == nil {
		conn.Close()
		return nil, fmt.Errorf("%s: another process answers there", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	ln, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o666); err != nil { // #nosec G302 -- who connects is told by the kernel
		return nil, errors.Join(err, ln.Close())
	}
	return ln, nil
}

func coordinatorConfig(cfg *config.Coordinator, src *tlsconf.Source, p *ports) (*coordinator.Config, error) {
	admins, err := resolveUIDs(cfg.Users.Admins)
	if err != nil {
		return nil, err
	}
	sched, err := schedulingOf(&cfg.Scheduling)
	if err != nil {
		return nil, err
	}
	page, err := webOf(cfg, src, p.web)
	if err != nil {
		return nil, err
	}
	cc := &coordinator.Config{
		ID: cfg.ID, ClusterID: cfg.Cluster.ID, ClusterName: cfg.Cluster.Name,
		Dir: cfg.Data.Dir, Space: spaceOf(&cfg.Disk), Advertise: cfg.AdvertiseAddr(), Timing: timing(cfg.Raft),
		Raft: p.stream, Listener: p.mux.Listener(tlsconf.ProtoGRPC), Joins: p.mux.Listener(tlsconf.ProtoJoin), Credentials: tlsconf.HandshakenCredentials(),
		Web: page, Socket: p.socket, Peer: peerRole, Dial: tlsconf.Dialer(src, tlsconf.RoleCoordinator), Users: newNames().name, InGroup: inGroup,
		AllowRoot: cfg.Users.AllowRoot, MinUID: cluster.UID(cfg.Users.MinUID), Admins: admins,
		Lease: cfg.Lease.Agent, HeadroomMiB: int64(cfg.Scheduling.MemoryHeadroomMiB), MaxShares: cfg.Scheduling.MaxShares,
		Policy: sched.Policy, Planner: sched.Planner, Elastic: sched.Elastic, Partitions: sched.Partitions, Interval: sched.Interval, PreemptEvery: sched.PreemptEvery,
		MaxQueued: cfg.Limits.QueuedTotal, MaxPerUser: cfg.Limits.JobsPerUser, MaxBytes: int64(cfg.Limits.SpecMiBTotal) << 20, MaxBytesPerUser: int64(cfg.Limits.SpecMiBPerUser) << 20, MaxArrayTasks: cfg.Limits.ArrayTasks, MaxStreams: cfg.Limits.StreamsTotal, MaxStreamsPerUser: cfg.Limits.StreamsPerUser,
		Limits: limit.Config{Rate: cfg.Limits.RequestsPerSecond, Bandwidth: cfg.Limits.RequestKiBPerSecond << 10, WorkMilli: cfg.Limits.ReadMsPerSecond, Calls: cfg.Limits.RequestsPerUser, Expensive: cfg.Limits.ReadsPerUser, ExpensiveTotal: cfg.Limits.ReadsTotal}, MaxConnsPerUser: cfg.Limits.ConnectionsPerUser, Gossip: cfg.Gossip.Addr, GossipPeers: cfg.Gossip.Join,
		GangTimeout: cfg.Scheduling.GangTimeout, GangPorts: gangPorts(&cfg.Scheduling),
		HistoryKeep: cfg.History.Keep, HistoryMaxJobs: cfg.History.MaxJobs, KeepFinished: cfg.History.InState,
		SnapshotThreshold: uint64(cfg.Raft.SnapshotThreshold), SnapshotInterval: cfg.Raft.SnapshotInterval,
		Learning: learner.Config{MinSamples: cfg.Learner.MinSamples, Every: cfg.Learner.Interval},
	}
	if cc.Notices, err = noticesOf(&cfg.Notify); err != nil {
		return nil, err
	}
	cc.Energy = energySignalOf(&cfg.Energy)
	if cc.Power, err = powerSavingOf(&cfg.Power); err != nil {
		return nil, err
	}
	for _, peer := range cfg.Peers {
		cc.Peers = append(cc.Peers, raftnode.Server{ID: peer.ID, Addr: peer.Addr})
	}
	if cfg.TLS.CAKey != "" {
		ca, err := tlsconf.LoadCA(cfg.TLS.CA, cfg.TLS.CAKey)
		if err != nil {
			return nil, err
		}
		cc.Certs = certifier{ca: ca, trusted: src.CAPEM}
	}
	if cfg.Gossip.Addr != "" {
		if cc.GossipKey, err = readKey(cfg.Gossip.KeyFile); err != nil {
			return nil, err
		}
	}
	return cc, nil
}

func spaceOf(d *config.Disk) space.Config {
	return space.Config{
		Low:  space.Threshold{Percent: d.LowPercent, Bytes: uint64(d.LowMiB) << 20},
		Full: space.Threshold{Percent: d.FullPercent, Bytes: uint64(d.FullMiB) << 20},
	}
}

func timing(r config.Raft) raftnode.Timing {
	return raftnode.Timing{HeartbeatTimeout: r.Heartbeat, ElectionTimeout: r.Election, LeaderLeaseTimeout: r.Lease, CommitTimeout: raftnode.DefaultTiming().CommitTimeout}
}

func readKey(path string) ([]byte, error) {
	text, err := safefile.ReadSecret(path, 1024)
	if err != nil {
		return nil, fmt.Errorf("gossip.key_file: %w", err)
	}
	key, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(key) != 32 {
		return nil, fmt.Errorf("gossip.key_file %s: must hold 64 hexadecimal digits", path)
	}
	return key, nil
}

// peerRole returns a coordinator's caller over mutual TLS.
func peerRole(ctx context.Context) (role, id string, err error) {
	who, _, err := tlsconf.FromContext(ctx)
	if errors.Is(err, tlsconf.ErrNoCertificate) {
		return "", "", coordinator.ErrNoCertificate
	}
	return string(who.Role), who.ID, err
}

// certifier issues certificates with the cluster's CA. Each comes with
// everything trusted here, so that while the CA is being replaced nodes come
// to trust both.
type certifier struct {
	ca      *tlsconf.CA
	trusted func() []byte // PEM
}

// Issue implements nodes.Certifier.
func (c certifier) Issue(csr []byte, role, id string) (cert, ca []byte, err error) {
	cert, err = c.ca.Sign(csr, tlsconf.Role(role), id, 0)
	return cert, c.trusted(), err
}

// Token implements nodes.Certifier.
func (c certifier) Token() (string, []byte, error) {
	t, hash, err := tlsconf.NewToken(c.ca)
	return t.String(), hash[:], err
}

// TokenHash implements nodes.Certifier.
func (c certifier) TokenHash(secret string) ([]byte, error) {
	h, err := tlsconf.HashSecret(secret)
	return h[:], err
}

// renewCoordinator renews a coordinator's own certificate if it has the CA's key.
func renewCoordinator(ctx context.Context, src *tlsconf.Source, cfg *config.Coordinator) error {
	if cfg.TLS.CAKey == "" {
		return nil
	}
	ca, err := tlsconf.LoadCA(cfg.TLS.CA, cfg.TLS.CAKey)
	if err != nil {
		return err
	}
	return src.Run(ctx, func(_ context.Context, csr []byte) ([]byte, []byte, error) {
		cert, err := ca.Sign(csr, tlsconf.RoleCoordinator, cfg.ID, 0)
		return cert, nil, err // the trusted authorities stay unchanged
	})
}

func resolveUIDs(users []string) ([]cluster.UID, error) {
	var out []cluster.UID
	for _, u := range users {
		if n, err := strconv.ParseUint(u, 10, 31); err == nil {
			out = append(out, cluster.UID(n))
			continue
		}
		acc, err := user.Lookup(u)
		if err != nil {
			return nil, fmt.Errorf("users.admins: %w; use a name or a uid of this host", err)
		}
		n, err := strconv.ParseUint(acc.Uid, 10, 31)
		if err != nil {
			return nil, fmt.Errorf("users.admins: uid of %s: %w", u, err)
		}
		out = append(out, cluster.UID(n))
	}
	return out, nil
}

// names caches the names of accounts, since the name service may be slow.
type names struct {
	mu    sync.Mutex
	known map[cluster.UID]nameEntry
}

type nameEntry struct {
	name string
	at   time.Time
}

const nameLife = 5 * time.Minute

func newNames() *names { return &names{known: map[cluster.UID]nameEntry{}} }

// name returns this host's name for uid, or the number if it has none.
func (n *names) name(uid cluster.UID) string {
	n.mu.Lock()
	e, ok := n.known[uid]
	n.mu.Unlock()
	if ok && time.Since(e.at) < nameLife {
		return e.name
	}
	e = nameEntry{name: strconv.FormatUint(uint64(uid), 10), at: time.Now()}
	if u, err := user.LookupId(e.name); err == nil {
		e.name = u.Username
	}
	n.mu.Lock()
	n.known[uid] = e
	n.mu.Unlock()
	return e.name
}

// inGroup reports whether this host considers a user, with a primary group, a
// member of group.
func inGroup(name string, gid uint32, group string) bool {
	g, err := user.LookupGroup(group)
	if err != nil {
		return false
	}
	if g.Gid == strconv.FormatUint(uint64(gid), 10) {
		return true
	}
	u, err := user.Lookup(name)
	if err != nil {
		return false
	}
	ids, err := u.GroupIds()
	return err == nil && slices.Contains(ids, g.Gid)
}

// gangPorts parses ports that validation has accepted.
func gangPorts(s *config.Scheduling) [2]uint16 {
	first, last, err := s.Ports()
	if err != nil {
		return [2]uint16{}
	}
	return [2]uint16{first, last}
}

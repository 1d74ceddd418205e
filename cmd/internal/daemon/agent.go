package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/berth-scheduler/berth/agent"
	"github.com/berth-scheduler/berth/agent/asuser"
	"github.com/berth-scheduler/berth/agent/containerdrt"
	"github.com/berth-scheduler/berth/agent/datasets"
	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/agent/gpu/cdi"
	"github.com/berth-scheduler/berth/agent/gpu/sim"
	"github.com/berth-scheduler/berth/agent/launcher"
	"github.com/berth-scheduler/berth/agent/members"
	"github.com/berth-scheduler/berth/agent/processrt"
	"github.com/berth-scheduler/berth/agent/relay"
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/config"
	"github.com/berth-scheduler/berth/cmd/internal/programs"
	"github.com/berth-scheduler/berth/cmd/internal/tlsconf"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/berth/node/v1/noderpc"
)

// RunAgent runs this node's agent until ctx ends. Jobs keep running.
func RunAgent(ctx context.Context, cfg *config.Agent, version string, log *slog.Logger) error {
	src, err := tlsconf.OpenSource(tlsconf.Files{CA: cfg.TLS.CA, Cert: cfg.TLS.Cert, Key: cfg.TLS.Key}, log)
	if err != nil {
		return err
	}
	visitors := relay.New(log, cfg.Jobs.Detached)
	defer visitors.Close()
	svc, err := newService(log)
	if err != nil {
		return err
	}
	ac := agent.Config{
		Underway: svc.under,
		Visitors: visitors, Tools: tools(cfg.Jobs.Scripts, cfg.Containers.Cluster, log),
		Node: cluster.NodeID(cfg.Node.Name), Address: cfg.Node.Address, Features: cfg.Node.Features, Data: datasets.New(cfg.Node.Data), Version: version, Dir: cfg.Data.Dir, Scripts: cfg.Jobs.Scripts, Rooms: rooms(cfg.Jobs.Scripts, log),
		Coordinators: cfg.Coordinators, Dial: tlsconf.Dialer(src, tlsconf.RoleCoordinator),
		Users: newAccounts(cfg.Users), Networks: networks(cfg.Containers), Env: cfg.Jobs.Env, Grace: cfg.Jobs.Grace, IdleLimit: cfg.Jobs.IdleLimit, MemCaps: memCaps(cfg.GPUs, cfg.Sharing, cfg.Cgroup.Parent, log), Tail: asuser.Tail, Log: log,
	}
	if err := describe(cfg, &ac); err != nil {
		return err
	}
	closeGPUs, err := openGPUs(ctx, cfg, &ac, log)
	if err != nil {
		return err
	}
	defer closeGPUs()
	if err := openHooks(cfg, &ac, log); err != nil {
		return err
	}
	closeRuntimes, err := openRuntimes(ctx, cfg, &ac, log)
	if err != nil {
		return err
	}
	defer closeRuntimes()
	g, gctx := errgroup.WithContext(ctx)
	if cfg.Gossip.Addr != "" {
		if err := joinGossip(gctx, g, cfg, &ac, log); err != nil {
			return err
		}
	}
	a, err := agent.New(ctx, ac)
	if err != nil {
		return err
	}
	if err := svc.reg.Register(newHealthMetrics(a)); err != nil {
		return err
	}
	g.Go(func() error { return ac.Data.Run(gctx) })
	g.Go(func() error { return a.Run(gctx) })
	g.Go(func() error { return serveGate(gctx, a.Coordinators, ac.Dial, ac.Tools.Socket, a.HasJob, svc.reg, log) })
	g.Go(func() error { return serveLogins(gctx, cfg.Data.Dir, a, log) })
	g.Go(func() error { return src.Run(gctx, renewAgent(ac.Dial, a.Coordinators)) })
	if err := svc.run(gctx, g, cfg.Listen.Metrics, func() error { return nil }); err != nil {
		return err
	}
	if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// rooms reports whether the files of attempts can have file systems of their
// own below a directory.
func rooms(scripts string, log *slog.Logger) bool {
	if scripts == "" {
		return false
	}
	err := launcher.CanRoom(scripts)
	if err != nil {
		log.Warn("a job can fill the file system of jobs.scripts, because this agent may not mount others there", "component", "agent", "err", err)
	}
	return err == nil
}

// describe fills in the node's identity and resources.
func describe(cfg *config.Agent, ac *agent.Config) (err error) {
	if err := os.MkdirAll(cfg.Data.Dir, 0o700); err != nil {
		return fmt.Errorf("data.dir: %w", err)
	}
	if ac.BootID, err = bootID(); err != nil {
		return err
	}
	ac.CPUMilli, ac.MemMiB, err = forJobs(cfg.Node)
	return err
}

func joinGossip(ctx context.Context, g *errgroup.Group, cfg *config.Agent, ac *agent.Config, log *slog.Logger) error {
	key, err := readKey(cfg.Gossip.KeyFile)
	if err != nil {
		return err
	}
	m, err := members.Open(members.Config{
		Node: ac.Node, BootID: ac.BootID, Protocol: agent.Protocol, Addr: cfg.Gossip.Addr, Key: key, Join: cfg.Gossip.Join, Log: log,
	})
	if err != nil {
		return err
	}
	ac.Gossip = m
	g.Go(func() error { return m.Run(ctx) })
	return nil
}

// renewAgent asks any coordinator for a new certificate.
func renewAgent(dial func(string) (*grpc.ClientConn, error), coordinators func() []string) tlsconf.RenewFunc {
	return func(ctx context.Context, csr []byte) (cert, ca []byte, err error) {
		var errs []error
		for _, addr := range coordinators() {
			conn, err := dial(addr)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			resp, err := noderpc.NewNodeServiceClient(conn).Renew(ctx, &nodev1.RenewRequest{Csr: csr})
			conn.Close()
			if err == nil {
				return resp.Certificate, resp.Ca, nil
			}
			errs = append(errs, fmt.Errorf("%s: %w", addr, err))
		}
		return nil, nil, errors.Join(errs...)
	}
}

func openGPUs(ctx context.Context, cfg *config.Agent, ac *agent.Config, log *slog.Logger) (func(), error) {
	var p gpu.Provider
	var err error
	switch cfg.GPUs.Provider {
	case "none":
		return func() {}, nil
	case "sim":
		var specs []sim.Spec
		if specs, err = sim.ParseSpecs(cfg.GPUs.Sim); err == nil {
			p, err = sim.New(sim.Config{
				Node: cfg.Node.Name, Specs: specs, Socket: cfg.GPUs.SimSocket, Unenforced: cfg.GPUs.SimCaps == "watch", Log: log,
			})
		}
	default:
		p, err = openNVML(ctx, cfg, log)
	}
	if err != nil {
		return nil, fmt.Errorf("gpus.provider %s: %w", cfg.GPUs.Provider, err)
	}
	ac.GPUs, ac.Only, ac.Recut = p, cfg.GPUs.Only, cfg.GPUs.Recut
	if ac.Health, err = gpuHealth(cfg.GPUs); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return func() { _ = p.Close() }, nil
}

// openRuntimes opens what runs jobs. Under "auto" it is containerd if its
// socket exists, and processes otherwise.
func openRuntimes(ctx context.Context, cfg *config.Agent, ac *agent.Config, log *slog.Logger) (func(), error) {
	devices, err := newDevices(cfg)
	if err != nil {
		return nil, err
	}
	done, err := openRuntime(ctx, cfg, devices, ac, log)
	if err == nil {
		openDevices(ctx, cfg, devices, ac, log)
	}
	return done, err
}

func openRuntime(ctx context.Context, cfg *config.Agent, devices *cdi.Injector, ac *agent.Config, log *slog.Logger) (func(), error) {
	kind := cfg.Runtime.Kind
	if kind == "auto" {
		kind = "process"
		if _, err := os.Stat(cfg.Runtime.Containerd.Socket); err == nil {
			kind = "containerd"
		}
	}
	inside, err := programs.Path(programs.Job)
	if err != nil {
		return nil, err
	}
	if kind == "containerd" {
		rt, err := containerdrt.Open(ctx, containerdrt.Config{
			Address: cfg.Runtime.Containerd.Socket, Namespace: cfg.Runtime.Containerd.Namespace,
			Dir: filepath.Join(cfg.Data.Dir, "containerd"), CgroupParent: cfg.Cgroup.Parent, Inside: inside, Program: ac.Tools.Exe, Policy: cfg.Containers.Policy(), Devices: devices, Log: log,
		})
		if err != nil {
			return nil, err
		}
		ac.Host, ac.Images = rt, rt
		return func() { _ = rt.Close() }, nil
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	rt, err := processrt.Open(ctx, processrt.Config{
		Dir: filepath.Join(cfg.Data.Dir, "process"), Exe: []string{exe, "process-keeper", "--inside", inside},
		CgroupParent: cfg.Cgroup.Parent, AllowUncapped: cfg.Runtime.AllowUncapped, Log: log,
	})
	if err != nil {
		return nil, err
	}
	ac.Host = rt
	return func() { _ = rt.Close() }, nil
}

// bootID returns an id that changes when the machine boots.
func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("boot id: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// forJobs returns the node's resources for jobs, as configured or as detected.
func forJobs(n config.Node) (cpuMilli, memMiB int64, err error) {
	if cpuMilli, memMiB, err = machine(); err != nil {
		return 0, 0, err
	}
	if n.CPUs > 0 {
		cpuMilli = int64(n.CPUs) * 1000
	}
	if n.MemoryMiB > 0 {
		memMiB = int64(n.MemoryMiB)
	}
	return cpuMilli, memMiB, nil
}

// machine returns the cores in thousandths and the memory in MiB that jobs
// may use: the whole machine except a small part for its daemons.
func machine() (cpuMilli, memMiB int64, err error) {
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, 0, fmt.Errorf("memory of this machine: %w", err)
	}
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) >= 2 && f[0] == "MemTotal:" {
			kb, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				return 0, 0, fmt.Errorf("memory of this machine: %w", err)
			}
			mib := kb >> 10
			return int64(runtime.NumCPU()) * 1000, mib - min(mib/16, 2048), nil
		}
	}
	return 0, 0, errors.New("memory of this machine: /proc/meminfo has no MemTotal")
}

// accounts resolves users through this host's name service.
type accounts struct {
	allowRoot bool

	mu    sync.Mutex
	known map[uint64]account
}

type account struct {
	user launcher.User
	at   time.Time
}

func newAccounts(u config.Users) *accounts {
	return &accounts{allowRoot: u.AllowRoot, known: map[uint64]account{}}
}

// Resolve implements agent.Users.
func (a *accounts) Resolve(uid, gid uint32, name string) (launcher.User, error) {
	if uid == 0 && !a.allowRoot {
		return launcher.User{}, errors.New("jobs of root are refused on this node (users.allow_root)")
	}
	key := uint64(uid)<<32 | uint64(gid)
	a.mu.Lock()
	e, ok := a.known[key]
	a.mu.Unlock()
	if !ok || time.Since(e.at) > nameLife {
		u, err := lookup(uid, gid)
		if err != nil {
			return launcher.User{}, err
		}
		e = account{user: u, at: time.Now()}
		a.mu.Lock()
		a.known[key] = e
		a.mu.Unlock()
	}
	if e.user.Name != name {
		return launcher.User{}, fmt.Errorf("uid %d is %q on this node but %q where the job was submitted; the accounts must match", uid, e.user.Name, name)
	}
	return e.user, nil
}

// lookup finds an account; one without an entry runs with its numeric ids
// alone, as containers' users often do.
func lookup(uid, gid uint32) (launcher.User, error) {
	id := strconv.FormatUint(uint64(uid), 10)
	u, err := user.LookupId(id)
	if errors.As(err, new(user.UnknownUserIdError)) {
		return launcher.User{Name: id, Home: "/", Shell: "/bin/sh", Groups: []uint32{gid}}, nil
	}
	if err != nil {
		return launcher.User{}, fmt.Errorf("look up uid %s: %w", id, err)
	}
	out := launcher.User{Name: u.Username, Home: u.HomeDir, Shell: "/bin/sh"}
	ids, err := u.GroupIds()
	if err != nil {
		return launcher.User{}, fmt.Errorf("groups of %s: %w", u.Username, err)
	}
	for _, s := range ids {
		n, err := strconv.ParseUint(s, 10, 32)
		if err != nil {
			return launcher.User{}, fmt.Errorf("groups of %s: %w", u.Username, err)
		}
		out.Groups = append(out.Groups, uint32(n))
	}
	return out, nil
}

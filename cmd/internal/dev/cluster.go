// Package dev runs a whole cluster on one machine: coordinators and agents as
// child processes with the same configuration, certificates and identities
// that a site has. It serves development, demonstrations and tests.
package dev

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/berth-scheduler/berth/agent/containerdrt/daemon"
	"github.com/berth-scheduler/berth/agent/processrt"
	"github.com/berth-scheduler/berth/cluster/wait"
	"github.com/berth-scheduler/berth/cmd/internal/config"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
)

// Options describes a development cluster.
type Options struct {
	Coordinators int
	Nodes        []NodeSpec
	// Dir holds everything; "" makes a temporary directory, removed at the end.
	Dir string
	// Runtime is "process" or "containerd"; the latter starts a containerd of
	// the cluster's own.
	Runtime string
	// Policy is the scheduling policy.
	Policy string
	// Overcommit is scheduling.overcommit, 0 its default.
	Overcommit float64
	// Busybox imports a small image on every node, with Runtime containerd.
	Busybox bool
	// Exe is the program berthd.
	Exe string
	// Log gets a line when a daemon ends.
	Log io.Writer
	// Configure changes the configuration of each coordinator; optional.
	Configure func(*config.Coordinator)

	temporary        bool
	containerdSocket string
}

// Check reports what is wrong with o.
func (o *Options) Check() error {
	switch {
	case o.Coordinators < 1 || o.Coordinators > 7:
		return fmt.Errorf("--coordinators %d: must be 1 to 7; 3 survive the loss of one", o.Coordinators)
	case o.Runtime != "process" && o.Runtime != "containerd":
		return fmt.Errorf("--runtime %q: must be process or containerd", o.Runtime)
	}
	return nil
}

// cgroupParent is the group below which a node's jobs get theirs; a hash of
// the directory keeps the clusters of one machine apart.
func (o *Options) cgroupParent(node string) string {
	return fmt.Sprintf("/berth-dev/%s/%s", o.tag(), node)
}

// namespace is containerd's for a node: the nodes of a cluster share one
// containerd, and runc keeps its state by namespace, machine-wide.
func (o *Options) namespace(node string) string { return "berth-" + o.tag() + "-" + node }

func (o *Options) tag() string {
	h := fnv.New32a()
	h.Write([]byte(o.Dir))
	return fmt.Sprintf("%08x", h.Sum32())
}

// Cluster is a running development cluster.
type Cluster struct {
	opts       Options
	files      *layout
	spawn      *spawner
	coords     []*process
	agents     []*process
	containerd *daemon.Daemon
	streams    atomic.Int64 // spreads Stream over the coordinators
	inUse      *os.File     // see occupy
}

const (
	readyTimeout = 60 * time.Second
	jobsGrace    = 5 * time.Second
	daemonGrace  = 10 * time.Second
	maxDir       = 60 // leaves room for the names of sockets: paths of at most 108 bytes
)

// Start brings a cluster up and returns when it can take jobs. On an error
// nothing is left behind.
func Start(ctx context.Context, o Options) (c *Cluster, err error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	if err := o.makeDir(); err != nil {
		return nil, err
	}
	inUse, err := occupy(o.Dir)
	if err != nil {
		return nil, err
	}
	o.clearDead()
	c = &Cluster{opts: o, spawn: newSpawner(), inUse: inUse}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Stop())
			c = nil
		}
	}()
	if o.Runtime == "containerd" {
		if c.containerd, err = daemon.Start(ctx, daemon.Config{Dir: filepath.Join(o.Dir, "containerd")}); err != nil {
			return c, err
		}
		c.opts.containerdSocket = c.containerd.Socket()
	}
	if c.files, err = prepare(&c.opts); err != nil {
		return c, err
	}
	if err := c.importBusybox(ctx); err != nil {
		return c, err
	}
	for _, d := range c.files.coordinators {
		p := &process{name: "coordinator " + d.name, log: d.path("log"), args: []string{o.Exe, "coordinator", "--config", d.config}}
		if err := p.start(c.spawn); err != nil {
			return c, err
		}
		c.coords = append(c.coords, p)
	}
	for _, d := range c.files.agents {
		p := &process{name: "agent " + d.name, log: d.path("log"), args: []string{o.Exe, "agent", "--config", d.config}}
		if err := p.start(c.spawn); err != nil {
			return c, err
		}
		c.agents = append(c.agents, p)
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	return c, c.awaitReady(ctx)
}

// importBusybox gives every node the image that Options.Busybox asks for.
func (c *Cluster) importBusybox(ctx context.Context) error {
	if !c.opts.Busybox || c.containerd == nil {
		return nil
	}
	for _, d := range c.files.agents {
		if _, err := c.containerd.ImportBusybox(ctx, c.opts.namespace(d.name)); err != nil {
			return err
		}
	}
	return nil
}

// makeDir makes the directory. Others may pass through it to the sockets; what
// is secret in it is 0700.
func (o *Options) makeDir() error {
	if o.Dir == "" {
		dir, err := os.MkdirTemp("", temporary)
		if err != nil {
			return err
		}
		o.Dir, o.temporary = dir, true
	}
	abs, err := filepath.Abs(o.Dir)
	if err != nil {
		return err
	}
	o.Dir = abs
	if len(abs) > maxDir {
		return fmt.Errorf("--dir %s: the path has %d bytes, but sockets in it allow at most %d; use a shorter one", abs, len(abs), maxDir)
	}
	if err := os.MkdirAll(abs, 0o755); err != nil {
		return err
	}
	if entries, err := os.ReadDir(abs); err != nil || len(entries) > 0 {
		return errors.Join(err, fmt.Errorf("--dir %s: is not empty; give a new or empty directory", abs))
	}
	return os.Chmod(abs, 0o755)
}

// Sockets is the value of BERTH_SOCKET that points the command line here.
func (c *Cluster) Sockets() string {
	var s []string
	for _, d := range c.files.coordinators {
		s = append(s, d.socket)
	}
	return strings.Join(s, ",")
}

// Dir is the directory that holds the cluster.
func (c *Cluster) Dir() string { return c.opts.Dir }

// Env is the environment of a command that uses the cluster.
func (c *Cluster) Env(base []string) []string {
	return append(append([]string(nil), base...), "BERTH_SOCKET="+c.Sockets(), "BERTH_DEV_DIR="+c.opts.Dir)
}

// awaitReady waits until there is a leader and every node is registered.
func (c *Cluster) awaitReady(ctx context.Context) error {
	var last error
	for {
		if err := c.firstDead(); err != nil {
			return err
		}
		for _, d := range c.files.coordinators {
			if last = c.ready(ctx, d.socket); last == nil {
				return nil
			}
		}
		if !wait.Sleep(ctx, 20*time.Millisecond) {
			return fmt.Errorf("the cluster did not start within %s: %w; logs are in %s", readyTimeout, last, c.opts.Dir)
		}
	}
}

func (c *Cluster) ready(ctx context.Context, socket string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	conn, err := dial(socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	nodes, err := apirpc.NewClusterServiceClient(conn).ListNodes(ctx, &apiv1.ListNodesRequest{})
	if err != nil {
		return err
	}
	ready := 0
	for _, n := range nodes.Nodes {
		if n.State == "ready" {
			ready++
		}
	}
	if ready < len(c.agents) {
		return fmt.Errorf("%d of %d nodes are ready", ready, len(c.agents))
	}
	return nil
}

func dial(socket string) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

// firstDead returns an error that names a daemon that ended, with the end of
// its log.
func (c *Cluster) firstDead() error {
	for _, p := range append(append([]*process(nil), c.coords...), c.agents...) {
		if p.pid() == 0 {
			return fmt.Errorf("%s ended: %v: %s", p.name, p.ended(), tail(p.log))
		}
	}
	return nil
}

func tail(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	if len(data) > 2000 {
		data = data[len(data)-2000:]
	}
	return strings.TrimSpace(string(data))
}

// Watch logs when a daemon ends, until ctx ends.
func (c *Cluster) Watch(ctx context.Context) {
	gone := map[string]bool{}
	for {
		for _, p := range append(append([]*process(nil), c.coords...), c.agents...) {
			if p.pid() == 0 && !gone[p.name] {
				gone[p.name] = true
				fmt.Fprintf(c.opts.Log, "%s ended: %v (log: %s)\n", p.name, p.ended(), p.log)
			}
		}
		if !wait.Sleep(ctx, 200*time.Millisecond) {
			return
		}
	}
}

// Stop ends jobs, daemons and whatever else the cluster started, in this
// order, and removes a temporary directory.
func (c *Cluster) Stop() error {
	var errs []error
	if len(c.agents) > 0 {
		c.cancelJobs()
	}
	errs = append(errs, stopAll(c.agents, daemonGrace))
	if c.files != nil {
		for _, d := range c.files.agents {
			errs = append(errs, processrt.StopKeeper(d.path("data", "process")))
		}
	}
	errs = append(errs, stopAll(c.coords, daemonGrace))
	if c.containerd != nil {
		errs = append(errs, c.containerd.Stop())
		for _, d := range c.files.agents {
			errs = append(errs, c.opts.leaveNamespace(d.name))
		}
	}
	errs = append(errs, c.opts.removeGroups(), c.leaveRooms())
	c.spawn.close()
	if c.files != nil {
		c.files.freePorts()
	}
	if c.opts.temporary {
		errs = append(errs, os.RemoveAll(c.opts.Dir))
	}
	if c.inUse != nil {
		errs = append(errs, c.inUse.Close())
	}
	return errors.Join(errs...)
}

// cancelJobs cancels every job and waits briefly. Jobs that are left end with
// the runtimes.
func (c *Cluster) cancelJobs() {
	ctx, cancel := context.WithTimeout(context.Background(), jobsGrace)
	defer cancel()
	for _, d := range c.files.coordinators {
		if c.cancelVia(ctx, d.socket) == nil {
			return
		}
	}
}

func (c *Cluster) cancelVia(ctx context.Context, socket string) error {
	conn, err := dial(socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	jobs := apirpc.NewJobServiceClient(conn)
	for {
		page, err := jobs.ListJobs(ctx, &apiv1.ListJobsRequest{Brief: true})
		if err != nil {
			return err
		}
		if len(page.Jobs) == 0 {
			return nil
		}
		req := &apiv1.CancelJobsRequest{}
		for _, j := range page.Jobs {
			req.Ids = append(req.Ids, j.Id)
		}
		if _, err := jobs.CancelJobs(ctx, req); err != nil {
			return err
		}
		if !wait.Sleep(ctx, 50*time.Millisecond) {
			return ctx.Err()
		}
	}
}

package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berth-scheduler/berth/cluster/wait"
	"github.com/berth-scheduler/berth/cmd/internal/config"
	"github.com/berth-scheduler/berth/cmd/internal/dev"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
)

// trial is one measurement of a cluster.
type trial struct {
	o       *options
	cluster *dev.Cluster
	fleet   *fleet
	sent    []atomic.Int64 // when each job was submitted, by its number
	log     io.Writer
	began   time.Time
	figures []Figure
}

// changing is how many jobs change while others watch.
const changing = 100

// measure starts a cluster, loads it and returns what was measured.
func measure(ctx context.Context, o *options, exe string, log io.Writer) (figures []Figure, err error) {
	t := &trial{o: o, log: log, began: time.Now()}
	t.put("cores", "cores of this machine", float64(runtime.NumCPU()), "")
	t.put("load", "tasks that wanted them before (load average)", loadAverage(), "")
	t.cluster, err = dev.Start(ctx, dev.Options{Coordinators: o.coordinators, Dir: o.dir, Runtime: "process", Policy: "ffd", Exe: exe, Log: log, Configure: site})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.cluster.Stop()) }()
	t.say("coordinators: %d, in %s", o.coordinators, t.cluster.Dir())
	jobs := o.jobs + o.running + o.waiting + changing
	t.sent = make([]atomic.Int64, jobs+1)
	if t.fleet, err = newFleet(t.cluster, o.nodes, o.gpus, jobs); err != nil {
		return nil, err
	}
	t.say("%d nodes have certificates", o.nodes)
	ctx, cancel := context.WithCancel(ctx)
	var alive sync.WaitGroup
	defer alive.Wait()
	defer cancel()
	if err := t.register(ctx, &alive); err != nil {
		return nil, err
	}
	for _, phase := range []func(context.Context) error{t.atRest, t.churn, t.fill, t.watched, t.snapshot, t.totals, t.failover} {
		if err := phase(ctx); err != nil {
			return nil, err
		}
	}
	return t.figures, nil
}

// site gives a coordinator of a development cluster the timing of a site's, and limits
// that this program does not reach.
func site(c *config.Coordinator) {
	usual := config.DefaultCoordinator()
	c.Raft, c.Lease = usual.Raft, usual.Lease
	// Whatever there was, the last of it gets into a snapshot.
	c.Raft.SnapshotThreshold, c.Raft.SnapshotInterval = 64, 20*time.Second
	c.Limits.QueuedTotal, c.Limits.JobsPerUser = maxKept, maxKept
	c.Limits.SpecMiBTotal, c.Limits.SpecMiBPerUser = 1_000_000, 1_000_000
	c.Limits.RequestsPerUser, c.Limits.ConnectionsPerUser = 10_000, 4096
	c.Log.Level = "warn"
}

func (t *trial) say(format string, args ...any) {
	fmt.Fprintf(t.log, "%6.1f s  "+format+"\n", append([]any{time.Since(t.began).Seconds()}, args...)...)
}

// register has all nodes connect at once.
func (t *trial) register(ctx context.Context, alive *sync.WaitGroup) error {
	before, err := t.used(ctx)
	if err != nil {
		return err
	}
	mine, err := usageOf(os.Getpid())
	if err != nil {
		return err
	}
	alive.Go(func() { t.fleet.live(ctx) })
	if err := t.fleet.awaitAll(ctx, 10*time.Minute); err != nil {
		return err
	}
	took := time.Since(before.at)
	after, err := t.used(ctx)
	if err != nil {
		return err
	}
	mineAfter, err := usageOf(os.Getpid())
	if err != nil {
		return err
	}
	t.say("%d nodes are registered", t.o.nodes)
	t.put("register_s", "until all nodes were registered", took.Seconds(), "s")
	t.put("register_cpu_s", "processor time of the leader for that", (after.cpu - before.cpu).Seconds(), "s")
	t.put("register_load_cpu_s", "processor time of the nodes for that", (mineAfter.cpu - mine.cpu).Seconds(), "s")
	return nil
}

// leader returns the leader, and its index. It waits for one to be elected.
func (t *trial) leader(ctx context.Context) (c dev.Coordinator, index uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, stall)
	defer cancel()
	for {
		for _, c := range t.cluster.Coordinators() {
			st, err := statusOf(ctx, c.Socket)
			if err != nil {
				continue // it is down, or knows of no leader
			}
			for _, m := range st.Members {
				all := t.cluster.Coordinators()
				if i := slices.IndexFunc(all, func(c dev.Coordinator) bool { return c.ID == m.Id }); m.Leader && i >= 0 && all[i].PID > 0 {
					return all[i], m.LastIndex, nil
				}
			}
		}
		if !wait.Sleep(ctx, 20*time.Millisecond) {
			return c, 0, fmt.Errorf("no coordinator leads after %v", stall)
		}
	}
}

func statusOf(ctx context.Context, socket string) (*apiv1.GetStatusResponse, error) {
	conn, err := dialSocket(socket)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return apirpc.NewClusterServiceClient(conn).GetStatus(ctx, &apiv1.GetStatusRequest{})
}

// used returns what the leader has used so far.
func (t *trial) used(ctx context.Context) (usage, error) {
	c, _, err := t.leader(ctx)
	if err != nil {
		return usage{}, err
	}
	return usageOf(c.PID)
}

// atRest measures for a while in which nothing happens.
func (t *trial) atRest(ctx context.Context) error {
	return t.resting(ctx, "empty", fmt.Sprintf("with %d nodes and no job", t.o.nodes))
}

func (t *trial) resting(ctx context.Context, name, what string) error {
	c, was, err := t.settled(ctx)
	if err != nil {
		return err
	}
	before, err := usageOf(c.PID)
	if err != nil {
		return err
	}
	if !wait.Sleep(ctx, t.o.rest) {
		return ctx.Err()
	}
	after, err := usageOf(c.PID)
	if err != nil {
		return err
	}
	_, now, err := t.leader(ctx)
	if err != nil {
		return err
	}
	t.say("at rest %s: %.1f %% of a core", what, 100*after.cores(before))
	t.put("rest_"+name+"_percent", "leader at rest "+what, 100*after.cores(before), "% of a core").most(10)
	t.put("rest_"+name+"_entries", "log entries meanwhile", float64(now-was), "").most(0)
	t.put("rest_"+name+"_rss_gib", "its memory", float64(after.rssB)/(1<<30), "GiB").most(4)
	return nil
}

// settled returns the leader once the log has not grown for a while: what happened last
// has consequences, such as reports and what is learned. A log that goes on growing is
// not waited for long.
func (t *trial) settled(ctx context.Context) (c dev.Coordinator, index uint64, err error) {
	began := time.Now()
	for was := uint64(0); ; was = index {
		if c, index, err = t.leader(ctx); err != nil || index == was || time.Since(began) > stall {
			return c, index, err
		}
		if !wait.Sleep(ctx, settle) {
			return c, index, ctx.Err()
		}
	}
}

// settle is for how long the log must not grow before a measurement at rest.
const settle = 3 * time.Second

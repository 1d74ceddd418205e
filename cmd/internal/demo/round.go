package demo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"google.golang.org/grpc"

	"github.com/berth-scheduler/berth/cluster/wait"
	"github.com/berth-scheduler/berth/cmd/internal/dev"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
)

// round is one pass of all jobs through the cluster.
type round struct {
	cluster *dev.Cluster
	show    *progress
	jobs    map[uint64]*apiv1.Job
	index   uint64 // of the last change seen
	// killAt is the number of finished jobs after which the leader is killed; 0 is never.
	killAt int
	killed string // the leader that was killed, "" for none

	began, ended time.Time
	busyBefore   map[string]int64
	gpus         []gpuResult
	failover     time.Duration // from the kill until the next answer of a leader
}

// gpuResult is how busy one GPU was during a round.
type gpuResult struct {
	node, name string
	util       float64 // 0 to 1
	jobs       int
}

// run submits specs and follows them until all have ended.
func (r *round) run(ctx context.Context, specs []*apiv1.JobSpec) error {
	var err error
	if r.busyBefore, _, err = r.busy(ctx); err != nil {
		return err
	}
	r.began = time.Now()
	req := &apiv1.SubmitJobsRequest{RequestId: rand.Text(), Jobs: specs}
	var ids []uint64
	err = r.cluster.Call(ctx, func(ctx context.Context, cc *grpc.ClientConn) error {
		resp, err := apirpc.NewJobServiceClient(cc).SubmitJobs(ctx, req)
		ids = resp.GetIds()
		return err
	})
	if err != nil {
		return fmt.Errorf("submit: %w", err)
	}
	r.jobs = map[uint64]*apiv1.Job{}
	for _, id := range ids {
		r.jobs[id] = &apiv1.Job{Id: id, State: "PENDING"}
	}
	if err := r.follow(ctx, ids); err != nil {
		return err
	}
	r.ended = time.Now()
	return r.measure(ctx)
}

// follow watches the jobs, at another coordinator when one is gone: the index
// of the last change seen is the same everywhere.
func (r *round) follow(ctx context.Context, ids []uint64) error {
	for r.unfinished() > 0 {
		err := r.cluster.Stream(ctx, func(ctx context.Context, cc *grpc.ClientConn) error {
			s, err := apirpc.NewJobServiceClient(cc).WatchJobs(ctx, &apiv1.WatchJobsRequest{Ids: ids, FromIndex: r.index})
			if err != nil {
				return err
			}
			for r.unfinished() > 0 {
				m, err := s.Recv()
				if err != nil {
					return err
				}
				r.take(m)
				if err := r.maybeKill(ctx); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil && ctx.Err() != nil {
			return ctx.Err()
		}
	}
	r.show.done()
	return nil
}

func (r *round) take(m *apiv1.WatchJobsResponse) {
	for _, j := range m.Jobs {
		old := r.jobs[j.Id]
		r.jobs[j.Id] = j
		if old == nil || old.State != j.State {
			r.show.changed(j, r.count())
		}
	}
	r.index = m.Index
}

func (r *round) unfinished() int {
	c := r.count()
	return len(r.jobs) - c.finished
}

type counts struct{ waiting, running, finished int }

func (r *round) count() (c counts) {
	for _, j := range r.jobs {
		switch {
		case terminal(j.State):
			c.finished++
		case j.State == "PENDING" || j.State == "QUEUED":
			c.waiting++
		default:
			c.running++
		}
	}
	return c
}

func terminal(state string) bool {
	switch state {
	case "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL", "PREEMPTED", "DEADLINE":
		return true
	}
	return false
}

// maybeKill ends the leader as a power cut would, halfway through.
func (r *round) maybeKill(ctx context.Context) error {
	if r.killAt == 0 || r.count().finished < r.killAt {
		return nil
	}
	r.killAt = 0
	st, err := r.status(ctx)
	if err != nil {
		return err
	}
	for _, m := range st.Members {
		if !m.Leader {
			continue
		}
		killed := time.Now()
		if err := r.cluster.Kill(m.Id); err != nil {
			return fmt.Errorf("kill the leader: %w", err)
		}
		r.killed = m.Id
		r.show.note("leader %s (pid %d) killed with kill -9", m.Id, m.Pid)
		for {
			st, err := r.status(ctx)
			if err != nil {
				return err
			}
			if l := leaderOf(st); l != "" && l != m.Id {
				r.failover = time.Since(killed)
				r.show.note("%s is the new leader after %.1f s; running jobs continued", l, r.failover.Seconds())
				return nil
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	return errors.New("no coordinator says that it is the leader")
}

func leaderOf(st *apiv1.GetStatusResponse) string {
	for _, m := range st.Members {
		if m.Leader {
			return m.Id
		}
	}
	return ""
}

func (r *round) status(ctx context.Context) (st *apiv1.GetStatusResponse, err error) {
	err = r.cluster.Call(ctx, func(ctx context.Context, cc *grpc.ClientConn) error {
		st, err = apirpc.NewClusterServiceClient(cc).GetStatus(ctx, &apiv1.GetStatusRequest{})
		return err
	})
	return st, err
}

// busy reads how long each GPU has been busy, in milliseconds at full
// utilization.
func (r *round) busy(ctx context.Context) (map[string]int64, []*apiv1.Node, error) {
	var nodes []*apiv1.Node
	// The figures come with the agents' heartbeats: wait for one after now.
	asked := time.Now()
	for {
		err := r.cluster.Call(ctx, func(ctx context.Context, cc *grpc.ClientConn) error {
			resp, err := apirpc.NewClusterServiceClient(cc).ListNodes(ctx, &apiv1.ListNodesRequest{})
			nodes = resp.GetNodes()
			return err
		})
		if err != nil {
			return nil, nil, err
		}
		if heardSince(nodes, asked) {
			break
		}
		if !wait.Sleep(ctx, 50*time.Millisecond) {
			return nil, nil, ctx.Err()
		}
	}
	busy := map[string]int64{}
	for _, n := range nodes {
		for _, g := range n.Gpus {
			busy[g.Uuid] = g.BusyMs
		}
	}
	return busy, nodes, nil
}

func heardSince(nodes []*apiv1.Node, t time.Time) bool {
	for _, n := range nodes {
		if n.LastContact == nil || n.LastContact.AsTime().Before(t) {
			return false
		}
		for _, g := range n.Gpus {
			if g.BusySince == nil {
				return false
			}
		}
	}
	return true
}

func (r *round) measure(ctx context.Context) error {
	after, nodes, err := r.busy(ctx)
	if err != nil {
		return err
	}
	on := map[string]int{}
	for _, j := range r.jobs {
		for _, g := range j.Gpus {
			on[g.Uuid]++
		}
	}
	for _, n := range nodes {
		for _, g := range n.Gpus {
			r.gpus = append(r.gpus, gpuResult{
				node: n.Id, name: g.Type, jobs: on[g.Uuid],
				util: float64(after[g.Uuid]-r.busyBefore[g.Uuid]) / float64(r.makespan().Milliseconds()),
			})
		}
	}
	return nil
}

func (r *round) makespan() time.Duration { return r.ended.Sub(r.began) }

func (r *round) meanUtil() float64 {
	sum := 0.0
	for _, g := range r.gpus {
		sum += g.util
	}
	return sum / float64(max(1, len(r.gpus)))
}

// progress shows how a round goes: one line, overwritten, on a terminal, and a
// line for each fifth of the jobs elsewhere.
type progress struct {
	out      io.Writer
	terminal bool
	total    int
	label    string
	began    time.Time
	said     int
}

func (p *progress) changed(j *apiv1.Job, c counts) {
	if p.terminal {
		fmt.Fprintf(p.out, "\r\x1b[K%s  %4.1f s  waiting %-3d running %-3d finished %d/%d  (%s: %s)",
			p.label, time.Since(p.began).Seconds(), c.waiting, c.running, c.finished, p.total, j.Name, j.State)
		return
	}
	step := max(1, p.total/5)
	if c.finished/step > p.said {
		p.said = c.finished / step
		fmt.Fprintf(p.out, "%s  %4.1f s  waiting %d, running %d, finished %d of %d\n",
			p.label, time.Since(p.began).Seconds(), c.waiting, c.running, c.finished, p.total)
	}
}

func (p *progress) note(format string, args ...any) {
	p.done()
	fmt.Fprintf(p.out, "%s  %4.1f s  "+format+"\n", append([]any{p.label, time.Since(p.began).Seconds()}, args...)...)
}

func (p *progress) done() {
	if p.terminal {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}

func isTerminal(f *os.File) bool {
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}

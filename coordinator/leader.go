package coordinator

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berth-scheduler/berth/cluster/wait"
	"github.com/berth-scheduler/berth/coordinator/office"
	"github.com/berth-scheduler/berth/coordinator/proposer"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// officePause is the time between two terms of office within one leadership.
const officePause = 50 * time.Millisecond

// holdOffices follows Raft's notices of leadership and runs what only a leader runs,
// until ctx ends.
func (c *Coordinator) holdOffices(ctx context.Context) error {
	changes := c.raft.LeaderChanges()
	leads := c.raft.IsLeader()
	for {
		for leads {
			if err := c.holdOffice(ctx, changes); err != nil {
				return err
			}
			// A term of office may end by a bug while Raft's leadership continues;
			// then nothing would answer, and no notice would come.
			if leads = c.raft.IsLeader(); leads && !wait.Sleep(ctx, officePause) {
				return ctx.Err()
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case leads = <-changes:
		}
	}
}

// holdOffice serves one term of leadership. It returns nil when leadership was
// lost.
func (c *Coordinator) holdOffice(ctx context.Context, changes <-chan bool) error {
	octx, lost := context.WithCancelCause(ctx)
	defer lost(nil)
	g, gctx := errgroup.WithContext(octx)
	g.Go(func() error {
		for {
			select {
			case <-gctx.Done():
				return gctx.Err()
			case l := <-changes:
				if !l {
					lost(errors.New("leadership lost"))
					return proposer.ErrNotLeader
				}
			}
		}
	})
	g.Go(func() error { return c.govern(gctx) })
	err := g.Wait()
	c.office.Leave()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	c.log.InfoContext(ctx, "no longer leader", "err", err)
	return nil
}

// govern waits until every entry of earlier terms is applied here, and only then
// plans and answers: before that the state may lack acknowledged submits.
func (c *Coordinator) govern(ctx context.Context) error {
	began := time.Now()
	if err := c.raft.Barrier(ctx); err != nil {
		return err
	}
	term := c.raft.Term()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.yieldWhenFull(ctx) }) // first: what follows may need room
	c.prop.SetVersion(c.fsm.EntryVersion(), nil)
	g.Go(func() error { return c.prop.Run(ctx, term) })
	if err := c.ensureInit(ctx); err != nil {
		return errors.Join(err, g.Wait())
	}
	if len(c.raft.Members()) == 1 {
		if err := c.agree(ctx); err != nil { // there are none to wait for
			return errors.Join(err, g.Wait())
		}
	} else {
		g.Go(func() error { return c.agree(ctx) })
	}
	c.learn.Reload()
	c.nodes.Begin()
	g.Go(func() error { return c.lead.Run(ctx) })
	g.Go(func() error { return c.recut.Run(ctx) })
	g.Go(func() error { return c.nodes.Watch(ctx) })
	g.Go(func() error { return c.learn.Run(ctx) })
	g.Go(func() error { return c.learn.Again(ctx) })
	c.office.Take(&office.Term{Ctx: ctx, No: term})
	c.log.InfoContext(ctx, "leading", "term", term, "index", c.fsm.Index(), "dur", time.Since(began))
	return g.Wait()
}

// ensureInit writes the cluster's identity into a new log.
func (c *Coordinator) ensureInit(ctx context.Context) error {
	if _, _, _, ok := c.fsm.Config(); ok {
		return nil
	}
	for {
		_, err := c.prop.One(ctx, &logv1.Command{Kind: &logv1.Command_InitCluster{InitCluster: &logv1.InitCluster{
			Config: &logv1.Config{ClusterId: c.cfg.ClusterID, Name: c.cfg.ClusterName, KeepFinished: uint32(max(0, c.cfg.KeepFinished))},
		}}})
		if err == nil || ctx.Err() != nil {
			return err
		}
		// The proposer's loop may not have started yet.
		if !wait.Sleep(ctx, 10*time.Millisecond) {
			return ctx.Err()
		}
	}
}

package load

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/cluster/wait"
	"github.com/berth-scheduler/berth/cmd/internal/dev"
)

// farAway is when jobs begin that never do.
func farAway() *timestamppb.Timestamp { return timestamppb.New(time.Now().Add(24 * time.Hour)) }

// failover kills the leader, waits for another one and for all nodes, and starts it again.
func (t *trial) failover(ctx context.Context) error {
	if !t.o.killLeader {
		return nil
	}
	c, last, err := t.leader(ctx)
	if err != nil {
		return err
	}
	t.fleet.again()
	killed := time.Now()
	if err := t.cluster.Kill(c.ID); err != nil {
		return fmt.Errorf("kill the leader: %w", err)
	}
	t.say("leader %s is killed", c.ID)
	if t.o.coordinators == 1 {
		if err := t.restart(ctx, c, last); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, stall)
	defer cancel()
	if _, _, err := t.leader(ctx); err != nil {
		return err
	}
	t.put("elect_s", "from its death until a leader answered", time.Since(killed).Seconds(), "s")
	if err := t.fleet.awaitAll(ctx, stall); err != nil {
		return err
	}
	t.say("all nodes are back")
	t.put("reconnect_s", "until all nodes had a session again", time.Since(killed).Seconds(), "s").most(30)
	if t.o.coordinators > 1 {
		return t.restart(ctx, c, last)
	}
	return nil
}

// restart starts a coordinator and waits until it has the state again.
func (t *trial) restart(ctx context.Context, c dev.Coordinator, last uint64) error {
	began := time.Now()
	if err := t.cluster.Restart(c.ID); err != nil {
		return err
	}
	for {
		m, err := metrics(ctx, c.Metrics)
		if err == nil && m["berth_raft_applied_index"] >= float64(last) {
			break
		}
		if time.Since(began) > stall {
			return fmt.Errorf("%s has not caught up %v after its start: %w", c.ID, stall, err)
		}
		if !wait.Sleep(ctx, 20*time.Millisecond) {
			return ctx.Err()
		}
	}
	t.say("%s has started again", c.ID)
	t.put("restart_s", "start of a coordinator until it had the state", time.Since(began).Seconds(), "s").most(20)
	return nil
}

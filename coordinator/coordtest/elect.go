package coordtest

import (
	"context"
	"io"
	"time"

	"github.com/hashicorp/raft"

	peerv1 "github.com/berth-scheduler/berth/proto/berth/peer/v1"
)

// Elect makes a coordinator other than the given one stand for election now, as a
// leader does that hands over: a steady cluster would wait for long. It is the one
// with the newest log, which the others vote for; -1 excludes none.
func (c *Cluster) Elect(but int) {
	c.t.Helper()
	layer := newLink(c.listen("127.0.0.1:0"))
	trans := raft.NewNetworkTransport(layer, 1, time.Minute, io.Discard)
	defer trans.Close()
	header := raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax}
	best, newest := raft.Server{}, uint64(0)
	for _, i := range c.alive() {
		p := raft.Server{ID: raft.ServerID(c.peers[i].ID), Address: raft.ServerAddress(c.peers[i].Addr)}
		var stale raft.AppendEntriesResponse // for a term that is over: it reports the log's length
		if err := trans.AppendEntries(p.ID, p.Address, &raft.AppendEntriesRequest{RPCHeader: header}, &stale); err != nil {
			c.t.Logf("%s does not say how long its log is: %v", p.ID, err)
			continue
		}
		if i != but && stale.LastLog >= newest {
			best, newest = p, stale.LastLog
		}
	}
	if err := trans.TimeoutNow(best.ID, best.Address, &raft.TimeoutNowRequest{RPCHeader: header}, &raft.TimeoutNowResponse{}); err != nil {
		c.t.Logf("%q does not stand for election: %v", best.ID, err)
	}
}

// alive returns the coordinators that were neither stopped nor killed.
func (c *Cluster) alive() (on []int) {
	for i, n := range c.nodes {
		if n != nil && !n.killed {
			on = append(on, i)
		}
	}
	return on
}

// Leader waits for a coordinator to lead and returns its number. Who is told to stand for
// election while it leads stops leading, so each gets twice as long as the one before.
func (c *Cluster) Leader() int {
	c.t.Helper()
	elected, patience := time.Time{}, time.Second
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		on := c.alive()
		if c.opts.Steady && !c.led && len(on) > len(c.nodes)/2 && time.Since(elected) > patience {
			c.Elect(-1)
			elected, patience = time.Now(), 2*patience
		}
		for _, i := range on {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			_, err := peerv1.NewPeerServiceClient(c.Dial(i, "coordinator", "peer")).ConfirmIndex(ctx, &peerv1.ConfirmIndexRequest{})
			cancel()
			if err == nil {
				c.led = true
				return i
			}
		}
	}
	c.t.Fatal("no leader within two minutes")
	return -1
}

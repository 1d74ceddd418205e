package raftnode

import (
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// TestAPipelineThatNobodyReads: a leader that goes on sending after it stopped to
// read answers, as raft does for a moment when a follower refused an entry, is not
// held up for ever.
func TestAPipelineThatNobodyReads(t *testing.T) {
	t.Parallel()
	of := func() *transport {
		l := listen(t, "127.0.0.1:0")
		tr := newTransport(&tcpLayer{Listener: l}, l.Addr().String(), time.Minute, hclog.NewNullLogger())
		t.Cleanup(func() { tr.Close() })
		return tr
	}
	leader, follower := of(), of()
	go func() {
		for rpc := range follower.Consumer() {
			rpc.Respond(&raft.AppendEntriesResponse{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax}}, nil) // refused
		}
	}()
	p, err := leader.AppendEntriesPipeline("f", follower.LocalAddr())
	if err != nil {
		t.Fatal(err)
	}
	sent := make(chan error)
	go func() {
		for range 10 {
			_, err := p.AppendEntries(&raft.AppendEntriesRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax}, Term: 1}, new(raft.AppendEntriesResponse))
			sent <- err
		}
	}()
	late := time.After(time.Minute)
	for i := range 10 {
		select {
		case err := <-sent:
			if err != nil {
				t.Fatal(err)
			}
		case <-late:
			t.Fatalf("%d of 10 are sent, and the next waits for ever", i)
		}
	}
	for i := range 10 { // and each answer is there for who reads later
		select {
		case f := <-p.Consumer():
			if f.Response().Success {
				t.Errorf("answer %d is not what was answered", i)
			}
		case <-late:
			t.Fatalf("%d of 10 answers are there", i)
		}
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

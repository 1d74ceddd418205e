package dev

import (
	"context"
	"time"

	"google.golang.org/grpc"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/wait"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

const (
	callAttempt = 5 * time.Second
	callPause   = 50 * time.Millisecond
)

// Call runs f with a connection to a coordinator, and with one to the next
// when that one is gone or there is no leader, until f succeeds, fails for
// another reason, or ctx ends. f must be safe to repeat: a submit keeps its
// request id.
func (c *Cluster) Call(ctx context.Context, f func(context.Context, *grpc.ClientConn) error) error {
	for i := 0; ; i++ {
		err := c.callVia(ctx, c.files.coordinators[i%len(c.files.coordinators)].socket, f)
		if err == nil {
			return nil
		}
		if code := apiconv.FromStatus(err).Code; code != cluster.CodeUnavailable && code != cluster.CodeUnknown {
			return err
		}
		if !wait.Sleep(ctx, callPause) {
			return err
		}
	}
}

func (c *Cluster) callVia(ctx context.Context, socket string, f func(context.Context, *grpc.ClientConn) error) error {
	conn, err := dial(socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, callAttempt)
	defer cancel()
	return f(ctx, conn)
}

// Stream runs f once with a connection to a coordinator, with no time limit but
// that of ctx; the next call uses another one.
func (c *Cluster) Stream(ctx context.Context, f func(context.Context, *grpc.ClientConn) error) error {
	i := int(c.streams.Add(1)) % len(c.files.coordinators)
	conn, err := dial(c.files.coordinators[i].socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := f(ctx, conn); err != nil {
		wait.Sleep(ctx, callPause)
		return err
	}
	return nil
}

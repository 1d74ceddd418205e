package sruncmd

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/agent/tunnel"
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/wait"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// NewTunnelCmd returns the command tunnel.
func NewTunnelCmd(e *console.Env, c *client.Client) *cobra.Command {
	var o localOptions
	var node string
	cmd := &cobra.Command{
		Use:   "tunnel JOB PORT|PATH",
		Short: "Connect to a port or socket inside a running job",
		Long: "Forward connections from this machine into one of your jobs: to a port on its loopback address, such as\n" +
			"TensorBoard's, or to a socket path. They take the same path as berth shell, through the coordinators\n" +
			"and the node's agent; nothing listens on a network. Only you may connect to this end. The tunnel\n" +
			"survives a change of leader, and ends with the job or on an interrupt.",
		Example: "  berth tunnel 12 6006\n  berth tunnel --listen 6006 12 6006\n  berth tunnel --socket ./api.sock 12 /tmp/api.sock",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return console.Usagef("want a job id, and a port or the absolute path of a socket in it, for example: berth tunnel 12 6006")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := console.ParseID(args[0])
			if err == nil {
				err = o.check()
			}
			if err != nil {
				return err
			}
			if _, _, err := tunnel.Target(args[1]); err != nil {
				return console.Usagef("%v", err)
			}
			t := &carrier{e: e, c: c, job: id, node: node, target: args[1]}
			end, err := o.open(e, "tunnel-"+args[0]+"-"+strings.Map(plain, args[1])+".sock")
			if err != nil {
				return err
			}
			return t.run(cmd.Context(), end, func() {
				if end.port > 0 {
					e.Printf("Here:\n  127.0.0.1:%d\n\n", end.port)
				} else {
					e.Printf("Here:\n  %s\n\n", console.Escape(end.path))
				}
				e.Printf("On your own machine, for localhost:%d there:\n  %s\n", o.own, end.line(e, o.own))
			})
		},
	}
	o.register(cmd.Flags(), 8888)
	cmd.Flags().StringVar(&node, "node", "", "node to use if the job has several; by default the first")
	return cmd
}

// plain makes a path usable in a file name.
func plain(r rune) rune {
	if r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
		return r
	}
	return '-'
}

const (
	// carrierKeep is how long the node keeps connections whose carrier lost its
	// own, and how long the carrier tries to reconnect.
	carrierKeep = 10 * time.Minute
	// partWait is how long the node may take to let go.
	partWait = 5 * time.Second
)

// carrier carries connections into a job.
type carrier struct {
	e      *console.Env
	c      *client.Client
	job    uint64
	node   string
	target string
}

// run carries the connections to end, and closes it, until the job ends or
// ctx does: that is how users end it. ready is called once when it works.
func (t *carrier) run(ctx context.Context, end *localEnd, ready func()) error {
	conns := make(chan net.Conn)
	actx, stop := context.WithCancel(ctx)
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			nc, err := end.Accept()
			if err != nil {
				return
			}
			select {
			case conns <- nc:
			case <-actx.Done():
				_ = nc.Close() // nothing was sent on it
				return
			}
		}
	})
	defer accepting.Wait()
	defer end.Close()
	defer stop()
	var deadline time.Time
	for pause := client.FirstWait; ; pause = min(2*pause, time.Second) {
		err := t.once(ctx, conns, func() error {
			deadline, pause = time.Time{}, client.FirstWait
			if ready == nil {
				t.e.Warnf("connected again")
				return nil
			}
			ready()
			ready = nil
			return t.e.Flush()
		})
		if deadline.IsZero() {
			deadline = time.Now().Add(carrierKeep)
		}
		var ce *cluster.Error
		switch {
		case ctx.Err() != nil && ready == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil:
			t.e.Warnf("job %d has ended", t.job)
			return nil
		case ready != nil, !errors.As(err, &ce), !client.Indefinite(ce) && ce.Code != cluster.CodeNotFound, time.Now().After(deadline):
			return err
		}
		t.e.Warnf("the connection to job %d broke (%s); retrying", t.job, console.Escape(ce.Msg))
		if !wait.Sleep(ctx, pause) {
			return nil
		}
	}
}

// once carries until the way into the job breaks for good; nil when the job
// has ended. A brief break is repaired on the way.
func (t *carrier) once(ctx context.Context, conns <-chan net.Conn, ready func() error) error {
	sctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	opening := context.AfterFunc(ctx, cancel)
	s, err := t.c.OpenSession(sctx, client.SessionConfig{
		Keep: carrierKeep, Patience: carrierKeep,
		OnBreak: func(err error) {
			t.e.Warnf("the connection broke (%s); retrying for %s", console.Escape(err.Error()), carrierKeep)
		},
		OnResume: func() { t.e.Warnf("connected again") },
	}, &apiv1.AttachOpen{Job: t.job, Node: t.node, What: &apiv1.AttachOpen_Exec{Exec: &apiv1.AttachExec{
		Own: true, Command: [][]byte{[]byte(tunnel.Arg), []byte(t.target)},
	}}})
	if err != nil {
		return err
	}
	defer s.Close()
	if !opening() {
		s.End()
		return context.Cause(ctx)
	}
	// An interrupt lets the other end finish by itself, for a moment.
	defer context.AfterFunc(ctx, func() {
		s.End()
		time.AfterFunc(partWait, cancel)
	})()
	if err := ready(); err != nil {
		s.End()
		return err
	}
	var end *apiv1.AttachEnded
	var words []byte
	out := s.Output(func(m *apiv1.AttachResponse) {
		switch k := m.GetKind().(type) {
		case *apiv1.AttachResponse_Stderr:
			words = append(words, k.Stderr...)
		case *apiv1.AttachResponse_Ended:
			end = k.Ended
		}
	})
	err = tunnel.Carry(conns, cancelling{out, cancel}, s)
	switch {
	case err != nil:
		return err
	case end.GetWithJob():
		return nil
	case end.GetCode() == 125:
		return errors.New(strings.TrimSpace(console.EscapeLines(string(words))))
	}
	return cluster.Errorf(cluster.CodeUnknown, "the program that carried it in the job exited with code %d", end.GetCode())
}

// cancelling makes waiting writes to a stream end with that stream.
type cancelling struct {
	io.Reader
	cancel context.CancelFunc
}

// Read implements io.Reader.
func (c cancelling) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	if err != nil {
		c.cancel()
	}
	return n, err
}

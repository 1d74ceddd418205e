package sruncmd

import (
	"context"
	"errors"
	"io"
	"sync"
	"syscall"
	"time"

	"github.com/berth-scheduler/berth/agent/step"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/enter"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

// stepKeep is how long a node keeps the tasks of a step whose srun lost its
// connection, and how long srun tries to reconnect.
const stepKeep = 10 * time.Minute

// remoteNode is another node of the job: its agent runs the tasks there, and
// keeps them when the connection breaks.
type remoteNode struct {
	s   *client.Session
	to  *step.Writer
	out io.Reader

	mu    sync.Mutex
	ended *apiv1.AttachEnded
	words []byte
}

func openRemote(ctx context.Context, c *client.Client, job uint64, name string) (node, error) {
	open := &apiv1.AttachOpen{Job: job, Node: name, What: &apiv1.AttachOpen_Exec{Exec: &apiv1.AttachExec{Command: [][]byte{[]byte(step.Arg)}, Own: true}}}
	s, err := c.OpenSession(ctx, client.SessionConfig{Keep: stepKeep, Patience: stepKeep}, open)
	if err != nil {
		return nil, err
	}
	n := &remoteNode{s: s, to: step.NewWriter(s)}
	n.out = s.Output(n.other)
	return n, nil
}

// other handles frames other than output of the tasks.
func (n *remoteNode) other(m *apiv1.AttachResponse) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch k := m.GetKind().(type) {
	case *apiv1.AttachResponse_Stderr:
		n.words = append(n.words, k.Stderr...)
	case *apiv1.AttachResponse_Ended:
		n.ended = k.Ended
	}
}

// Send implements node.
func (n *remoteNode) Send(f step.Frame) error { return n.to.Write(f) }

// Recv implements node.
func (n *remoteNode) Recv() (step.Frame, error) {
	f, err := step.Read(n.out)
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case err == io.EOF && n.ended.GetWithJob():
		err = errors.New("the job has ended, and the step with it")
	case err == io.EOF && len(n.words) > 0:
		err = errors.New(string(n.words))
	}
	return f, err
}

// Signal implements node.
func (n *remoteNode) Signal(sig syscall.Signal) { n.s.Signal(sig) }

// Close implements node.
func (n *remoteNode) Close() {
	n.mu.Lock()
	over := n.ended != nil
	n.mu.Unlock()
	if !over {
		n.s.End()
	}
	n.s.Close()
}

// remotePty runs the command at this terminal on the first node.
func (s *stepRun) remotePty(ctx context.Context, cfg *step.Config) error {
	x := &apiv1.AttachExec{Terminal: true, Term: s.e.Getenv("TERM"), Command: apiconv.Texts[[]byte](s.o.command)}
	x.Env = append(append(x.Env, cfg.Env...), cfg.Tasks[0].Env...)
	in := &enter.InsideJob{Open: &apiv1.AttachOpen{Job: s.j.id, Node: s.l.places[0].node, What: &apiv1.AttachOpen_Exec{Exec: x}}, Keep: stepKeep}
	end, err := in.Run(ctx, s.e, s.c)
	if err != nil {
		return err
	}
	return s.taskEnd(ended{code: byte(end.GetCode()), signal: byte(end.GetSignal())})
}

package web

import (
	"context"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/berth-scheduler/berth/coordinator/api/authorize"
	"github.com/berth-scheduler/berth/coordinator/web/session"
)

// maxAnswer is the largest answer accepted from the API, as for the command line.
const maxAnswer = 64 << 20

// within carries calls to the users' API of this very process: a pipe for each
// user, at whose other end the server is told who it is, as the kernel says for the
// socket.
type within struct {
	made chan net.Conn
	done chan struct{}
	once sync.Once

	mu    sync.Mutex
	conns map[session.User]*grpc.ClientConn
}

func newWithin() *within {
	return &within{made: make(chan net.Conn), done: make(chan struct{}), conns: map[session.User]*grpc.ClientConn{}}
}

// Accept implements net.Listener.
func (p *within) Accept() (net.Conn, error) {
	select {
	case c := <-p.made:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *within) Close() error {
	p.once.Do(func() { close(p.done) })
	p.closeUnless(func(session.User) bool { return false })
	return nil
}

// Addr implements net.Listener.
func (p *within) Addr() net.Addr { return &net.UnixAddr{Name: "web", Net: "unix"} }

// of returns the connection of a user.
func (p *within) of(u session.User) (*grpc.ClientConn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.conns[u]; c != nil {
		return c, nil
	}
	c, err := grpc.NewClient("passthrough:///within", grpc.WithTransportCredentials(insecure.NewCredentials()), // nothing leaves the process
		grpc.WithDisableServiceConfig(), grpc.WithNoProxy(), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			here, there := net.Pipe()
			select {
			case p.made <- authorize.Within{Conn: there, UID: u.UID, GID: u.GID}:
				return here, nil
			case <-p.done:
				return nil, net.ErrClosed
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}))
	if err == nil {
		p.conns[u] = c
	}
	return c, err
}

// closeUnless closes the connections of users who are no longer in.
func (p *within) closeUnless(in func(session.User) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for u, c := range p.conns {
		if !in(u) {
			c.Close()
			delete(p.conns, u)
		}
	}
}

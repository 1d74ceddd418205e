// Package peers keeps the connections of a coordinator to the others.
package peers

import (
	"sync"

	"google.golang.org/grpc"
)

// Conns keeps one connection to each other coordinator.
type Conns struct {
	dial func(addr string) (*grpc.ClientConn, error)

	mu    sync.Mutex
	conns map[string]*grpc.ClientConn
}

// New returns connections made by dial, each on first use.
func New(dial func(string) (*grpc.ClientConn, error)) *Conns {
	return &Conns{dial: dial, conns: map[string]*grpc.ClientConn{}}
}

// Get returns the connection to the coordinator at an address.
func (p *Conns) Get(addr string) (*grpc.ClientConn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.conns[addr]; c != nil {
		return c, nil
	}
	c, err := p.dial(addr)
	if err == nil {
		p.conns[addr] = c
	}
	return c, err
}

// Close closes all of them.
func (p *Conns) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for addr, c := range p.conns {
		c.Close()
		delete(p.conns, addr)
	}
}

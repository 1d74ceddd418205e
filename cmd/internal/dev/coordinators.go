package dev

import (
	"fmt"

	"github.com/berth-scheduler/berth/cmd/internal/tlsconf"
)

// Coordinator is one coordinator of the cluster.
type Coordinator struct {
	ID, Addr, Socket, Metrics string
	// PID is 0 when it has ended.
	PID int
}

// Coordinators returns all coordinators.
func (c *Cluster) Coordinators() []Coordinator {
	var out []Coordinator
	for i, d := range c.files.coordinators {
		out = append(out, Coordinator{ID: d.name, Addr: d.addr, Socket: d.socket, Metrics: d.metrics, PID: c.coords[i].pid()})
	}
	return out
}

// Kill ends a coordinator as a power cut would, and returns when it has ended.
func (c *Cluster) Kill(id string) error {
	p, err := c.coordinator(id)
	if err != nil {
		return err
	}
	err = p.cmd.Process.Kill()
	<-p.done
	return err
}

// Restart starts a coordinator that has ended.
func (c *Cluster) Restart(id string) error {
	p, err := c.coordinator(id)
	if err != nil {
		return err
	}
	return p.start(c.spawn)
}

func (c *Cluster) coordinator(id string) (*process, error) {
	for i, d := range c.files.coordinators {
		if d.name == id {
			return c.coords[i], nil
		}
	}
	return nil, fmt.Errorf("no coordinator is called %s", id)
}

// Certify returns a certificate of the cluster for the agent of a node.
func (c *Cluster) Certify(node string) (tlsconf.Material, error) {
	return c.files.certify(tlsconf.RoleAgent, node)
}

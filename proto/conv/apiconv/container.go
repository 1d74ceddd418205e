package apiconv

import (
	"github.com/berth-scheduler/berth/cluster"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// mount is the common interface of the three protocols' mounts.
type mount interface {
	GetSource() []byte
	GetTarget() []byte
	GetReadOnly() bool
}

// container is the common interface of the three protocols' containers.
type container[M mount] interface {
	GetNetwork() string
	GetMounts() []M
	GetReadOnly() bool
	GetTmpMib() int64
	GetShmMib() int64
}

// ContainerFrom converts a container; nil becomes the zero one.
func ContainerFrom[M mount](m container[M]) cluster.Container {
	c := cluster.Container{
		Network: cluster.Network(m.GetNetwork()), ReadOnly: m.GetReadOnly(), TmpMiB: m.GetTmpMib(), ShmMiB: m.GetShmMib(),
	}
	for _, b := range m.GetMounts() {
		c.Mounts = append(c.Mounts, cluster.Mount{Source: string(b.GetSource()), Target: string(b.GetTarget()), ReadOnly: b.GetReadOnly()})
	}
	return c
}

func containerToAPI(c *cluster.Container) *apiv1.Container {
	if !c.Set() {
		return nil
	}
	m := &apiv1.Container{Network: string(c.Network), ReadOnly: c.ReadOnly, TmpMib: c.TmpMiB, ShmMib: c.ShmMiB}
	for _, b := range c.Mounts {
		m.Mounts = append(m.Mounts, &apiv1.Mount{Source: []byte(b.Source), Target: []byte(b.Target), ReadOnly: b.ReadOnly})
	}
	return m
}

// warningFromAPI converts a warning; a signal without a time gets the default.
func warningFromAPI(m *apiv1.Warning) (cluster.Warning, error) {
	if m == nil {
		return cluster.Warning{}, nil
	}
	w := cluster.Warning{Signal: m.GetSignal(), First: m.GetFirst()}
	var err error
	if w.Before, err = duration("signal", m.GetBefore()); err != nil {
		return w, err
	}
	if w.Signal == "" {
		return w, cluster.Errorf(cluster.CodeInvalid, "signal: is missing; say which one warns of the time limit")
	}
	if m.GetBefore() == nil {
		w.Before = cluster.DefaultWarning
	}
	return w, nil
}

func warningToAPI(w cluster.Warning) *apiv1.Warning {
	if w == (cluster.Warning{}) {
		return nil
	}
	return &apiv1.Warning{Signal: w.Signal, Before: ToDuration(w.Before), First: w.First}
}

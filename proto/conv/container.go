package conv

import (
	"github.com/berth-scheduler/berth/cluster"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

// ContainerFromNode converts the container options that an agent is sent.
func ContainerFromNode(m *nodev1.Container) cluster.Container { return apiconv.ContainerFrom(m) }

func containerToLog(c *cluster.Container) *logv1.Container {
	if !c.Set() {
		return nil
	}
	m := &logv1.Container{Network: string(c.Network), ReadOnly: c.ReadOnly, TmpMib: c.TmpMiB, ShmMib: c.ShmMiB}
	for _, b := range c.Mounts {
		m.Mounts = append(m.Mounts, &logv1.Mount{Source: []byte(b.Source), Target: []byte(b.Target), ReadOnly: b.ReadOnly})
	}
	return m
}

func containerToNode(c *cluster.Container) *nodev1.Container {
	if !c.Set() {
		return nil
	}
	m := &nodev1.Container{Network: string(c.Network), ReadOnly: c.ReadOnly, TmpMib: c.TmpMiB, ShmMib: c.ShmMiB}
	for _, b := range c.Mounts {
		m.Mounts = append(m.Mounts, &nodev1.Mount{Source: []byte(b.Source), Target: []byte(b.Target), ReadOnly: b.ReadOnly})
	}
	return m
}

func warningToLog(w cluster.Warning) *logv1.Warning {
	if w == (cluster.Warning{}) {
		return nil
	}
	return &logv1.Warning{Signal: w.Signal, BeforeUs: w.Before.Microseconds(), First: w.First}
}

func warningFromLog(m *logv1.Warning) cluster.Warning {
	return cluster.Warning{Signal: m.GetSignal(), Before: us(m.GetBeforeUs()), First: m.GetFirst()}
}

func warningToNode(w cluster.Warning) *nodev1.Warning {
	if w == (cluster.Warning{}) {
		return nil
	}
	return &nodev1.Warning{Signal: w.Signal, Before: apiconv.ToDuration(w.Before), First: w.First}
}

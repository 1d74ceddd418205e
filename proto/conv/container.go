package conv

import (
	"github.com/berth-scheduler/berth/cluster"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// mount is what the three wires' mounts have in common.
type mount interface {
	GetSource() []byte
	GetTarget() []byte
	GetReadOnly() bool
}

// container is what the three wires' containers have in common.
type container[M mount] interface {
	GetNetwork() string
	GetMounts() []M
	GetReadOnly() bool
	GetTmpMib() int64
	GetShmMib() int64
}

// ContainerFromNode converts what an agent is told of a job's container.
func ContainerFromNode(m *nodev1.Container) cluster.Container { return containerFrom(m) }

// containerFrom converts a container; nil becomes the zero one.
func containerFrom[M mount](m container[M]) cluster.Container {
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

// warningFromAPI reads a warning; a signal without a time has the default.
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
	return &apiv1.Warning{Signal: w.Signal, Before: toDuration(w.Before), First: w.First}
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
	return &nodev1.Warning{Signal: w.Signal, Before: toDuration(w.Before), First: w.First}
}

func networksFrom(names []string) []cluster.Network {
	var out []cluster.Network
	for _, n := range names {
		out = append(out, cluster.Network(n))
	}
	return out
}

func networkNames(nets []cluster.Network) []string {
	var out []string
	for _, n := range nets {
		out = append(out, string(n))
	}
	return out
}

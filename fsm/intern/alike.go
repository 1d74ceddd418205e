package intern

import (
	"bytes"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
)

// alike reports whether two specs, already interned, are equal. Those with parts of
// their own, as arrays have, never count as equal: what matters is the many plain
// jobs of a user.
func alike(a, b *cluster.Spec) bool {
	return own(a) && own(b) && asks(a, b) && tells(a, b) && paths(a, b)
}

// own reports whether a spec has no parts that need a deep comparison.
func own(s *cluster.Spec) bool {
	return s.Bulk == nil && s.Where == nil && s.Array == nil && s.Study == nil && s.Service == nil && len(s.Depends) == 0 && len(s.Container.Mounts) == 0
}

// asks compares what jobs ask of nodes and GPUs.
func asks(a, b *cluster.Spec) bool {
	return a.GPUs == b.GPUs && a.Exclusive == b.Exclusive && a.GPUType == b.GPUType && a.Node == b.Node &&
		a.GPUMemMiB == b.GPUMemMiB && a.GPUMilli == b.GPUMilli && a.Duration == b.Duration && a.MemMiB == b.MemMiB && a.CPUMilli == b.CPUMilli && a.AllMem == b.AllMem &&
		a.TimeLimit == b.TimeLimit && a.Deadline == b.Deadline && a.DeadlineIn == b.DeadlineIn && a.Objective == b.Objective &&
		a.MaxPowerW == b.MaxPowerW && a.MaxCostMilli == b.MaxCostMilli && a.Partition == b.Partition && a.OrCPU == b.OrCPU &&
		a.Nodes == b.Nodes && a.Tasks == b.Tasks && a.Account == b.Account && a.QOS == b.QOS && a.Nice == b.Nice && a.Host == b.Host &&
		a.GPURange == b.GPURange && a.NodeRange == b.NodeRange && a.BatchScaling == b.BatchScaling && a.Power == b.Power && a.InPlace == b.InPlace && a.NoResize == b.NoResize
}

// tells compares when and how jobs run, and what is known of them.
func tells(a, b *cluster.Spec) bool {
	return a.RequeueOnLoss == b.RequeueOnLoss && a.Signature == b.Signature && bytes.Equal(a.Features, b.Features) && (a.Features == nil) == (b.Features == nil) &&
		a.Program == b.Program && a.Numbers == b.Numbers && a.Comment == b.Comment && a.Checkpoint == b.Checkpoint && a.Hold == b.Hold && a.Begin == b.Begin &&
		(a.Depends == nil) == (b.Depends == nil) && a.DependAny == b.DependAny && a.KillInvalidDepend == b.KillInvalidDepend && a.Warning == b.Warning &&
		a.Mail == b.Mail && a.IdleOK == b.IdleOK && a.Retry == b.Retry && a.Defer == b.Defer
}

// paths compares what jobs run, and where.
func paths(a, b *cluster.Spec) bool {
	c, d := &a.Container, &b.Container
	return a.Name == b.Name && a.Dir == b.Dir && a.Image == b.Image && a.Stdin == b.Stdin && a.Stdout == b.Stdout && a.Stderr == b.Stderr && a.Truncate == b.Truncate &&
		c.Network == d.Network && c.ReadOnly == d.ReadOnly && c.TmpMiB == d.TmpMiB && c.ShmMiB == d.ShmMiB && (c.Mounts == nil) == (d.Mounts == nil) &&
		same(a.Data, b.Data) && same(a.Command, b.Command) && same(a.Env, b.Env) &&
		bytes.Equal(a.Script, b.Script) && (a.Script == nil) == (b.Script == nil)
}

// same reports whether two lists are equal, at once if they share their memory.
func same(a, b []string) bool {
	if len(a) != len(b) || (a == nil) != (b == nil) {
		return false
	}
	return len(a) == 0 || &a[0] == &b[0] || slices.Equal(a, b)
}

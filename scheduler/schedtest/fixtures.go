// Package schedtest builds nodes, jobs and snapshots for tests of the scheduler,
// and a World that applies plans as the state machine does and advances virtual
// time.
package schedtest

import (
	"fmt"
	"time"

	"github.com/berth-scheduler/berth/cluster"
)

// Now is the instant at which worlds begin.
const Now = cluster.Time(1_700_000_000_000_000)

// sellable returns what the GPUs of a type sell.
func sellable(gpuType string) int64 {
	switch gpuType {
	case "A100-SXM4-80GB", "H100-SXM5-80GB":
		return 80000
	case "A100-SXM4-40GB":
		return 40000
	case "T4":
		return 15000
	}
	return 24000
}

// NodeOption changes a node under construction.
type NodeOption func(*cluster.Node)

// Node returns a ready node with count GPUs of a type: 64 cores, 512 GiB of host
// memory, three jobs per GPU. The GPUs are called <node>-<index>.
func Node(id cluster.NodeID, count int, gpuType string, opts ...NodeOption) *cluster.Node {
	n := &cluster.Node{ID: id, State: cluster.NodeReady, CPUMilli: 64_000, MemMiB: 512 << 10}
	for i := range count {
		n.GPUs = append(n.GPUs, cluster.GPU{
			ID: GPU(id, i), Index: i, Type: gpuType, MemMiB: sellable(gpuType) + 1000, SellableMiB: sellable(gpuType),
			MaxShares: 3, CapMode: "sim",
		})
	}
	for _, o := range opts {
		o(n)
	}
	return n
}

// GPU names the i-th GPU of a node made by Node.
func GPU(id cluster.NodeID, i int) cluster.GPUID { return cluster.GPUID(fmt.Sprintf("%s-%02d", id, i)) }

// Host sets the cores and the host memory of a node.
func Host(cpuMilli, memMiB int64) NodeOption {
	return func(n *cluster.Node) { n.CPUMilli, n.MemMiB = cpuMilli, memMiB }
}

// Drained takes a node out of service.
func Drained(n *cluster.Node) { n.Drain, n.DrainReason = true, "fan" }

// Switch sets a node's location in the network, as core:leaf3.
func Switch(path string) NodeOption {
	return func(n *cluster.Node) { n.Features = append(n.Features, cluster.SwitchFeature+path) }
}

// Has gives a node features, such as data=imagenet.
func Has(features ...string) NodeOption {
	return func(n *cluster.Node) { n.Features = append(n.Features, features...) }
}

// Silent makes a node unreachable.
func Silent(n *cluster.Node) { n.State = cluster.NodeUnreachable }

// CapMode sets how memory is capped on all GPUs of a node.
func CapMode(mode string) NodeOption {
	return func(n *cluster.Node) {
		for i := range n.GPUs {
			n.GPUs[i].CapMode = mode
		}
	}
}

// Scoped sets whose jobs may share the GPUs of a node.
func Scoped(s cluster.Scope) NodeOption {
	return func(n *cluster.Node) {
		for i := range n.GPUs {
			n.GPUs[i].Scope = s
		}
	}
}

// JobOption changes a job under construction.
type JobOption func(*cluster.Job)

// Job returns a pending job for one GPU without a prediction, with one core and 1
// GiB of host memory, waiting since Now.
func Job(id cluster.JobID, opts ...JobOption) *cluster.Job {
	j := &cluster.Job{
		ID: id, State: cluster.JobPending, Submitted: Now, Eligible: Now,
		Spec: &cluster.Spec{Name: "job", Command: []string{"true"}, GPUs: 1, CPUMilli: 1000, MemMiB: 1024},
	}
	for _, o := range opts {
		o(j)
	}
	return j
}

// GPUs asks for n GPUs.
func GPUs(n int) JobOption { return func(j *cluster.Job) { j.Spec.GPUs = n } }

// Nodes asks for n nodes with the same on each.
func Nodes(n int) JobOption { return func(j *cluster.Job) { j.Spec.Nodes = n } }

// Reads names the image and the data sets that a job reads.
func Reads(image string, data ...string) JobOption {
	return func(j *cluster.Job) { j.Spec.Image, j.Spec.Data = image, data }
}

// Mem declares the memory on each GPU.
func Mem(mib int64) JobOption { return func(j *cluster.Job) { j.Spec.GPUMemMiB = mib } }

// Util declares the compute on each GPU.
func Util(milli int64) JobOption { return func(j *cluster.Job) { j.Spec.GPUMilli = milli } }

// Of sets the job's owner.
func Of(uid cluster.UID, gid uint32) JobOption {
	return func(j *cluster.Job) { j.Owner.UID, j.Owner.GID = uid, gid }
}

// Lasts declares the duration.
func Lasts(d time.Duration) JobOption { return func(j *cluster.Job) { j.Spec.Duration = d } }

// Limit sets the time limit.
func Limit(d time.Duration) JobOption { return func(j *cluster.Job) { j.Spec.TimeLimit = d } }

// Exclusive asks for whole GPUs.
func Exclusive(j *cluster.Job) { j.Spec.Exclusive = true }

// Type asks for one type.
func Type(t string) JobOption { return func(j *cluster.Job) { j.Spec.GPUType = t } }

// On asks for one node.
func On(n cluster.NodeID) JobOption { return func(j *cluster.Job) { j.Spec.Node = n } }

// Cores asks for cores.
func Cores(milli int64) JobOption { return func(j *cluster.Job) { j.Spec.CPUMilli = milli } }

// HostMem asks for host memory.
func HostMem(mib int64) JobOption { return func(j *cluster.Job) { j.Spec.MemMiB = mib } }

// Signed gives the job a signature.
func Signed(sig string) JobOption { return func(j *cluster.Job) { j.Spec.Signature = sig } }

// Waited makes the job have waited for so long.
func Waited(d time.Duration) JobOption {
	return func(j *cluster.Job) { j.Eligible, j.Submitted = Now.Add(-d), Now.Add(-d) }
}

// Predict adds a confident prediction for a type. Types must be added in
// order.
func Predict(gpuType string, memMiB, milli int64, d time.Duration) JobOption {
	return func(j *cluster.Job) {
		j.Estimates = append(j.Estimates, cluster.Estimate{
			GPUType: gpuType, GPUMemMiB: memMiB, GPUMemP95MiB: memMiB, Milli: milli, Duration: d, ConfidenceMilli: 900, Source: "history",
		})
	}
}

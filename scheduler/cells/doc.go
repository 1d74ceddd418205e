// Package cells guarantees tenants parts of a cluster in the shape in which jobs
// need them: so many aligned groups of 1, 2, 4, 8 … GPUs of one node, or nodes of a
// rack, rather than a number of scattered GPUs. Others borrow what a tenant leaves
// idle, and give it back on demand.
//
// Source: Zhao et al., "HiveD: Sharing a GPU Cluster for Deep Learning with
// Guarantees", OSDI 2020: cells, buddy allocation, opportunistic jobs. Unlike
// there, nothing is kept between decisions: which cells of the cluster stand for
// whose guarantee is computed from where jobs run. See DESIGN.md.
//
// The package is pure: no clock, no randomness, no state. A Binding is not safe for
// concurrent use.
package cells

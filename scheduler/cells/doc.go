// Package cells guarantees tenants parts of a cluster in the shape in which
// jobs need them: so many aligned groups of 1, 2, 4, 8 … GPUs of one node, or nodes of a rack,
// instead of a number of GPUs that may lie scattered. What a tenant leaves
// idle others borrow, and give back when it is asked for.
//
// Source: Zhao et al., "HiveD: Sharing a GPU Cluster for Deep Learning with
// Guarantees", OSDI 2020: cells, buddy allocation, opportunistic jobs. Other
// than there nothing is kept between decisions: which cells of the cluster
// stand for whose guarantee is worked out from where jobs lie. See DESIGN.md.
//
// The package is pure: no clock, no chance, no state. A Binding is not safe
// for concurrent use.
package cells

// Package experiment reproduces the evaluations of published papers on the
// simulator: each experiment is a workload, a cluster, the compared policies, and
// what was claimed of them. What a paper does not state is assumed, and every
// report says what.
package experiment

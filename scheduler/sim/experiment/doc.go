// Package experiment rebuilds the evaluations of published papers on the
// simulator: each experiment is a workload, a cluster, the policies that were
// compared, and what was claimed of them. What a paper does not state is
// assumed, and every report says what.
package experiment

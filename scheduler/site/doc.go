// Package site plans a site: it applies the passes of package scheduler and of its
// policies to partitions, quotas, reservations and tenants, and says what the fast
// path may start between two passes. The coordinator and the simulator run the same
// functions. They read only their arguments: no clock, no randomness, no state of
// their own, no I/O.
package site

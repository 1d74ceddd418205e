// Package site plans a site: it lays the passes of package scheduler and of its
// policies over partitions, quotas, reservations and tenants, and says what the
// fast path may start between two passes. The coordinator and the simulator run
// the same functions. They read nothing but their arguments: no clock, no chance,
// no state of their own, no I/O.
package site

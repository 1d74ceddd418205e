// Package terms is the cluster in Slurm's terms: its jobs, tasks of arrays,
// nodes, partitions and reservations as Slurm's commands see them, read from
// a coordinator.
package terms

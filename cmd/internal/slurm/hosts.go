package slurm

import "github.com/berth-scheduler/berth/cluster"

// Unfold reads a host list in the form of partitions; "" and ALL give no names.
func Unfold(list string) ([]string, error) {
	if list == "" {
		return nil, nil
	}
	h, err := cluster.ParseHostList(list)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(h.Names()))
	for i, n := range h.Names() {
		names[i] = string(n)
	}
	return names, nil
}

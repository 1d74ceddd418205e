// Package slurmconf reads the configuration of a Slurm site (slurm.conf,
// gres.conf, topology.conf, and what sacctmgr writes) and says what Berth makes
// of it: commands that set up the same, settings for agents, and for every key
// whether it was taken, and if not why. It changes nothing, and opens files
// only through the function that it is given.
package slurmconf

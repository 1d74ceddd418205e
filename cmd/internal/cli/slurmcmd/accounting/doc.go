// Package accounting has the commands of Slurm's about accounts and what they used:
// sacct, seff, sshare and sacctmgr.
package accounting

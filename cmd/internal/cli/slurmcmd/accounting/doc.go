// Package accounting implements Slurm's commands on accounts and usage:
// sacct, seff, sshare and sacctmgr.
package accounting

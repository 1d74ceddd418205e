// Package openapi defines what --json of Slurm 22.05 prints: jobs and nodes
// as its plugin of the same name writes them, and jobs as the accounting
// plugin does.
package openapi

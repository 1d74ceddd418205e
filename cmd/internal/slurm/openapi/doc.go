// Package openapi is what --json of Slurm 22.05 prints: jobs and nodes as its plugin of
// the same name writes them, and jobs as that of the accounting does.
package openapi

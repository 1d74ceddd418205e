// Package jobcmd implements the everyday commands: submit, queue, show, why,
// cancel, hold, release, requeue and wait.
package jobcmd

// Package jobcmd has the commands of every day: submit, queue, show, why, cancel,
// hold, release, requeue and wait.
package jobcmd

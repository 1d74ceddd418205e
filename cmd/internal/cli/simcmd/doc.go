// Package simcmd implements the commands of the simulator: sim run, compare,
// sweep, capture and experiment.
package simcmd

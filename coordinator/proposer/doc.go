// Package proposer is the one way from a coordinator to the log: callers submit
// commands, it collects them into entries (group commit), stamps job ids in log
// order, and returns the state machine's answers to each caller. It does not know
// what commands mean.
package proposer

// Package proposer is the one way from a coordinator to the log: callers hand
// in commands, it gathers them into entries (group commit), stamps job ids in
// log order, and hands each caller the state machine's answers. It knows
// nothing of what commands mean.
package proposer

// Package journal is an agent's memory on disk: which attempts it took on, how far each has
// come, and how each ended until the leader has committed that. Nothing is begun before it is
// recorded there.
package journal

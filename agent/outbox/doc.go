// Package outbox holds what an agent has to report about its attempts until the leader has
// committed it, over any number of sessions.
package outbox

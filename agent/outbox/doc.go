// Package outbox holds what an agent has to say of its attempts until the
// leader has it for good, over any number of sessions.
package outbox

// Package learner predicts for the leader what jobs need, and learns from
// measurements: weights of the predictor, which must beat those in use before they
// are published, and how jobs that share a GPU slow each other down. All it knows
// of past runs is the samples in the state machine, so a new leader knows the same.
// It plans nothing.
package learner

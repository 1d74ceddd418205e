// Package client asks one coordinator after another until one gives a
// definite answer, and follows streams across the death of a leader.
package client

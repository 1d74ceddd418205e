// Package client asks the coordinators, one after the other, until one gives a
// definite answer, and follows streams over a leader's death.
package client

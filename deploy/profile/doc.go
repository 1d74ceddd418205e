// Package profile holds no program of Go's: a profiler in Python, with tests
// that run it on the CPU where PyTorch is.
package profile

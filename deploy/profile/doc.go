// Package profile contains no Go program: a profiler in Python, with tests that run it on the
// CPU where PyTorch is installed.
package profile

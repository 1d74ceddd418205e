// Package nvmlproc is the gpu.Provider of NVIDIA cards that survives their
// driver: NVML is loaded by a child process, which is given up when a call
// does not come back. See DESIGN.md.
package nvmlproc

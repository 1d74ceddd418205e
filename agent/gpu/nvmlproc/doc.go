// Package nvmlproc is the gpu.Provider of NVIDIA GPUs that survives their driver: a child
// process loads NVML, and is abandoned when a call does not return. See DESIGN.md.
package nvmlproc

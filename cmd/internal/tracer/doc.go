// Package tracer runs a user's PyTorch program in the user's own Python until
// its first training step is over, on the CPU, and reads what the model needs.
//
// It runs what users wrote, so it is for commands that users start, never for
// a daemon. The program gets no GPU, a bound on memory and time, and a process
// group of its own, which is killed whole at the end, however it ends.
package tracer

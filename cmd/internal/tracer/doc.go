// Package tracer runs a user's PyTorch program in the user's own Python until
// its first training step is done, on the CPU, and reads what the model needs.
//
// It runs what users wrote, so it is for commands that users start, never for
// a daemon. The program gets no GPU, a limit on memory and time, and its own
// process group, which is always killed as a whole at the end.
package tracer

// Package cli is what users and administrators type: it puts the commands of the
// packages below it together and runs one. Each command is a constructor, a
// struct of options and a run function that knows nothing of cobra; all that it
// reads and writes comes from console.Env, so that tests run without a
// terminal, a server or a clock. Results go to standard output, everything else
// to standard error; exit codes are set in one place, console/exit.go.
package cli

// Package cli is what users and administrators type: it combines the commands
// of the packages below it and runs one. Each command is a constructor, a
// struct of options and a run function that is independent of cobra; all its
// input and output goes through console.Env, so that tests run without a
// terminal, a server or a clock. Results go to standard output, everything
// else to standard error; exit codes are set in one place, console/exit.go.
package cli

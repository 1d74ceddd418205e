// Package cli is what users and administrators type. Each command is a
// constructor, a struct of options and a run function that knows nothing of
// cobra; all that it reads and writes comes from Env, so that tests run without
// a terminal, a server or a clock. Results go to standard output, everything
// else to standard error; exit codes are set in one place, exit.go.
package cli

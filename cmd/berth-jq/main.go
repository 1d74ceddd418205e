// Command berth-jq filters JSON on standard input by a jq expression, for
// --jq of the other programs. It is a separate program so that no other
// command has to load its dependencies.
package main

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/berth-scheduler/berth/cmd/internal/cli/jq"
)

// maxData is how much memory an expression may take, in bytes.
const maxData = 4 << 30

func main() {
	_ = unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: maxData, Max: maxData}) // a lower limit already applies
	os.Exit(jq.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.NewFile(3, "ready")))
}

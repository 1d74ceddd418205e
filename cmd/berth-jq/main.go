// Command berth-jq filters JSON on standard input by an expression of jq, for --jq of the
// other programs. It is a program of its own so that no command waits for what it is made of.
package main

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/berth-scheduler/berth/cmd/internal/cli/jq"
)

// maxData is how much memory an expression may take, in bytes.
const maxData = 4 << 30

func main() {
	_ = unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: maxData, Max: maxData}) // a lower one holds already
	os.Exit(jq.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.NewFile(3, "ready")))
}

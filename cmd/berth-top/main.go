// Command berth-top is the live screen of berth top. It is a separate program
// so that no other command has to load its drawing library; berth starts it.
package main

import (
	"os"

	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/frame"
	"github.com/berth-scheduler/berth/cmd/internal/top"
)

func main() {
	os.Exit(frame.Main(os.Args[1:], console.SystemEnv(), top.Program().CalledAs(os.Args[0])))
}

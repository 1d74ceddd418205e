// Command berth-sbatch is sbatch for ordinary batch scripts: it links little,
// so it starts in a third of berth's time. For everything else it becomes
// berth sbatch.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/berth-scheduler/berth/cmd/internal/programs"
	"github.com/berth-scheduler/berth/cmd/internal/quick"
)

func main() {
	if code, done := quick.Sbatch(os.Args[1:], quick.System()); done {
		os.Exit(code)
	}
	args := os.Args[1:]
	if filepath.Base(os.Args[0]) != "sbatch" {
		args = append([]string{"sbatch"}, args...)
	}
	fmt.Fprintln(os.Stderr, "sbatch: error:", programs.Become(programs.Users, args))
	os.Exit(1)
}

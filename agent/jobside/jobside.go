// Package jobside is what our own binary does in and beside a job's container. A
// program that links it is that binary: with the arguments below it never gets
// to its main.
package jobside

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/berth-scheduler/berth/agent/launch"
)

// First arguments that make a process a helper. The next one is a file with a
// Spec; what follows EnterArg's is a command.
const (
	LoggerArg = "container-logger"
	EnterArg  = "container-enter"
)

// Where a helper within a container is told to find things.
const (
	Dir    = "/.berth"
	Binary = Dir + "/exec"
	File   = Dir + "/job"
	// In an image are our own libraries and their loader, since it has others or
	// none, and the commands that its jobs find.
	Libraries = Dir + "/lib"
	Loader    = Libraries + "/ld.so"
	Commands  = Dir + "/bin"
)

// Self is how this program starts itself anew. In an image it runs by its loader,
// which is then what the kernel takes for the program.
func Self() []string {
	if exe, err := os.Readlink("/proc/self/exe"); err == nil && exe == Loader {
		return []string{Loader, "--library-path", Libraries, Binary}
	}
	return []string{"/proc/self/exe"}
}

// Spec tells the helper what to do for one container. Its launch carries no
// environment, which may hold secrets, but for variables that are no text.
type Spec struct {
	// Exec makes it the first process of a host job, which becomes the job.
	// Otherwise it is the logger of an image job, on the node.
	Exec bool
	// DropHome removes the HOME that runc adds where the launch has none.
	DropHome bool
	// MaxBytes caps what a logger adds to each file; 0 is no cap.
	MaxBytes int64
	Launch   *launch.Launch
}

func read(file string) (*Spec, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	s := new(Spec)
	if err := json.Unmarshal(data, s); err != nil || s.Launch == nil {
		return nil, fmt.Errorf("helper's spec %s is damaged: %w", file, err)
	}
	return s, nil
}

// init is main for helpers. The packages of the whole program take longer to
// initialize, 6 ms and 20 MB, than a helper does its work, and each job waits
// for one. Go initializes packages in the order of their import paths as soon as
// what they import is (Go specification, "Program initialization"): this one
// imports little and comes before nearly all others.
func init() {
	if code, ok := run(os.Args); ok {
		os.Exit(code)
	}
}

// run does what a helper is for; ok is false where args make none.
func run(args []string) (code int, ok bool) {
	if len(args) < 3 {
		return 0, false
	}
	var err error
	switch {
	case args[1] == LoggerArg && len(args) == 3:
		err = logger(args[2])
	case args[1] == EnterArg:
		err = enter(args[2], args[3:])
	default:
		return 0, false
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "berth: %v\n", err)
		return 1, true
	}
	return 0, true
}

// Package jobside implements what our own program, berth-job, does in and next to a job's
// container: it becomes the job, enters it, copies its output, and probes devices.
package jobside

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/berth-scheduler/berth/agent/launch"
)

// First arguments that make a process a helper. The next one is a file with a Spec; EnterArg's
// is followed by a command.
const (
	LoggerArg = "container-logger"
	EnterArg  = "container-enter"
)

// Where a helper in a container finds things.
const (
	Dir    = "/.berth"
	Binary = Dir + "/exec" // berth-job
	File   = Dir + "/job"
	// Program is berth in an image whose jobs have our commands.
	Program = Dir + "/berth"
	// Libraries is where an image has our own libraries and their loader, if our programs need
	// any, since it may have others or none. Next to it are the commands that its jobs find.
	Libraries = Dir + "/lib"
	Loader    = Libraries + "/ld.so"
	Commands  = Dir + "/bin"
)

// Spec tells the helper what to do for one container. Its launch carries no environment, which
// may contain secrets, except variables that are not text.
type Spec struct {
	// Exec makes it the first process of a host job, which becomes the job. Otherwise it is the
	// logger of an image job, on the node.
	Exec bool
	// DropHome removes the HOME that runc adds where the launch has none.
	DropHome bool
	// MaxBytes caps what a logger adds to each file; 0 means no cap.
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

// Main runs the helper; known reports whether argv, including the program's name, makes it one.
func Main(args []string) (code int, known bool) {
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

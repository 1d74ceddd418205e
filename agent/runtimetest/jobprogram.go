package runtimetest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// jobProgramEnv tells processes that a test starts where berth-job is.
const jobProgramEnv = "BERTH_TEST_JOB_PROGRAM"

// WithJobProgram builds berth-job, as make build does, for the tests of run, and returns run's
// exit code. A process started by a test has it already.
func WithJobProgram(run func() int) int {
	if JobProgram() != "" {
		return run()
	}
	dir, err := os.MkdirTemp("", "berth-job-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = buildJobProgram(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "build berth-job:", err)
		return 1
	}
	return run()
}

func buildJobProgram(dir string) error {
	path := filepath.Join(dir, "berth-job")
	build := exec.Command("go", "build", "-o", path, "github.com/berth-scheduler/berth/cmd/berth-job")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return err
	}
	if err := os.Chmod(dir, 0o755); err != nil { // jobs of other users run it
		return err
	}
	return os.Setenv(jobProgramEnv, path)
}

// JobProgram returns the path of berth-job within WithJobProgram.
func JobProgram() string { return os.Getenv(jobProgramEnv) }

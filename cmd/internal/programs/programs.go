// Package programs knows Berth's programs, which are installed in one folder,
// and finds one from another.
package programs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// The programs, by file name.
const (
	Users  = "berth"     // for users and administrators; Slurm's look-alikes
	Daemon = "berthd"    // coordinator and agent, and commands that need their files
	Job    = "berth-job" // runs next to jobs
	Lab    = "berth-lab" // development cluster, simulator, evaluation
	Top    = "berth-top" // the live screen
	JQ     = "berth-jq"  // filters JSON for --jq
)

// Path returns where a program is: in the folder of the running one, with
// links resolved.
func Path(name string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find %s beside this program: %w", name, err)
	}
	return beside(self, name)
}

// beside is Path for the program self.
func beside(self, name string) (string, error) {
	if real, err := filepath.EvalSymlinks(self); err == nil {
		self = real
	}
	path := filepath.Join(filepath.Dir(self), name)
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("the program %s is missing: it belongs into %s, beside %s; install it there (make install does)", name, filepath.Dir(self), filepath.Base(self))
	case err != nil:
		return "", fmt.Errorf("the program %s: %w", name, err)
	case !st.Mode().IsRegular() || st.Mode()&0o111 == 0:
		return "", fmt.Errorf("%s is no program that can be run", path)
	}
	return path, nil
}

// Become replaces this process with a program, with the arguments after its
// name. It returns only on failure.
func Become(name string, args []string) error {
	path, err := Path(name)
	if err != nil {
		return err
	}
	err = syscall.Exec(path, append([]string{os.Args[0]}, args...), os.Environ())
	return fmt.Errorf("run %s: %w", path, err)
}

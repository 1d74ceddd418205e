// Package programs knows the programs that Berth is made of, which are installed
// into one folder, and finds one from another.
package programs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// The programs, as the folder calls them.
const (
	Users  = "berth"        // for users and administrators; Slurm's look-alikes
	Daemon = "berthd"       // coordinator and agent, and what needs their files
	Job    = "berth-job"    // beside jobs
	Lab    = "berth-lab"    // development cluster, simulator, evaluation
	Top    = "berth-top"    // the live screen
	JQ     = "berth-jq"     // what --jq makes of JSON
	Sbatch = "berth-sbatch" // sbatch that starts sooner
)

// Path returns where a program is: in the folder of the running one, whatever
// links led there.
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

// Become replaces this process by a program, with the arguments after its name.
// It returns only if it cannot.
func Become(name string, args []string) error {
	path, err := Path(name)
	if err != nil {
		return err
	}
	err = syscall.Exec(path, append([]string{os.Args[0]}, args...), os.Environ())
	return fmt.Errorf("run %s: %w", path, err)
}

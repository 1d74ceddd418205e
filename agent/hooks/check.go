package hooks

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Check reports whether a program may run as root before and after every job: an absolute path
// without links to a regular executable file, which only root can change or replace. Without
// root it must be the caller's.
func Check(program string) error {
	if !filepath.IsAbs(program) || filepath.Clean(program) != program || program == "/" {
		return fmt.Errorf("hook %q: want an absolute path without '..', '.' or double slashes", program)
	}
	for p := program; ; p = filepath.Dir(p) {
		st, err := os.Lstat(p)
		if err != nil {
			return fmt.Errorf("hook %s: %w", program, err)
		}
		if err := trusted(p, st, p == program); err != nil {
			return fmt.Errorf("hook %s: %w", program, err)
		}
		if p == "/" {
			return nil
		}
	}
}

// trusted judges the program itself, or a directory on the way to it.
func trusted(p string, st fs.FileInfo, program bool) error {
	mode := st.Mode()
	switch {
	case mode&fs.ModeSymlink != 0:
		return fmt.Errorf("%s is a symbolic link; name what it leads to", p)
	case program && !mode.IsRegular():
		return fmt.Errorf("%s is not a plain file", p)
	case program && mode.Perm()&0o111 == 0:
		return fmt.Errorf("%s is not executable; run: chmod 755 %s", p, p)
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("%s has no owner that could be read", p)
	}
	if sys.Uid != 0 && int(sys.Uid) != os.Geteuid() {
		return fmt.Errorf("%s belongs to uid %d, who could have root run anything; run: chown root %s", p, sys.Uid, p)
	}
	// In a sticky directory, users cannot replace what belongs to others.
	if mode.Perm()&0o022 != 0 && (program || mode&fs.ModeSticky == 0) {
		return fmt.Errorf("%s may be written by others (mode %04o), who could have root run anything; run: chmod go-w %s", p, mode.Perm(), p)
	}
	return nil
}

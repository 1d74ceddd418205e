package cdi

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// mpsPipe is where an MPS daemon listens by default: below /tmp, where any user can put
// something else in its place. The agent decides which jobs reach which MPS daemon, so a
// specification's mount of it is left out.
const mpsPipe = "/tmp/nvidia-mps"

// sound checks that root alone decides what a path of this node leads to: it is followed as
// root, into a container or as a hook. Each directory on the way and the target must be root's
// and not writable by others; a sticky directory such as /tmp protects what root has put there.
func sound(p string) error {
	resolved, err := filepath.EvalSymlinks(p)
	if err != nil {
		return err
	}
	for _, way := range []string{filepath.Dir(p), resolved} { // whoever can write a link's directory can change it
		for at := way; ; at = filepath.Dir(at) {
			info, err := os.Stat(at)
			if err != nil {
				return err
			}
			st, ok := info.Sys().(*syscall.Stat_t)
			if !ok || st.Uid != 0 || st.Mode&0o002 != 0 && st.Mode&syscall.S_ISVTX == 0 {
				return fmt.Errorf("%s can be changed by others than root", at)
			}
			if at == "/" {
				break
			}
		}
	}
	return nil
}

// soundSocket is sound for the paths of the driver's daemons, which may run as their own users:
// nothing there may be a link, and only they may write.
func soundSocket(p string) error {
	p = strings.TrimPrefix(p, "/var")
	resolved, err := filepath.EvalSymlinks(p)
	if err != nil {
		return err
	}
	if resolved != p {
		return fmt.Errorf("%s is a link to %s", p, resolved)
	}
	info, err := os.Stat(filepath.Dir(p))
	if err == nil && info.Mode().Perm()&0o002 != 0 {
		err = fmt.Errorf("%s can be written to by everybody", filepath.Dir(p))
	}
	return err
}

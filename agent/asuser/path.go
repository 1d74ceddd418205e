package asuser

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// OpenPath opens a file or directory by an absolute path only as a reference (O_PATH), and
// follows no link, neither at its end nor on the way: each component is opened relative to the
// previous one. openat2's RESOLVE_NO_SYMLINKS does the same in one call, but only since Linux
// 5.6. Call it inside Do.
func OpenPath(name string) (*os.File, error) {
	if !path.IsAbs(name) {
		return nil, fmt.Errorf("%s is not an absolute path", name)
	}
	const flags = unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Open("/", flags|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: "/", Err: err}
	}
	at := "/"
	for part := range strings.SplitSeq(strings.Trim(path.Clean(name), "/"), "/") {
		if part == "" {
			break // the root itself
		}
		at = path.Join(at, part)
		next, err := unix.Openat(fd, part, flags, 0)
		if err == nil {
			err = notLink(next)
			if err != nil {
				err = errors.Join(err, unix.Close(next))
			}
		}
		if cerr := unix.Close(fd); err != nil || cerr != nil {
			return nil, &os.PathError{Op: "open", Path: at, Err: errors.Join(err, cerr)}
		}
		fd = next
	}
	return os.NewFile(uintptr(fd), path.Clean(name)), nil
}

// ErrLink says that a path contains a symbolic link.
var ErrLink = errors.New("is a symbolic link, which is not followed; name the path that it leads to")

func notLink(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		return ErrLink
	}
	return nil
}

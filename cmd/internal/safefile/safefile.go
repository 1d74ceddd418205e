// Package safefile reads and replaces the small files that a daemon depends
// on: configuration, certificates, keys. A path given by mistake (a
// directory, a FIFO, /dev/zero, a key that others can read) gives an error
// that says how to fix it, and never a hang or a huge allocation.
package safefile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Errors that callers branch on. Missing files and denied ones match
// fs.ErrNotExist and fs.ErrPermission.
var (
	ErrNotRegular = errors.New("not a regular file")
	ErrTooLarge   = errors.New("file too large")
	ErrExposed    = errors.New("secret readable by others")
)

// Read returns the content of the regular file at path, at most limit bytes.
// It does not wait for a writer when path is a FIFO.
func Read(path string, limit int64) ([]byte, error) {
	f, _, err := open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readAll(f, path, limit)
}

// ReadSecret is Read for keys: the file must belong to the calling user or to
// root and be closed to group and others, else the error matches ErrExposed.
func ReadSecret(path string, limit int64) ([]byte, error) {
	f, info, err := open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return nil, fmt.Errorf("%s has mode %04o: %w; run: chmod 600 %s, and replace the key if others may have read it",
			path, mode, ErrExposed, path)
	}
	// A file's owner can change its mode at will, so a key owned by another
	// user is as good as readable by that user.
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return nil, fmt.Errorf("%s belongs to uid %d: %w; run: chown %d %s",
			path, st.Uid, ErrExposed, os.Geteuid(), path)
	}
	return readAll(f, path, limit)
}

func open(path string) (*os.File, fs.FileInfo, error) {
	// O_NONBLOCK: opening a FIFO without a writer would block forever.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err // *fs.PathError already names the path and the operation
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is a %s, %w; name a plain file", path, kind(info.Mode()), ErrNotRegular)
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, info, nil
}

func readAll(f *os.File, path string, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("%s has more than %d bytes: %w", path, limit, ErrTooLarge)
	}
	return data, nil
}

func kind(m fs.FileMode) string {
	switch {
	case m.IsDir():
		return "directory"
	case m&fs.ModeNamedPipe != 0:
		return "FIFO"
	case m&fs.ModeSocket != 0:
		return "socket"
	case m&fs.ModeDevice != 0:
		return "device"
	default:
		return "special file"
	}
}

// Replace writes data to path with the given mode so that a crash leaves
// either the old content or the new, never a part: it writes a temporary
// file, syncs, renames, and syncs the folder.
func Replace(path string, data []byte, mode fs.FileMode) (err error) {
	dir := filepath.Dir(path)
	tmp, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(tmp.Name()) // best effort: the first error is what counts
		}
	}()
	_, err = tmp.Write(data)
	err = errors.Join(err, tmp.Chmod(mode), tmp.Sync(), tmp.Close())
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return err
	}
	return syncDir(dir)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return nil
}

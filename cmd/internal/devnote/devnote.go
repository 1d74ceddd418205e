// Package devnote lets the command line find the cluster that `berth dev`
// runs in another terminal: a file that names its sockets, in a folder of the
// user's own below the machine's directory for temporary files.
//
// Whoever answers on a socket learns what is submitted there. So a note
// counts only if its folder belongs to the user that reads it, or to root,
// and nobody else can write to it.
package devnote

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/berth-scheduler/berth/cmd/internal/safefile"
)

// maxNote bounds a note in bytes: the sockets of seven coordinators.
const maxNote = 1024

// Place is where notes are kept: Dir is the directory for temporary files and
// UID the user.
type Place struct {
	Dir string
	UID int
}

// Here returns the place of this process.
func Here() Place { return Place{Dir: os.TempDir(), UID: os.Geteuid()} }

func (p Place) folder(uid int) string {
	return filepath.Join(p.Dir, fmt.Sprintf("berth-dev-of-%d", uid))
}

// Leave names the sockets, a comma-separated list as in BERTH_SOCKET, to the
// user's other terminals, and to everyone's if the user is root. The newest
// note counts. The returned function removes it unless a later one has
// replaced it.
func (p Place) Leave(sockets string) (takeBack func() error, err error) {
	dir := p.folder(p.UID)
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	if err := owned(dir, p.UID); err != nil {
		return nil, err
	}
	file, note := filepath.Join(dir, "sockets"), []byte(sockets+"\n")
	if err := safefile.Replace(file, note, 0o644); err != nil {
		return nil, err
	}
	return func() error {
		if now, err := safefile.Read(file, maxNote); err != nil || !bytes.Equal(now, note) {
			return nil
		}
		return errors.Join(os.Remove(file), os.Remove(dir))
	}, nil
}

// Find returns the sockets of the newest cluster of the user's, else of root's; none
// if no note can be read and trusted.
func (p Place) Find() []string {
	for _, uid := range []int{p.UID, 0} {
		if owned(p.folder(uid), uid) != nil {
			continue
		}
		if note, err := safefile.Read(filepath.Join(p.folder(uid), "sockets"), maxNote); err == nil {
			return strings.Split(strings.TrimSpace(string(note)), ",")
		}
	}
	return nil
}

// owned returns an error unless dir is a folder of the user's to which no one else can write.
func owned(dir string, uid int) error {
	fi, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok || !fi.IsDir() || int(st.Uid) != uid || fi.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s is not a folder of user %d's alone; remove it", dir, uid)
	}
	return nil
}

// DefaultSocket is where a coordinator or the agent of a node listens for the
// users of its machine.
const DefaultSocket = "/run/berth/berth.sock"

// Running returns the sockets of a cluster that `berth dev` runs here for the user; none
// if there is none, or a machine's daemon listens.
func Running() []string {
	if _, err := os.Lstat(DefaultSocket); err == nil {
		return nil
	}
	return Here().Find()
}

// Sockets lists where to look for coordinators, in order: as said, the value
// of BERTH_SOCKET, else as running has it, else where a machine's daemon
// listens.
func Sockets(said string, running func() []string) []string {
	var out []string
	for s := range strings.SplitSeq(said, ",") {
		if s = strings.TrimPrefix(strings.TrimSpace(s), "unix://"); s != "" {
			out = append(out, s)
		}
	}
	if len(out) == 0 && running != nil {
		out = running()
	}
	if len(out) == 0 {
		out = []string{DefaultSocket}
	}
	return out
}

package batch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-scheduler/berth/cluster"
)

// OutputFolders makes the missing folders of a job's output if they are
// directly below a folder of the user's own, and returns messages: a job that
// cannot open its output fails before it begins. It also says which folders the
// user may not write to. Folders with patterns in their names are skipped. uid is
// the user's number; sbatch prints nothing about a folder that was made. A file
// system that does not answer is not waited for: the job's own node may reach it.
func OutputFolders(spec *cluster.Spec, uid string, sbatch bool) []string {
	return unlessSilent(spec.Stdout, func() []string { return outputFolders(spec, uid, sbatch, unix.Access) })
}

// answerWithin is how long a file system may take.
const answerWithin = 5 * time.Second

func unlessSilent(file string, look func() []string) []string {
	done := make(chan []string, 1)
	go func() { done <- look() }() // ends with the program, if it never does
	select {
	case said := <-done:
		return said
	case <-time.After(answerWithin):
		return []string{fmt.Sprintf("warning: the folder of the job's output %s is on a file system that does not answer here", file)}
	}
}

func outputFolders(spec *cluster.Spec, uid string, sbatch bool, access func(string, uint32) error) (said []string) {
	seen := ""
	for i, file := range []string{spec.Stdout, spec.Stderr} {
		if i > 0 && file == "" {
			continue // it goes where the output goes
		}
		dir := filepath.Dir(file) // of a name alone that of the job, as for no name
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(spec.Dir, dir)
		}
		if dir == seen || strings.Contains(dir, "%") {
			continue
		}
		seen = dir
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			if unwritable(dir, file, access) {
				said = append(said, fmt.Sprintf("warning: you may not write to the folder %s, where the job's output goes, and the job fails on a node where that is so, too: submit elsewhere, or name a file with --output", dir))
			}
			continue
		}
		if !strings.Contains(file, "/") {
			continue // it exists where the job runs
		}
		if ownedBy(filepath.Dir(dir), uid) && os.Mkdir(dir, 0o777) == nil { // #nosec G301 -- as mkdir does: the umask is the user's own to choose
			if !sbatch {
				said = append(said, fmt.Sprintf("made the folder %s for the job's output", dir))
			}
			continue
		}
		said = append(said, fmt.Sprintf("warning: the folder %s, for the job's output, is not there; the job fails on a node that does not have it either: make it, or name another file with --output", dir))
	}
	return said
}

// unwritable reports whether one may neither write to a file nor make it in its
// folder.
func unwritable(dir, file string, access func(string, uint32) error) bool {
	err := access(dir, unix.W_OK)
	if !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.EROFS) {
		return false
	}
	return file == "" || access(filepath.Join(dir, filepath.Base(file)), unix.W_OK) != nil
}

// ownedBy reports whether a folder belongs to the user with number uid.
func ownedBy(dir, uid string) bool {
	info, err := os.Stat(dir)
	if err != nil || !info.IsDir() {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && strconv.FormatUint(uint64(st.Uid), 10) == uid
}

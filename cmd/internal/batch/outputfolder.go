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

	"github.com/berth-scheduler/berth/cluster"
)

// OutputFolders makes the missing folders of a job's output if they are
// directly below a folder of the user's own, and returns messages: a job that
// cannot open its output fails before it begins. Folders with patterns in
// their names are skipped. uid is the user's number; sbatch prints nothing
// about a folder that was made. A file system that does not answer is not
// waited for: the job's own node may reach it.
func OutputFolders(spec *cluster.Spec, uid string, sbatch bool) []string {
	return unlessSilent(spec.Stdout, func() []string { return outputFolders(spec, uid, sbatch) })
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

func outputFolders(spec *cluster.Spec, uid string, sbatch bool) (said []string) {
	seen := ""
	for _, file := range []string{spec.Stdout, spec.Stderr} {
		if !strings.Contains(file, "/") {
			continue // it exists where the job runs
		}
		dir := filepath.Dir(file)
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(spec.Dir, dir)
		}
		if dir == seen || strings.Contains(dir, "%") {
			continue
		}
		seen = dir
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			continue
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

// ownedBy reports whether a folder belongs to the user with number uid.
func ownedBy(dir, uid string) bool {
	info, err := os.Stat(dir)
	if err != nil || !info.IsDir() {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && strconv.FormatUint(uint64(st.Uid), 10) == uid
}

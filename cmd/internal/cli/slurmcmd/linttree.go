package slurmcmd

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/sbatch"
)

// tree is what was found below the given paths.
type tree struct {
	files []string
	// closed counts files and folders that are not permitted, and others that
	// could not be read; first is the first of them.
	closed int
	first  error
}

// skip records what could not be read; the rest of a tree is still examined.
func (t *tree) skip(err error) {
	if errors.Is(err, fs.ErrNotExist) {
		return // gone since its folder was read
	}
	if t.closed++; t.first == nil {
		t.first = err
	}
}

// scriptFiles lists the files to examine, sorted within each path. A named
// link is followed, those in a tree are not, so that there are no loops;
// hidden folders are skipped.
func scriptFiles(paths []string) (*tree, error) {
	t := &tree{}
	for _, p := range paths {
		st, err := os.Stat(p)
		if err != nil {
			return nil, &console.ExitError{Code: console.ExitNotFound, Err: err}
		}
		if !st.IsDir() {
			t.files = append(t.files, p)
			continue
		}
		t.walk(p)
	}
	return t, nil
}

func (t *tree) walk(root string) {
	// The separator resolves a link to a folder.
	_ = filepath.WalkDir(filepath.Clean(root)+string(filepath.Separator), func(path string, d fs.DirEntry, err error) error {
		path = filepath.Clean(path)
		switch {
		case err != nil:
			t.skip(err)
			return nil
		case d.IsDir() && path != filepath.Clean(root) && strings.HasPrefix(d.Name(), "."):
			return filepath.SkipDir
		case !d.Type().IsRegular():
			return nil
		}
		ok, err := looksLikeScript(path)
		if err != nil {
			t.skip(err)
		} else if ok {
			t.files = append(t.files, path)
		}
		return nil
	})
}

// scriptNames are common suffixes of batch scripts: such a file may lack its
// first line and still be meant as one.
var scriptNames = []string{".sh", ".bash", ".sbatch", ".slurm", ".slm", ".job", ".batch", ".cmd"}

// looksLikeScript reads a few bytes of most files, and all of few.
func looksLikeScript(path string) (bool, error) {
	f, err := console.OpenRegular(path)
	if err != nil {
		return false, err
	}
	head := make([]byte, 5)
	n, _ := f.Read(head)
	if err := f.Close(); err != nil {
		return false, err
	}
	named := slices.Contains(scriptNames, strings.ToLower(filepath.Ext(path)))
	if !named && !strings.HasPrefix(strings.TrimPrefix(string(head[:n]), "\ufeff"), "#!") {
		return false, nil
	}
	data, err := console.ReadBounded(path, cluster.MaxScript)
	return err == nil && sbatch.IsBatch(data), err
}

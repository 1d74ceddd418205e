package history

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Verify reads every file of a history whole and modifies nothing. It returns how
// many jobs they hold, and an error that names each damaged file. A newest file
// that ends in the middle of a write is not damaged: the store cuts that off. A
// missing folder holds nothing.
func Verify(dir string) (jobs int, err error) {
	files, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("history: %w", err)
	}
	var bad []error
	for _, f := range files {
		path := filepath.Join(dir, f.Name())
		n, err := 0, error(nil)
		switch {
		case strings.HasSuffix(f.Name(), ".tmp"):
		case strings.HasSuffix(f.Name(), ".bad"):
			err = errors.New("it was put aside as damaged")
		case strings.HasPrefix(f.Name(), "head-"):
			var h *head
			if h, _, err = readHead(path); err == nil {
				n = len(h.entries)
			}
		case strings.HasPrefix(f.Name(), "seg-"):
			var g *segment
			if g, err = openSegment(path); err == nil {
				n, err = g.n, g.check()
			}
		case f.Name() == floorName:
			_, err = readFloor(path)
		}
		if err != nil {
			bad = append(bad, fmt.Errorf("history %s: %w", path, err))
			continue
		}
		jobs += n
	}
	return jobs, errors.Join(bad...)
}

package history

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/work"
)

// TestWorkOfAppend: an ended job is written at the same cost, in memory and in bytes on
// disk, to a long history.
func TestWorkOfAppend(t *testing.T) {
	work.Steady(t, 100, func(n int) work.Cost {
		dir := t.TempDir()
		s, _ := testStore(t, dir, 32)
		for i := range uint64(n) {
			mustAppend(t, s, i+1, []*cluster.Job{finished(i+1, cluster.JobID(i+1))})
		}
		const more = 64 // two segments' worth
		before := sizeOf(t, dir)
		c := work.Of(more, func() {
			for i := uint64(n); i < uint64(n)+more; i++ {
				mustAppend(t, s, i+1, []*cluster.Job{finished(i+1, cluster.JobID(i+1))})
			}
		})
		c.Counted = float64(sizeOf(t, dir)-before) / more
		return c
	})
}

// sizeOf adds up the files below a folder.
func sizeOf(t *testing.T, dir string) (sum int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			sum += info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

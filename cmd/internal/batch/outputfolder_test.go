package batch

import (
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-scheduler/berth/cluster"
)

// TestAFolderThatDoesNotAnswer: a submit does not wait for it, and says so.
func TestAFolderThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		answer, began := make(chan struct{}), time.Now()
		defer close(answer)
		said := unlessSilent("/nfs/out", func() []string { <-answer; return nil })
		if len(said) != 1 || !strings.Contains(said[0], "/nfs/out is on a file system that does not answer here") || time.Since(began) != answerWithin {
			t.Errorf("got %q after %s", said, time.Since(began))
		}
		if said := unlessSilent("/tmp/out", func() []string { return []string{"made"} }); len(said) != 1 || said[0] != "made" {
			t.Errorf("of a folder that answers: got %q", said)
		}
	})
}

// TestAFolderThatIsNotWritable: whoever submits there is told, unless the output goes
// elsewhere or to a file that is.
func TestAFolderThatIsNotWritable(t *testing.T) {
	t.Parallel()
	locked, free := t.TempDir(), t.TempDir()
	access := func(path string, mode uint32) error {
		if mode == unix.W_OK && (path == locked || filepath.Base(path) == "shut") {
			return unix.EACCES
		}
		return nil
	}
	for _, c := range []struct {
		dir, out, err string
		warned        bool
	}{
		{locked, "", "", true},
		{locked, "shut", "", true},
		{locked, "open", "", false},
		{locked, free + "/x-%j.out", "", false},
		{locked, free + "/x", "shut", true},
		{free, "", "", false},
		{free, locked + "/shut", "", true},
		{free, "/dev/null", "", false},
	} {
		said := outputFolders(&cluster.Spec{Dir: c.dir, Stdout: c.out, Stderr: c.err}, "1000", true, access)
		if len(said) > 0 != c.warned || c.warned && !strings.Contains(said[0], "you may not write to the folder "+locked) {
			t.Errorf("in %s to %q and %q: %q", c.dir, c.out, c.err, said)
		}
	}
}

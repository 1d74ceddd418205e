package devnote_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/berth-scheduler/berth/cmd/internal/devnote"
)

func TestLeaveFindTakeBack(t *testing.T) {
	p := devnote.Place{Dir: t.TempDir(), UID: os.Geteuid()}
	if got := p.Find(); got != nil {
		t.Errorf("found %q before anything was left", got)
	}
	first := leave(t, p, "/a/c1.sock,/a/c2.sock")
	if got := p.Find(); !slices.Equal(got, []string{"/a/c1.sock", "/a/c2.sock"}) {
		t.Errorf("found %q", got)
	}
	second := leave(t, p, "/b/c1.sock")
	if err := first(); err != nil {
		t.Error(err)
	}
	if got := p.Find(); !slices.Equal(got, []string{"/b/c1.sock"}) {
		t.Errorf("the first cluster took the note of the second back: found %q", got)
	}
	if err := second(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(p.Dir); err != nil || len(left) > 0 {
		t.Errorf("left behind %v, %v", left, err)
	}
}

// A folder that others can write to, or that is another's, is not believed.
func TestPlantedNoteIsIgnored(t *testing.T) {
	p := devnote.Place{Dir: t.TempDir(), UID: os.Geteuid()}
	takeBack := leave(t, p, "/a/c1.sock")
	folders, err := filepath.Glob(filepath.Join(p.Dir, "*"))
	if err != nil || len(folders) != 1 {
		t.Fatal(folders, err)
	}
	if err := os.Chmod(folders[0], 0o777); err != nil { // #nosec G302 -- what is refused
		t.Fatal(err)
	}
	if got := p.Find(); got != nil {
		t.Errorf("a folder open to all was believed: %q", got)
	}
	if _, err := p.Leave("/a/c1.sock"); err == nil {
		t.Error("a note was left in a folder open to all")
	}
	if err := os.Chmod(folders[0], 0o755); err != nil { // #nosec G302 -- a note is no secret
		t.Fatal(err)
	}
	other := devnote.Place{Dir: p.Dir, UID: p.UID + 1}
	if err := os.Rename(folders[0], filepath.Join(p.Dir, filepath.Base(folders[0])+"-moved")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(folders[0]+"-moved", folders[0]); err != nil {
		t.Fatal(err)
	}
	if got := p.Find(); got != nil {
		t.Errorf("a link was followed: %q", got)
	}
	if got := other.Find(); got != nil && p.UID != 0 {
		t.Errorf("another's note was believed: %q", got)
	}
	_ = takeBack()
}

func leave(t *testing.T, p devnote.Place, sockets string) func() error {
	t.Helper()
	takeBack, err := p.Leave(sockets)
	if err != nil {
		t.Fatal(err)
	}
	return takeBack
}

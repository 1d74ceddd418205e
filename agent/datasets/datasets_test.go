package datasets

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestLook: what is named is there while its directory is; of a folder that only its owner
// can write to every directory counts that has a name, and no link, file or later twin.
func TestLook(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	mkdir := func(parts ...string) string {
		p := filepath.Join(append([]string{top}, parts...)...)
		if err := os.MkdirAll(p, 0o755); err != nil {
			t.Fatal(err)
		}
		return p
	}
	fast, all, open := mkdir("fast", "imagenet"), mkdir("all"), mkdir("open")
	for _, name := range []string{"coco", "imagenet", ".hidden", "two words"} {
		mkdir("all", name)
	}
	mkdir("open", "theirs")
	for _, err := range []error{
		os.Symlink("/root", filepath.Join(all, "link")), os.WriteFile(filepath.Join(all, "file"), nil, 0o600), os.Chmod(open, 0o775), os.Chmod(all, 0o755),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	s := New([]string{all + "/*", "imagenet=" + fast, "later=" + filepath.Join(top, "later"), open + "/*", filepath.Join(top, "nowhere") + "/*"})
	told := func() bool {
		select {
		case <-s.Changed():
			return true
		default:
			return false
		}
	}
	s.Look()
	want := []string{"a100", "data=coco", "data=imagenet"}
	if d := cmp.Diff(want, s.With([]string{"a100"})); d != "" || !told() {
		t.Errorf("(-want +got):\n%s", d)
	}
	if got := s.Path("imagenet"); got != fast {
		t.Errorf("imagenet is in %s, want %s: what is named goes first", got, fast)
	}
	if s.Look(); told() {
		t.Error("told of no change")
	}
	mkdir("later")
	if s.Look(); !told() || s.Path("later") == "" {
		t.Error("not told of one that came")
	}
	if err := os.Remove(filepath.Join(top, "later")); err != nil {
		t.Fatal(err)
	}
	if s.Look(); !told() || s.Path("later") != "" {
		t.Error("not told of one that left")
	}
}

// TestNoMoreFeaturesThanANodeMayHave: the first data sets by name, after what the site
// calls the node.
func TestNoMoreFeaturesThanANodeMayHave(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	for i := range Most + 8 {
		if err := os.Mkdir(filepath.Join(top, "set"+string(rune('A'+i/10))+string(rune('0'+i%10))), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s := New([]string{top + "/*"})
	s.Look()
	if got := s.With(nil); len(got) != Most || got[Most-1] != "data=setD1" {
		t.Errorf("%d features: %v", len(got), got)
	}
	many := make([]string, 60)
	for i := range many {
		many[i] = "f" + string(rune('A'+i/10)) + string(rune('0'+i%10))
	}
	if got := s.With(many); len(got) != 64 || got[3] != "data=setA3" || got[4] != "fA0" {
		t.Errorf("%d features: %v", len(got), got)
	}
}

// TestEntriesThatAreRefused: each says what is wanted.
func TestEntriesThatAreRefused(t *testing.T) {
	t.Parallel()
	for entry, want := range map[string]string{
		"imagenet=/data/imagenet": "", "/data/*": "", "/data": "want NAME=/path, or /path/*", "": "want NAME=/path",
		"=/data": "data ", "a b=/data": "letters", "-x=/data": "begin and end with neither",
	} {
		if _, _, err := Parse(entry); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", entry, err, want)
		}
	}
	if (*Sets)(nil).Path("x") != "" || (*Sets)(nil).Changed() != nil || len((*Sets)(nil).With([]string{"a"})) != 1 {
		t.Error("no data sets are some")
	}
}

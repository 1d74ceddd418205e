package proc

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestHungOf: threads in uninterruptible sleep are found, of processes that exist, and
// their names cannot forge anything.
func TestHungOf(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	thread := func(pid, tid, name, state, wchan string) {
		dir := filepath.Join(root, pid, "task", tid)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for file, text := range map[string]string{"stat": tid + " (" + name + ") " + state + " 1 2 3\n", "wchan": wchan} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	thread("10", "10", "cp", "D", "nfs_wait\n")
	thread("11", "11", "sleeps", "S", "do_wait")
	thread("12", "12", "python", "Z", "0")
	thread("12", "13", "a) D \"\x1b", "D", "0")
	thread("14", "14", "not asked for", "D", "0")
	if err := os.MkdirAll(filepath.Join(root, "15", "task", "15"), 0o755); err != nil {
		t.Fatal(err)
	}
	want := []Hung{{PID: 10, Name: "cp", In: "nfs_wait"}, {PID: 12, Name: "a)?D???"}}
	if got := HungOf(root, []int{10, 11, 12, 15, 16}); !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := want[0].String() + "; " + want[1].String(); got != "10 (cp, in nfs_wait); 12 (a)?D???)" {
		t.Errorf("named %s", got)
	}
}

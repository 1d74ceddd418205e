package fsm

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// TestGoldenStates: the entries that were kept of each version make, command by
// command, the states that they made when their files were written. With -update a
// file that is missing is written, and that of the present version; no other ever.
func TestGoldenStates(t *testing.T) {
	t.Parallel()
	for version := uint32(1); version <= EntryVersion; version++ {
		e, err := DecodeEntry(unhex(t, fmt.Sprintf("entry.v%d.hex", version)))
		if err != nil || e.Version != version {
			t.Fatalf("entry of version %d is read as one of %d: %v", version, e.GetVersion(), err)
		}
		f, got := New(Options{}), ""
		for i, cmd := range e.Commands {
			data, err := EncodeEntry(version, e.Term, f.st.at.Now, []*logv1.Command{cmd})
			if err != nil {
				t.Fatal(err)
			}
			r := applyTo(t, f, uint64(i)+1, e.Term, data)[0]
			outcome := "done"
			if r.Err != nil {
				outcome = string(r.Err.Code)
			}
			got += fmt.Sprintf("%x %s %s\n", f.Hash(), kindOf(cmd), outcome)
		}
		path := filepath.Join("testdata", fmt.Sprintf("states.v%d.txt", version))
		if _, err := os.Stat(path); *update && (err != nil || version == EntryVersion) {
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); d != "" {
			t.Errorf("entries of version %d make other states than they did: %s", version, d)
		}
	}
}

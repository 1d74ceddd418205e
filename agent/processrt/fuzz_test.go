package processrt

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/agent/runtime"
	"github.com/berth-scheduler/berth/cluster"
)

// FuzzTaskLog opens a log of tasks that holds anything: it can be opened, a new
// end is kept, and what was read once is read again.
func FuzzTaskLog(f *testing.F) {
	lines := lineOf([]byte(`{"Op":"create","Launch":{"ID":{"Job":1,"No":1},"Token":2}}`)) + lineOf([]byte(`{"Started":{"Job":1,"No":1}}`))
	end := lineOf([]byte(`{"Ended":{"ID":{"Job":1,"No":1},"Token":2,"Phase":3,"ExitCode":7}}`))
	f.Add([]byte(""))
	f.Add([]byte(lines + end))
	f.Add([]byte(lines + strings.TrimSuffix(end, "\n"))) // torn before the newline
	f.Add([]byte("00000000 {}\n\n \n" + lines + "\x00\x00"))
	f.Add([]byte(lines + end + lineOf([]byte(`{"Deleted":{"Job":1,"No":1}}`)) + lines))
	f.Add(bytes.Repeat([]byte{0}, 2<<20)) // as some file systems leave it
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "tasks.log")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		l, tasks, _ := openLog(t, path)
		end := runtime.Task{ID: cluster.AttemptID{Job: 1 << 40, No: 9}, Token: 1, Phase: runtime.Stopped, ExitCode: 137, Signal: syscall.SIGKILL}
		record(t, l, end.ID, end.Token)
		if err := errors.Join(l.put(end), l.compact(), l.close()); err != nil {
			t.Fatal(err)
		}
		want := states(tasks)
		want[end.ID] = end
		l, tasks, damaged := openLog(t, path)
		if err := l.close(); err != nil || damaged > 0 {
			t.Fatalf("%d damaged lines: %v", damaged, err)
		}
		if diff := cmp.Diff(want, states(tasks)); diff != "" {
			t.Errorf("tasks (-want +got):\n%s", diff)
		}
	})
}

func states(tasks map[cluster.AttemptID]*task) map[cluster.AttemptID]runtime.Task {
	out := map[cluster.AttemptID]runtime.Task{}
	for id, t := range tasks {
		out[id] = t.state
	}
	return out
}

// FuzzReadFrame reads anything as a request, and what it can read again after
// writing it.
func FuzzReadFrame(f *testing.F) {
	for _, body := range []string{
		`{"Op":"list"}`, `{"Op":"signal","ID":{"Job":3,"No":1},"Signal":15}`,
		`{"Op":"create","Launch":{"Args":["dHJ1ZQ=="],"UID":4294967295}}`, `null`, `[]`, `{"ID":"j1-a1"}`,
	} {
		f.Add(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...))
	}
	f.Add([]byte{0, 0, 0})
	f.Add([]byte{255, 255, 255, 255})
	f.Add([]byte{0, 0, 0, 9, '{'})
	f.Fuzz(func(t *testing.T, data []byte) {
		var req request
		if err := readFrame(bytes.NewReader(data), &req); err != nil {
			return
		}
		var buf bytes.Buffer
		if err := writeFrame(&buf, req); err != nil {
			t.Fatal(err)
		}
		var again request
		if err := readFrame(&buf, &again); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(req, again, cmp.Comparer(sameText)); diff != "" {
			t.Errorf("request (-want +got):\n%s", diff)
		}
	})
}

// sameText compares strings as JSON can carry them.
func sameText(a, b string) bool {
	return strings.ToValidUTF8(a, "\uFFFD") == strings.ToValidUTF8(b, "\uFFFD")
}

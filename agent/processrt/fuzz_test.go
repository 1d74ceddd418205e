package processrt

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/agent/runtime"
	"github.com/berth-scheduler/berth/cluster"
)

// FuzzEndLog opens a log of ends that holds anything: it can be opened, a new
// end is kept, and what was read once is read again.
func FuzzEndLog(f *testing.F) {
	body := `{"ID":{"Job":1,"No":1},"Phase":3,"ExitCode":7}`
	f.Add([]byte(""))
	f.Add([]byte(checksum(body) + " " + body + "\n"))
	f.Add([]byte(checksum(body) + " " + body)) // torn before the newline
	f.Add([]byte("00000000 {}\n\n \n" + checksum(body) + " " + body + "\n\x00\x00"))
	f.Add(bytes.Repeat([]byte{0}, 2<<20)) // as some file systems leave it
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "ends.log")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		l, want, err := openEndLog(path)
		if err != nil {
			t.Fatal(err)
		}
		end := runtime.Task{ID: cluster.AttemptID{Job: 1 << 40, No: 9}, Phase: runtime.Stopped, ExitCode: 137, Signal: syscall.SIGKILL}
		if err := l.put(end); err != nil {
			t.Fatal(err)
		}
		if err := l.close(); err != nil {
			t.Fatal(err)
		}
		want[end.ID] = end
		l, got, err := openEndLog(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.close(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("ends (-want +got):\n%s", diff)
		}
	})
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

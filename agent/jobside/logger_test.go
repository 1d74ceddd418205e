package jobside

import (
	"bytes"
	"io"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster/draws"
)

var _ = draws.Fixed()

// failing writes some bytes and then no more, as a full disk.
type failing struct {
	bytes.Buffer
	room int
}

func (f *failing) Write(p []byte) (int, error) {
	if f.Len()+len(p) > f.room {
		return 0, syscall.ENOSPC
	}
	return f.Buffer.Write(p)
}

// TestCopyAtMost reads everything in every case: a pipe that nobody reads
// stops the job.
func TestCopyAtMost(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		text := rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(rt, "text")
		most := rapid.Int64Range(0, 250).Draw(rt, "most")
		room := rapid.IntRange(0, 400).Draw(rt, "room")
		to, from := &failing{room: room}, bytes.NewReader(text)
		copyAtMost(to, struct{ io.Reader }{from}, most)
		if from.Len() > 0 {
			rt.Fatalf("%d bytes were not read", from.Len())
		}
		kept, _, _ := bytes.Cut(to.Bytes(), []byte("\nberth: the output"))
		if !bytes.HasPrefix(text, kept) || most > 0 && int64(len(kept)) > most {
			rt.Fatalf("kept %q of %q", kept, text)
		}
		whole := (most == 0 || int64(len(text)) <= most) && len(text) <= room
		if whole && !bytes.Equal(to.Bytes(), text) {
			rt.Fatalf("kept %q of %q, which fits", to.Bytes(), text)
		}
	})
}

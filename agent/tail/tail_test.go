package tail_test

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/agent/tail"
	"github.com/berth-scheduler/berth/cluster/draws"
)

var _ = draws.Fixed()

// TestOffset compares with what splitting the whole text gives.
func TestOffset(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		line := rapid.StringMatching(`[a-z]{0,40}`)
		if rapid.Bool().Draw(t, "long lines") { // longer than what is read at once
			line = rapid.Map(rapid.IntRange(0, 200_000), func(n int) string { return strings.Repeat("x", n) })
		}
		text := strings.Join(rapid.SliceOfN(line, 0, 12).Draw(t, "lines"), "\n")
		if rapid.Bool().Draw(t, "ends with a line end") {
			text += "\n"
		}
		n := rapid.Int64Range(0, 15).Draw(t, "n")
		got, err := tail.Offset(strings.NewReader(text), int64(len(text)), n)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.SplitAfter(text, "\n")
		if lines[len(lines)-1] == "" {
			lines = lines[:len(lines)-1]
		}
		want := strings.Join(lines[max(0, len(lines)-int(n)):], "")
		if text[got:] != want {
			t.Fatalf("the last %d lines are %d bytes, want %d", n, len(text)-int(got), len(want))
		}
	})
}

// endless is a file of zeros, as one can be made of any size in no time.
type endless struct{ read int64 }

func (e *endless) ReadAt(p []byte, _ int64) (int, error) {
	if e.read += int64(len(p)); e.read > 64<<20 {
		return 0, errors.New("read on and on")
	}
	clear(p)
	return len(p), nil
}

// TestOffsetOfAHole: whoever makes a file of 4 EiB without a line end must
// not have root read it all, nor more than 64 MiB each time that its end is asked for.
func TestOffsetOfAHole(t *testing.T) {
	t.Parallel()
	const size = 1 << 62
	got, err := tail.Offset(&endless{}, size, 10)
	if want := int64(size - tail.Max); err != nil || got != want {
		t.Errorf("got %d, %v, want %d", got, err, want)
	}
}

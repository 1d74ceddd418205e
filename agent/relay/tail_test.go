package relay_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/agent/relay"
)

// TestTailOffset compares with what splitting the whole text gives.
func TestTailOffset(t *testing.T) {
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
		got, err := relay.TailOffset(strings.NewReader(text), int64(len(text)), n)
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

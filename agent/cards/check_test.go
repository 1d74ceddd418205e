package cards

import (
	"log/slog"
	"strings"
	"testing"
	"time"
	"unicode"
)

// TestWhatACheckLeavesAndSays: a check that passed and left something in the background has
// passed, and what a failed one says is text of one line.
func TestWhatACheckLeavesAndSays(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]string{
		"sleep 300 & exit 0":                               "",
		"head -c 100000000 /dev/zero; exit 3":              "the check failed (exit status 3)",
		`printf 'broken \377\033[2J\nmore'; kill -SEGV $$`: "the check failed (signal: segmentation fault",
		"exec >&- 2>&-; exit 4":                            "it wrote nothing",
	} {
		k := &Checks{Command: []string{"/bin/sh", "-c", script}, Time: time.Minute, States: newCardStates(), Log: slog.New(slog.DiscardHandler)}
		err := k.check(t.Context(), "GPU-1", CheckBefore, "j1-a1")
		if want == "" && err == nil {
			continue
		}
		if err == nil || want == "" || !strings.Contains(err.Error(), want) || len(err.Error()) > 500 || strings.ContainsFunc(err.Error(), func(r rune) bool { return r < ' ' || r == unicode.ReplacementChar }) {
			t.Errorf("%s: got %v, want %q", script, err, want)
		}
	}
}

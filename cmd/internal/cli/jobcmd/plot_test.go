package jobcmd

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestBraille(t *testing.T) {
	var at, values []int64
	for i := range int64(120) {
		at, values = append(at, 1000+10*i), append(values, i*1000/119)
	}
	rising := braille(at, values, 1000)
	for i, row := range rising {
		if n := utf8.RuneCountInString(row); n != plotWidth {
			t.Errorf("row %d has %d characters", i, n)
		}
	}
	// It begins at the bottom and ends at the top.
	if !strings.HasPrefix(rising[plotRows-1], "\u28c0") || !strings.HasSuffix(rising[0], "\u280a") {
		t.Errorf("rising:\n%s", strings.Join(rising, "\n"))
	}
	blank := strings.Repeat("\u2800", plotWidth)
	if d := cmp.Diff([]string{blank, blank, blank, blank}, braille([]int64{1, 2}, []int64{-1, -1}, 1000)); d != "" {
		t.Errorf("of what is unknown: %s", d)
	}
	// Whatever a coordinator sends, it stays within.
	braille([]int64{5, 1, 1 << 40}, []int64{1 << 40, 7, 0}, 1)
}

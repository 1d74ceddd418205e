package jobcmd

import (
	"strings"
	"testing"
	"time"
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

func TestSpan(t *testing.T) {
	zone := time.FixedZone("CEST", 2*60*60)
	now := time.Date(2026, 7, 10, 1, 0, 0, 0, zone)
	at := func(day, hour int) int64 { return time.Date(2026, 7, day, hour, 30, 5, 0, zone).Unix() }
	for _, x := range []struct {
		from, to int64
		want     string
	}{
		{at(10, 0), at(10, 1), "00:30:05 to 01:30:05"},
		{at(9, 3), at(9, 23), "2026-07-09 03:30:05 to 23:30:05"},
		{at(9, 23), at(10, 0), "2026-07-09 23:30:05 to 2026-07-10 00:30:05"},
	} {
		if got := span(now, x.from, x.to); got != x.want {
			t.Errorf("%q, want %q", got, x.want)
		}
	}
}

package slurm_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster/draws"
	"github.com/berth-scheduler/berth/cmd/internal/slurm"
)

var _ = draws.Fixed()

// TestTimes: what Slurm's manual takes for a time, and what people write besides; past is
// what it means where times lie behind, as in sacct -S, next where they are to come.
func TestTimes(t *testing.T) {
	now := time.Date(2026, 11, 28, 16, 45, 10, 0, time.UTC)
	for _, c := range []struct{ in, past, next string }{
		{"now", "2026-11-28T16:45:10", ""},
		{"now+30minutes", "2026-11-28T17:15:10", ""},
		{"now+30 minutes", "2026-11-28T17:15:10", ""},
		{"now + 2hours", "2026-11-28T18:45:10", ""},
		{"now+5min", "2026-11-28T16:50:10", ""},
		{"NOW+2hrs", "2026-11-28T18:45:10", ""},
		{"now+1day", "2026-11-29T16:45:10", ""},
		{"now+1week", "2026-12-05T16:45:10", ""},
		{"now+60", "2026-11-28T16:46:10", ""},
		{"now-2hours", "2026-11-28T14:45:10", ""},
		{"+10m", "", "2026-11-28T16:55:10"},
		{"+2hours", "", "2026-11-28T18:45:10"},
		{"today", "2026-11-28T00:00:00", ""},
		{"tomorrow", "2026-11-29T00:00:00", ""},
		{"midnight", "2026-11-28T00:00:00", "2026-11-29T00:00:00"},
		{"noon", "2026-11-28T12:00:00", "2026-11-29T12:00:00"},
		{"fika", "2026-11-28T15:00:00", "2026-11-29T15:00:00"},
		{"teatime", "2026-11-28T16:00:00", "2026-11-29T16:00:00"},
		{"16:00", "2026-11-28T16:00:00", "2026-11-29T16:00:00"},
		{"16:45:10", "2026-11-28T16:45:10", "2026-11-29T16:45:10"},
		{"16:45:11", "2026-11-28T16:45:11", ""},
		{"9:30", "2026-11-28T09:30:00", "2026-11-29T09:30:00"},
		{"11:30pm", "2026-11-28T23:30:00", ""},
		{"11:30PM", "2026-11-28T23:30:00", ""},
		{"8pm", "2026-11-28T20:00:00", ""},
		{"2026-12-24", "2026-12-24T00:00:00", ""},
		{"2026-12-24T18:00", "2026-12-24T18:00:00", ""},
		{"2026-12-24T18:00:07", "2026-12-24T18:00:07", ""},
		{"2026-01-02T18:00", "2026-01-02T18:00:00", ""},
		{"12/24/26", "2026-12-24T00:00:00", ""},
		{"12/24/26-18:00", "2026-12-24T18:00:00", ""},
		{"12/24", "2026-12-24T00:00:00", ""},
		{"01/02", "2026-01-02T00:00:00", "2027-01-02T00:00:00"},
		{"122426", "2026-12-24T00:00:00", ""},
		{"16:00 12/24", "2026-12-24T16:00:00", ""},
		{"16:00 2026-12-24", "2026-12-24T16:00:00", ""},
		{"noon tomorrow", "2026-11-29T12:00:00", ""},
	} {
		show := func(at time.Time, ok bool) string {
			if !ok {
				return ""
			}
			return at.Format("2006-01-02T15:04:05")
		}
		if have := show(slurm.ParseTime(c.in, now)); have != c.past {
			t.Errorf("ParseTime(%q) is %q, want %q", c.in, have, c.past)
		}
		want := c.next
		if want == "" {
			want = c.past
		}
		if have := show(slurm.ParseNext(c.in, now)); have != want {
			t.Errorf("ParseNext(%q) is %q, want %q", c.in, have, want)
		}
	}
	for _, in := range []string{"", "soon", "now+", "now+x", "now2hours", "now+2fortnights", "25:00", "12:60", "13/13", "2026-02-30", "2026-12-24T", "T18:00", "noon yesterday",
		"now+99999999999", "now-99999999weeks", "now+106752days", "now+2147483647weeks", "now+-5", "++5m", "+", "02/29", "16:00 " + string(make([]byte, 4096))} {
		if at, ok := slurm.ParseNext(in, now); ok {
			t.Errorf("ParseNext(%.40q) is %v, want none", in, at)
		}
	}
}

// TestNextIsToCome: a time of day, however it is written, is the next one and less than
// a day ahead, and ParseTime's is that of today.
func TestNextIsToCome(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		now := time.Unix(rapid.Int64Range(0, 4e9).Draw(rt, "now"), 0).UTC()
		h, m := rapid.IntRange(0, 23).Draw(rt, "hour"), rapid.IntRange(0, 59).Draw(rt, "minute")
		forms := []string{fmt.Sprintf("%02d:%02d", h, m), fmt.Sprintf("%02d:%02d:00", h, m), time.Date(2000, 1, 1, h, m, 0, 0, time.UTC).Format("3:04pm")}
		in := rapid.SampledFrom(forms).Draw(rt, "form")
		at, ok := slurm.ParseNext(in, now)
		if !ok || !at.After(now) || at.Sub(now) > 24*time.Hour || at.Hour() != h || at.Minute() != m {
			rt.Fatalf("at %v the next %s is %v, %v", now, in, at, ok)
		}
		if today, ok := slurm.ParseTime(in, now); !ok || today.YearDay() != now.YearDay() || today.Hour() != h {
			rt.Fatalf("at %v %s of today is %v, %v", now, in, today, ok)
		}
	})
}

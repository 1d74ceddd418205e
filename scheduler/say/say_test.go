package say

import (
	"testing"
	"time"
)

func TestWords(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ got, want string }{
		{Cores(0), "0 cores"}, {Cores(1000), "1 core"}, {Cores(1500), "1.5 cores"}, {Cores(64000), "64 cores"},
		{Percent(0), "0 %"}, {Percent(15), "1.5 %"}, {Percent(1000), "100 %"},
		{Jobs(0), "no jobs"}, {Jobs(1), "1 job"}, {Jobs(2), "2 jobs"}, {Jobs(11), "11 jobs"},
		{Ordinal(1), "1st"}, {Ordinal(2), "2nd"}, {Ordinal(3), "3rd"}, {Ordinal(4), "4th"}, {Ordinal(11), "11th"},
		{Ordinal(12), "12th"}, {Ordinal(13), "13th"}, {Ordinal(21), "21st"}, {Ordinal(102), "102nd"}, {Ordinal(111), "111th"},
		{GPUs(0), "0 GPUs"}, {GPUs(1), "1 GPU"}, {GPUs(8), "8 GPUs"},
		{About(0), "~1 s"}, {About(-5), "~1 s"}, {About((59 * time.Second).Microseconds()), "~59 s"},
		{About((14 * time.Minute).Microseconds()), "~14 min"}, {About((119 * time.Minute).Microseconds()), "~119 min"},
		{About((50 * time.Hour).Microseconds()), "~50 h"}, {About((96 * time.Hour).Microseconds()), "~4 days"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

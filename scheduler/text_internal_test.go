package scheduler

import (
	"testing"
	"time"
)

func TestWords(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ got, want string }{
		{gib(0), "0 MiB"}, {gib(1023), "1023 MiB"}, {gib(1024), "1.0 GiB"}, {gib(13312), "13.0 GiB"},
		{cores(0), "0 cores"}, {cores(1000), "1 core"}, {cores(1500), "1.5 cores"}, {cores(64000), "64 cores"},
		{percent(0), "0 %"}, {percent(15), "1.5 %"}, {percent(1000), "100 %"},
		{jobs(0), "no jobs"}, {jobs(1), "1 job"}, {jobs(2), "2 jobs"}, {jobs(11), "11 jobs"},
		{ordinal(1), "1st"}, {ordinal(2), "2nd"}, {ordinal(3), "3rd"}, {ordinal(4), "4th"}, {ordinal(11), "11th"},
		{ordinal(12), "12th"}, {ordinal(13), "13th"}, {ordinal(21), "21st"}, {ordinal(102), "102nd"}, {ordinal(111), "111th"},
		{gpus(0), "0 GPUs"}, {gpus(1), "1 GPU"}, {gpus(8), "8 GPUs"},
		{about(0), "~1 s"}, {about(-5), "~1 s"}, {about((59 * time.Second).Microseconds()), "~59 s"},
		{about((14 * time.Minute).Microseconds()), "~14 min"}, {about((119 * time.Minute).Microseconds()), "~119 min"},
		{about((50 * time.Hour).Microseconds()), "~50 h"}, {about((96 * time.Hour).Microseconds()), "~4 days"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

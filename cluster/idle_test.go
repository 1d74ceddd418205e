package cluster

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestParseIdlePolicy(t *testing.T) {
	const text = "below=5%,window=30m,grace=10m,warn=1h,shrink=2h,end=4h30m,ok=8h"
	p, err := ParseIdlePolicy(text)
	if err != nil || p.String() != text || p.BelowMilli != 50 || p.End != 270*time.Minute {
		t.Errorf("%+v, %q, %v", p, p, err)
	}
	for _, none := range []string{"", "none"} {
		if p, err := ParseIdlePolicy(none); err != nil || p.On() || p.String() != "" {
			t.Errorf("%q: %+v, %v", none, p, err)
		}
	}
	for in, want := range map[string]string{
		"window=30m": "below is missing", "below=5%": "below the minimum", "below=60,window=1m": "percentage", "below=5,window=1m,warn=30s": "comes before",
		"below=5,window=1m,warn=2h,end=1h": "comes before", "below=5,window=1m,x=1h": "not one of", "below=5,window=1m,window=1m": "twice", "below=5,window=1.5s": "seconds",
	} {
		if _, err := ParseIdlePolicy(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", in, err, want)
		}
	}
}

// TestStagesRise: longer idle is never an earlier stage, who asked for more time
// is never further, and what is bounded by the site is bounded.
func TestStagesRise(t *testing.T) {
	p := IdlePolicy{BelowMilli: 50, Window: time.Minute, Warn: 2 * time.Minute, Shrink: 3 * time.Minute, End: 4 * time.Minute, MaxOK: 10 * time.Minute}
	rapid.Check(t, func(t *rapid.T) {
		span := func(name string) time.Duration {
			return time.Duration(rapid.IntRange(0, 3600).Draw(t, name)) * time.Second
		}
		a, b, ok := span("idle"), span("more"), span("ok")
		if p.Stage(a+b, ok) < p.Stage(a, ok) || p.Stage(a, ok) > p.Stage(a, 0) || p.Stage(a, ok) < p.Stage(a, p.MaxOK) {
			t.Fatalf("%s, %s more, ok %s", a, b, ok)
		}
	})
	if got := p.Stage(15*time.Minute, time.Hour); got != IdleEnded {
		t.Errorf("an hour that was asked for counts beyond its bound: %s", got)
	}
	if got := (IdlePolicy{}).Stage(time.Hour, 0); got != IdleNone {
		t.Errorf("without a policy: %s", got)
	}
}

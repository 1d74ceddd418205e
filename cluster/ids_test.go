package cluster

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestAttemptIDRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := AttemptID{Job: JobID(rapid.Uint64Min(1).Draw(t, "job")), No: rapid.Uint32Min(1).Draw(t, "no")}
		if got, err := ParseAttemptID(want.String()); err != nil || got != want {
			t.Fatalf("ParseAttemptID(%q) = %v, %v", want, got, err)
		}
	})
}

func TestParseAttemptIDRefuses(t *testing.T) {
	t.Parallel()
	for _, s := range []string{
		"", "j", "j1", "1-a1", "j1-a", "j-a1", "j0-a1", "j1-a0", "j01-a1", "j1-a01", "j+1-a1", "j1-a1 ", "jj1-a1", "j1-a1-a1",
		"j18446744073709551616-a1", "j1-a4294967296", "J1-A1",
	} {
		if got, err := ParseAttemptID(s); err == nil {
			t.Errorf("ParseAttemptID(%q) = %v", s, got)
		}
	}
}

func FuzzParseAttemptID(f *testing.F) {
	for _, s := range []string{"j1-a1", "j184-a2", "j01-a1", "j1-a", "x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, err := ParseAttemptID(s)
		if err == nil && (id.String() != s || id.Job == 0 || id.No == 0) {
			t.Fatalf("%q was read as %v", s, id)
		}
	})
}

func TestTime(t *testing.T) {
	t.Parallel()
	if TimeOf(time.Time{}) != 0 || !Time(0).Std().IsZero() {
		t.Error("no time does not stay no time")
	}
	at := time.Date(2026, 3, 29, 1, 59, 59, 123_456_789, time.FixedZone("CET", 3600))
	got := TimeOf(at)
	if want := at.Truncate(time.Microsecond); !got.Std().Equal(want) || got.Std().Location() != time.UTC {
		t.Errorf("%s became %s", want, got.Std())
	}
	rapid.Check(t, func(t *rapid.T) {
		// Some 146,000 years on each side: what a time.Duration cannot span does not occur.
		u := Time(rapid.Int64Range(1, math.MaxInt64/4).Draw(t, "time"))
		d := time.Duration(rapid.Int64().Draw(t, "span")).Truncate(time.Microsecond)
		if got := u.Add(d).Sub(u); got != d {
			t.Fatalf("%d + %s - %d = %s", u, d, u, got)
		}
		if TimeOf(u.Std()) != u {
			t.Fatalf("%d became %d", u, TimeOf(u.Std()))
		}
	})
}

func TestJobIDString(t *testing.T) {
	t.Parallel()
	if got := JobID(math.MaxUint64).String(); got != "18446744073709551615" {
		t.Errorf("the highest id prints as %s", got)
	}
}

package units_test

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster/draws"
	"github.com/berth-scheduler/berth/cmd/internal/units"
)

var _ = draws.Fixed()

func TestParseMiB(t *testing.T) {
	for in, want := range map[string]int64{
		"6144": 6144, "1": 1, "512M": 512, "512m": 512, "512MiB": 512, "6GiB": 6144, "16G": 16384, "16g": 16384, "16gb": 16384, "16GB": 16384, "16gib": 16384, "2TB": 2 << 20, "7mb": 7,
		"1024K": 1, "2048KiB": 2, "2T": 2 << 20, "8TiB": 8 << 20, "8388608": 8 << 20,
	} {
		if got, err := units.ParseMiB(in); err != nil || got != want {
			t.Errorf("ParseMiB(%q) = %d, %v, want %d", in, got, err, want)
		}
	}
	for in, text := range map[string]string{
		"16b": "want MiB", "16i": "want MiB", "16gg": "want MiB", "16bg": "want MiB", "16000000000": "too much", "16 g": "want MiB",
		"0x10": "want MiB", "1e3G": "want MiB", "-4G": "want MiB", "+4G": "want MiB", "": "want MiB", " 4G": "want MiB",
		"4G\n": "want MiB", "1.5G": "want MiB", "G": "want MiB", "GiB": "want MiB", "4GG": "want MiB", "4iB": "want MiB",
		"0": "too little", "0G": "too little", "1023K": "not a whole number of MiB", "1K": "not a whole number of MiB",
		"010": "want MiB", "9T": "too much", "8388609": "too much", "99999999999999999999": "want MiB",
		"999999999999999999T": "too much", "４G": "want MiB", "1_000": "want MiB", "all": "want MiB",
	} {
		got, err := units.ParseMiB(in)
		checkRefused(t, in, got, err, text)
	}
}

func TestParseDuration(t *testing.T) {
	const d = 24 * time.Hour
	for in, want := range map[string]time.Duration{
		"1": time.Minute, "90": 90 * time.Minute, "05": 5 * time.Minute, "0:30": 30 * time.Second, "90:15": 90*time.Minute + 15*time.Second,
		"1:00:00": time.Hour, "01:05:09": time.Hour + 5*time.Minute + 9*time.Second, "100:00:00": 100 * time.Hour,
		"1-0": d, "1-12": d + 12*time.Hour, "2-03:30": 2*d + 3*time.Hour + 30*time.Minute, "0-00:00:01": time.Second,
		"7-23:59:59": 8*d - time.Second, "30-0": 30 * d,
		"90s": 90 * time.Second, "10m": 10 * time.Minute, "2h": 2 * time.Hour, "1h30m": 90 * time.Minute, "2d": 2 * d, "1d12h": 36 * time.Hour,
		"720h": 30 * d, "1h5s": time.Hour + 5*time.Second,
	} {
		if got, err := units.ParseDuration(in); err != nil || got != want {
			t.Errorf("ParseDuration(%q) = %v, %v, want %v", in, got, err, want)
		}
	}
	for in, text := range map[string]string{
		"1:60:00": "want minutes", "1:60": "want minutes", "1-24": "want minutes", "1-1:60": "want minutes", "1:2:3:4": "want minutes",
		"00": "too short", "0": "too short", "0s": "too short", "0:0": "too short", "1y": "want minutes", "1w": "want minutes",
		"-5m": "want minutes", "-5": "want minutes", "9999999h": "too long", "30-00:00:01": "too long", "999999999999999999d": "too long",
		"99999999999999999999": "want minutes", "": "want minutes", "1.5h": "want minutes", "100ms": "want minutes", "1m1h": "want minutes",
		"1h1h": "want minutes", "1h90m": "want minutes", "h": "want minutes", "1h5": "want minutes", "1 h": "want minutes", "5m ": "want minutes",
		"1-": "want minutes", "-1-1": "want minutes", "1:": "want minutes", "1--1": "want minutes", "UNLIMITED": "want minutes", "1H": "want minutes",
	} {
		got, err := units.ParseDuration(in)
		checkRefused(t, in, int64(got), err, text)
	}
}

func TestParsePercentAndGPUs(t *testing.T) {
	for in, want := range map[string]int{"0": 0, "50": 50, "50%": 50, "100%": 100} {
		if got, err := units.ParsePercent(in); err != nil || got != want {
			t.Errorf("ParsePercent(%q) = %d, %v, want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "%", "101", "-1", "0.5", "50 %", "50%%", "1e1", "050", "NaN"} {
		got, err := units.ParsePercent(in)
		checkRefused(t, in, int64(got), err, "0 to 100")
	}
	for in, want := range map[string]int{"1": 1, "16": 16} {
		if got, err := units.ParseGPUs(in); err != nil || got != want {
			t.Errorf("ParseGPUs(%q) = %d, %v, want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"0", "-1", "1.5", "many", "99999999999999999999", "17", "", "01", "1 "} {
		got, err := units.ParseGPUs(in)
		checkRefused(t, in, int64(got), err, "1 to 16")
	}
}

func checkRefused(t *testing.T, in string, got int64, err error, text string) {
	t.Helper()
	if err == nil || got != 0 {
		t.Errorf("%q was read as %d, %v", in, got, err)
		return
	}
	if !strings.Contains(err.Error(), text) || strings.ContainsAny(err.Error(), "\n\r\x1b") || len(err.Error()) > 300 {
		t.Errorf("%q: message %q, want one short line with %q", in, err, text)
	}
}

func TestFormat(t *testing.T) {
	for _, tc := range []struct{ got, want string }{
		{units.FormatMiB(16384), "16GiB"}, {units.FormatMiB(1500), "1500MiB"}, {units.FormatMiB(2 << 20), "2TiB"}, {units.FormatMiB(0), "0MiB"},
		{units.HumanMiB(24003), "23.4 GiB"}, {units.HumanMiB(900), "900 MiB"}, {units.HumanMiB(3 << 19), "1.5 TiB"},
		{units.FormatDuration(90 * time.Minute), "01:30:00"}, {units.FormatDuration(49*time.Hour + 5*time.Second), "2-01:00:05"},
		{units.HumanDuration(76 * time.Hour), "3d04h"}, {units.HumanDuration(125 * time.Minute), "2h05m"},
		{units.HumanDuration(65 * time.Second), "1m05s"}, {units.HumanDuration(45 * time.Second), "45s"},
	} {
		if tc.got != tc.want {
			t.Errorf("got %q, want %q", tc.got, tc.want)
		}
	}
}

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mib := rapid.Int64Range(units.MinMiB, units.MaxMiB).Draw(t, "mib")
		if got, err := units.ParseMiB(units.FormatMiB(mib)); err != nil || got != mib {
			t.Fatalf("%d became %q became %d, %v", mib, units.FormatMiB(mib), got, err)
		}
		d := time.Duration(rapid.Int64Range(1, int64(units.MaxTime/time.Second)).Draw(t, "seconds")) * time.Second
		if got, err := units.ParseDuration(units.FormatDuration(d)); err != nil || got != d {
			t.Fatalf("%v became %q became %v, %v", d, units.FormatDuration(d), got, err)
		}
	})
}

// FuzzParse: nothing panics, what is accepted lies within the bounds and comes
// back the same from its canonical form.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"16G", "6144", "1024K", "16gb", "1-12:30:05", "90:15", "1h30m", "9999999h", "50%", "0x10", "", "1--1", "d1", "1\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if mib, err := units.ParseMiB(s); err == nil {
			again, err := units.ParseMiB(units.FormatMiB(mib))
			if err != nil || again != mib || mib < units.MinMiB || mib > units.MaxMiB {
				t.Fatalf("memory %q: %d, then %d, %v", s, mib, again, err)
			}
		}
		if d, err := units.ParseDuration(s); err == nil {
			again, err := units.ParseDuration(units.FormatDuration(d))
			if err != nil || again != d || d < units.MinTime || d > units.MaxTime {
				t.Fatalf("time %q: %v, then %v, %v", s, d, again, err)
			}
		}
		if p, err := units.ParsePercent(s); err == nil && (p < 0 || p > 100) {
			t.Fatalf("percentage %q: %d", s, p)
		}
		if n, err := units.ParseGPUs(s); err == nil && (n < units.MinGPUs || n > units.MaxGPUs) {
			t.Fatalf("GPUs %q: %d", s, n)
		}
	})
}

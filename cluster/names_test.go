package cluster

import (
	"strings"
	"testing"
	"time"
)

func TestCheckName(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]bool{
		"n1": true, "0": true, "gpu-node_1.rack": true, strings.Repeat("a", MaxNameLen): true,
		"": false, strings.Repeat("a", MaxNameLen+1): false, "-a": false, ".a": false, "_a": false, "N1": false, "a b": false, "a/b": false, "ä": false, "a\x00": false,
	} {
		if err := CheckName("node", s); (err == nil) != want {
			t.Errorf("CheckName(%q) = %v", s, err)
		} else if err != nil && !strings.HasPrefix(err.Error(), "node ") {
			t.Errorf("%q does not say what is wrong", err)
		}
	}
}

func TestCheckJobName(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]bool{
		"train": true, "Übung 7": true, "a%j": true, strings.Repeat("a", MaxNameLen): true, "a.b-c": true,
		"": false, strings.Repeat("a", MaxNameLen+1): false, "-rf": false, ".hidden": false, "a/b": false, "a\nb": false, "a\x1b[2J": false, "a\xff": false, "a\x00": false,
		"a\u202eb": false, // turns the rest of a listing around
	} {
		if err := CheckJobName(s); (err == nil) != want {
			t.Errorf("CheckJobName(%q) = %v", s, err)
		}
	}
}

func TestLongNamesAreCutInMessages(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 10_000)
	for _, err := range []error{CheckJobName(long), CheckName("node", long)} {
		if err == nil || len(err.Error()) > 500 {
			t.Errorf("message of %d bytes", len(err.Error()))
		}
	}
}

// TestMemTexts: amounts are said as people say them, and as they are where two that are
// compared would read the same.
func TestMemTexts(t *testing.T) {
	for _, c := range []struct {
		a, b         int64
		textA, textB string
	}{
		{204800, 80540, "200.0 GiB", "78.7 GiB"},
		{80541, 80540, "80541 MiB", "80540 MiB"},
		{2048, 2048, "2.0 GiB", "2.0 GiB"},
		{5 << 20, 1023, "5.0 TiB", "1023 MiB"},
	} {
		if a, b := MemTexts(c.a, c.b); a != c.textA || b != c.textB {
			t.Errorf("%d and %d MiB: %q and %q, want %q and %q", c.a, c.b, a, b, c.textA, c.textB)
		}
	}
}

// TestLastTime: from any time that there was, the last one that users may name is a span away
// that can be told.
func TestLastTime(t *testing.T) {
	t.Parallel()
	if got := LastTime.Std(); got != time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC) {
		t.Errorf("it is %v", got)
	}
	for _, now := range []Time{0, TimeOf(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)), LastTime} {
		if d := LastTime.Sub(now); d < 0 || now.Add(d) != LastTime {
			t.Errorf("%v from %v", d, now.Std())
		}
		if d := now.Sub(LastTime); d > 0 || LastTime.Add(d) != now {
			t.Errorf("%v back to %v", d, now.Std())
		}
	}
}

package cluster

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestMailEventsAreReadAsWritten for every set of them.
func TestMailEventsAreReadAsWritten(t *testing.T) {
	for m := MailEvents(1); m <= mailKnown; m++ {
		got, err := ParseMailEvents(m.String())
		if err != nil || got != m {
			t.Fatalf("%b is written %q and read %b, %v", m, m, got, err)
		}
	}
	if got := MailEvents(0).String(); got != "" {
		t.Errorf("nothing is written %q", got)
	}
}

func TestMailAddresses(t *testing.T) {
	for to, ok := range map[string]bool{
		"": true, "ann": true, "ann@example.org": true, "a.b+c_d=e@h-1.example,bob": true,
		"-ann": false, "ann@": false, "@example.org": false, "ann@-x": false, "ann bob": false, "ann\nBcc: x": false, "ann\rx": false,
		"|/bin/sh": false, "a@b@c": false, "a,,b": false, ",": false, "<ann@example.org>": false, `"x"@y`: false, "ann;x": false, "änn": false,
		"a,b,c,d,e": true, "a,b,c,d,e,f": false, strings.Repeat("a", 257): false,
	} {
		if err := (Mail{To: to}).Check(); (err == nil) != ok {
			t.Errorf("%q: %v, taken should be %t", to, err, ok)
		}
	}
	if err := (Mail{Events: mailKnown + 1}).Check(); err == nil {
		t.Error("an unknown event is taken")
	}
}

// TestMailAddressesHoldNothingElse: what is taken has no byte that a header, a
// command line or a mail program could read as more than a letter.
func TestMailAddressesHoldNothingElse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		to := rapid.OneOf(rapid.String(), rapid.StringOf(rapid.SampledFrom([]rune("a@.,-\n\r <>|\x00\"")))).Draw(t, "to")
		if (Mail{To: to}).Check() != nil {
			return
		}
		if strings.ContainsAny(to, "\x00\r\n\t <>()[]|&;:\"'`$\\") {
			t.Fatalf("%q is taken", to)
		}
		if to != "" {
			for a := range strings.SplitSeq(to, ",") {
				if a == "" || a[0] == '-' {
					t.Fatalf("%q is taken", to)
				}
			}
		}
	})
}

func TestIdleOKBounds(t *testing.T) {
	for _, c := range []struct {
		gpus int
		ok   time.Duration
		fine bool
	}{{1, 0, true}, {0, 0, true}, {1, time.Hour, true}, {1, MaxIdleOK, true}, {1, MaxIdleOK + 1, false}, {1, -1, false}, {0, time.Hour, false}} {
		s := Spec{GPUs: c.gpus, IdleOK: c.ok}
		if err := s.checkTelling(); (err == nil) != c.fine {
			t.Errorf("%d GPUs, %s: %v", c.gpus, c.ok, err)
		}
	}
}

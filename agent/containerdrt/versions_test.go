package containerdrt

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestNotes(t *testing.T) {
	for _, c := range []struct {
		name, containerd, runc string
		err                    error
		want                   []string
	}{
		{"current", "v2.1.4", "runc version 1.3.3", nil, nil},
		{"mended older line", "1.6.38", "runc version 1.2.8", nil, nil},
		{"a line between", "1.7.0", "runc version 1.2.9", nil, nil},
		{"Debian 12", "1.6.20~ds1", "runc version 1.1.5+ds1", nil, []string{"runc 1.1.5 is older than 1.2.8 (CVE-2025-31133)"}},
		{"newer line, not mended", "v2.0.0", "runc version 1.3.0", nil, []string{"runc 1.3.0 is older than 1.3.3 (CVE-2025-31133)"}},
		{"old", "1.5.9", "runc version 1.0.0-rc93", nil, []string{"containerd 1.5.9 is older than 1.6.18 (CVE-2023-25173)", "runc 1.0.0 is older than 1.2.8 (CVE-2025-31133)"}},
		{"beyond", "v3.0.0", "runc version 2.0.0", nil, nil},
		{"not to be read", "unknown", "runc from source", nil, nil},
		{"no runc", "v2.1.4", "", errors.New("not found"), []string{"runc is not in the agent's PATH, so that its version is unknown (not found)"}},
	} {
		if diff := cmp.Diff(c.want, notes(c.containerd, c.runc, c.err)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

func TestVersionOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		gen := rapid.Custom(func(t *rapid.T) version {
			n := rapid.IntRange(0, 3)
			return version{n.Draw(t, "a"), n.Draw(t, "b"), n.Draw(t, "c")}
		})
		a, b := gen.Draw(rt, "v"), gen.Draw(rt, "w")
		if a.less(b) && b.less(a) || !a.less(b) && !b.less(a) && a != b {
			rt.Fatalf("%v and %v have no order", a, b)
		}
	})
}

func FuzzParseVersion(f *testing.F) {
	for _, s := range []string{"1.6.20~ds1", "runc version 1.1.5+ds1\ncommit: 1", "v2.1.4", "", "1.2", "99999.1.1", "1.99999999999999999999.3"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		v, ok := parseVersion(s)
		if !ok && v != (version{}) {
			t.Errorf("%q: got %v and no version", s, v)
		}
		for _, n := range v {
			if n < 0 || n > 9999 {
				t.Errorf("%q: got %v", s, v)
			}
		}
	})
}

// TestVersionsAreOneLine has a runtime warn once when it opens, if at all.
func TestVersionsAreOneLine(t *testing.T) {
	require(t)
	b := newBench(t)
	var buf bytes.Buffer
	b.rt.cfg.Log = slog.New(slog.NewTextHandler(&buf, nil))
	t.Setenv("PATH", t.TempDir()) // no runc
	b.rt.checkVersions(t.Context())
	if got := buf.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "runc is not in the agent's PATH") {
		t.Errorf("logged %q, want one line on runc", got)
	}
}

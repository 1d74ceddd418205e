package containerdrt

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNotes(t *testing.T) {
	const (
		newRunc       = "runc version 1.4.3"
		newContainerd = "v2.3.2"
	)
	for _, c := range []struct {
		name, containerd, runc string
		err                    error
		want                   []string
	}{
		{"current", newContainerd, newRunc, nil, nil},
		{"older runc", newContainerd, "runc version 1.3.3", nil, []string{"runc 1.3.3 is older than 1.3.6 (CVE-2026-41579)"}},
		{"old runc", newContainerd, "runc version 1.1.5+ds1", nil, []string{"runc 1.1.5 is older than 1.3.6 (CVE-2024-21626, CVE-2025-31133, CVE-2026-41579)"}},
		{"Debian 12's containerd", "1.6.20~ds1", newRunc, nil, []string{"containerd 1.6.20 is older than 1.7.35 (CVE-2024-40635, CVE-2026-53488)"}},
		{"beyond", "v3.0.0", "runc version 2.0.0", nil, nil},
		{"not to be read", "unknown", "runc from source", nil, nil},
		{"no runc", newContainerd, "", errors.New("not found"), []string{"runc is not in the agent's PATH, so that its version is unknown (not found)"}},
	} {
		if diff := cmp.Diff(c.want, notes(c.containerd, c.runc, c.err)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
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

package holes

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster/draws"
)

var _ = draws.Fixed()

func TestOf(t *testing.T) {
	for _, c := range []struct {
		name string
		of   Component
		text string
		want []string
	}{
		{"current runc", Runc, "runc version 1.5.0", nil},
		{"mended older line", Runc, "runc version 1.3.6", nil},
		{"a line's fix, and not the newest", Runc, "runc version 1.2.8", []string{"CVE-2026-41579"}},
		{"a line between", Runc, "runc version 1.2.9", []string{"CVE-2026-41579"}},
		{"a newer line, not mended", Runc, "runc version 1.3.0", []string{"CVE-2025-31133", "CVE-2026-41579"}},
		{"Debian 12's runc", Runc, "runc version 1.1.5+ds1", []string{"CVE-2024-21626", "CVE-2025-31133", "CVE-2026-41579"}},
		{"very old runc", Runc, "runc version 1.0.0-rc6", []string{"CVE-2024-21626", "CVE-2025-31133", "CVE-2026-41579"}},
		{"Debian 12's containerd", Containerd, "1.6.20~ds1", []string{"CVE-2024-40635", "CVE-2026-53488"}},
		{"current containerd", Containerd, "v2.3.2", nil},
		{"the old line, mended", Containerd, "v1.7.35", nil},
		{"toolkit with the preload hole", Toolkit, "NVIDIA Container Toolkit CLI version 1.17.7", []string{"CVE-2025-23266", "NVIDIA_VISIBLE_DEVICES-none"}},
		{"toolkit without it", Toolkit, "NVIDIA Container Toolkit CLI version 1.17.8", []string{"NVIDIA_VISIBLE_DEVICES-none"}},
		{"current toolkit", Toolkit, "NVIDIA Container Toolkit CLI version 1.20.1", nil},
	} {
		v, ok := ParseVersion(c.text)
		if !ok {
			t.Errorf("%s: no version in %q", c.name, c.text)
		}
		var got []string
		for _, h := range Of(c.of, v) {
			got = append(got, h.CVE)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

func TestPackaged(t *testing.T) {
	for text, want := range map[string]bool{
		"runc version 1.1.5+ds1": true, "1.6.20~ds1": true, "runc version 1.2.5-0ubuntu1~24.04.1": true, "1.1.12-1.el9": true, "1.7.12-1.fc40": true,
		"runc version 1.3.0": false, "v2.0.4": false, "runc version 1.4.0-rc.1": false,
	} {
		if got := Packaged(text); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

// TestTable: lines rise, keys are one each, and no release that a hole is fixed
// in has it.
func TestTable(t *testing.T) {
	seen := map[string]bool{}
	for _, h := range Table() {
		if seen[h.Key()] {
			t.Errorf("%s is there twice", h.Key())
		}
		seen[h.Key()] = true
		if !slices.IsSortedFunc(h.Fixed, func(a, b Version) int { return slices.Compare(a[:], b[:]) }) || len(h.Fixed) == 0 {
			t.Errorf("%s: fixed in %v", h.Key(), h.Fixed)
		}
		for _, f := range h.Fixed {
			if h.Has(f) {
				t.Errorf("%s: %s has it, where it is fixed", h.Key(), f)
			}
		}
	}
	for _, k := range Keys() {
		if !seen[k] {
			t.Errorf("key %s is of no hole", k)
		}
	}
}

// TestFixFixes: whoever follows the advice is rid of the hole.
func TestFixFixes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(0, 60)
		v := Version{rapid.IntRange(0, 3).Draw(rt, "major"), n.Draw(rt, "minor"), n.Draw(rt, "patch")}
		for _, h := range Table() {
			fix := h.Fix(v)
			if h.Has(v) && (!v.Less(fix) || h.Has(fix)) {
				rt.Fatalf("%s %s: advice %s", h.Key(), v, fix)
			}
		}
	})
}

func FuzzParseVersion(f *testing.F) {
	for _, s := range []string{"1.6.20~ds1", "runc version 1.1.5+ds1\ncommit: 1", "v2.1.4", "", "1.2", "99999.1.1", "1.99999999999999999999.3"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		v, ok := ParseVersion(s)
		if !ok && v != (Version{}) {
			t.Errorf("%q: got %v and no version", s, v)
		}
		for _, n := range v {
			if n < 0 || n > 9999 {
				t.Errorf("%q: got %v", s, v)
			}
		}
	})
}

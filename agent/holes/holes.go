// Package holes knows which releases of container software, and of software that gives
// containers GPUs, let a container reach its node. It is a static table.
package holes

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Component is a program in the table.
type Component string

// The components.
const (
	Runc       Component = "runc"
	Containerd Component = "containerd"
	Toolkit    Component = "nvidia-container-toolkit"
)

// Version is the three numbers of a release.
type Version [3]int

// String returns "1.2.8".
func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2]) }

// Less reports whether v is older than w.
func (v Version) Less(w Version) bool { return slices.Compare(v[:], w[:]) < 0 }

var versionText = regexp.MustCompile(`\b[vV]?(\d{1,4})\.(\d{1,4})\.(\d{1,4})`)

// ParseVersion finds the first release in a text such as "1.6.20~ds1", "runc
// version 1.1.5+ds1" or "NVIDIA Container Toolkit CLI version 1.17.8".
func ParseVersion(text string) (Version, bool) {
	m := versionText.FindStringSubmatch(text)
	if m == nil {
		return Version{}, false
	}
	var v Version
	for i := range v {
		v[i], _ = strconv.Atoi(m[i+1]) // digits, by the pattern
	}
	return v, true
}

var packaged = regexp.MustCompile(`(?i)[~+]ds|[-~+]?(deb|ubuntu|rhel|suse)|\.(el|fc|amzn)\d`)

// Packaged reports whether a version text looks like that of a distribution, which fixes
// vulnerabilities without changing the number.
func Packaged(text string) bool { return packaged.MatchString(text) }

// Hole is one known escape from a container.
type Hole struct {
	Component Component
	CVE       string // the first, where several were fixed together
	What      string
	// Fixed are the first releases without it, one of each release line that was fixed, oldest
	// first.
	Fixed []Version
	// Severe holes are exploitable with what Berth runs. The others are closed by how Berth
	// runs it, or are minor.
	Severe bool
}

// Key returns the name of a hole in a configuration: "runc-CVE-2024-21626".
func (h Hole) Key() string { return string(h.Component) + "-" + h.CVE }

// Has reports whether a release has the hole: one older than the fix of its own release line,
// or, on a line that was not fixed, older than the newest fix.
func (h Hole) Has(v Version) bool {
	for i, f := range h.Fixed {
		last := i == len(h.Fixed)-1
		if v[0] == f[0] && v[1] == f[1] || v.Less(f) || last {
			return v.Less(f)
		}
	}
	return false
}

// Fix returns the release to upgrade to from v: that of its own release line, or the next.
func (h Hole) Fix(v Version) Version {
	for _, f := range h.Fixed {
		if v.Less(f) {
			return f
		}
	}
	return v
}

// Table returns every known hole, by component, oldest first.
func Table() []Hole {
	return []Hole{
		{Runc, "CVE-2019-5736", "a container writes over the node's runc", []Version{{1, 0, 0}}, true},
		{Runc, "CVE-2024-21626", "a working directory leaks the node's file system", []Version{{1, 1, 12}}, true},
		{Runc, "CVE-2025-31133", "masked paths and /dev redirect root's writes (also CVE-2025-52565, CVE-2025-52881)", []Version{{1, 2, 8}, {1, 3, 3}, {1, 4, 0}}, true},
		{Runc, "CVE-2026-41579", "a symbolic link at /dev in an image; Berth refuses such images", []Version{{1, 3, 6}, {1, 4, 3}, {1, 5, 0}}, false},
		{Containerd, "CVE-2022-23648", "an image's volume shows files of the node; Berth takes no volumes from images", []Version{{1, 4, 13}, {1, 5, 10}, {1, 6, 1}}, false},
		{Containerd, "CVE-2023-25173", "supplementary groups of an image's user; Berth takes no users from images", []Version{{1, 5, 18}, {1, 6, 18}}, false},
		{Containerd, "CVE-2024-40635", "a user number beyond 2^31 becomes root; Berth sets the number itself", []Version{{1, 6, 38}, {1, 7, 27}, {2, 0, 4}}, false},
		{Containerd, "CVE-2026-53488", "a label of an image reaches the restart monitor; Berth takes no labels from images", []Version{{1, 7, 35}, {2, 3, 2}}, false},
		{Toolkit, "CVE-2024-0132", "an image's files are taken for the node's, in the legacy mode; Berth uses CDI alone", []Version{{1, 16, 2}}, false},
		{Toolkit, "CVE-2025-23266", "a hook takes a library from an image, as root (also CVE-2025-23267)", []Version{{1, 17, 8}}, true},
		{Toolkit, "NVIDIA_VISIBLE_DEVICES-none", "NVIDIA_VISIBLE_DEVICES=none shows every GPU, in the legacy mode", []Version{{1, 18, 2}}, false},
	}
}

// Of returns the holes of a component's release, severe ones first.
func Of(c Component, v Version) []Hole {
	var out []Hole
	for _, severe := range []bool{true, false} {
		for _, h := range Table() {
			if h.Component == c && h.Severe == severe && h.Has(v) {
				out = append(out, h)
			}
		}
	}
	return out
}

// Keys returns the keys of the severe holes.
func Keys() []string {
	var out []string
	for _, h := range Table() {
		if h.Severe {
			out = append(out, h.Key())
		}
	}
	return out
}

// Note returns in one line what is known against a release, or "".
func Note(c Component, v Version) string {
	list := Of(c, v)
	if len(list) == 0 {
		return ""
	}
	best := list[0].Fix(v)
	var names []string
	for _, h := range list {
		names = append(names, h.CVE)
		if f := h.Fix(v); best.Less(f) {
			best = f
		}
	}
	return fmt.Sprintf("%s %s is older than %s (%s)", c, v, best, strings.Join(names, ", "))
}

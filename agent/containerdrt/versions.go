package containerdrt

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// version is three numbers of a release.
type version [3]int

var versionText = regexp.MustCompile(`\b[vV]?(\d{1,4})\.(\d{1,4})\.(\d{1,4})`)

// parseVersion finds the first release in a text such as "1.6.20~ds1" or "runc
// version 1.1.5+ds1".
func parseVersion(text string) (version, bool) {
	m := versionText.FindStringSubmatch(text)
	if m == nil {
		return version{}, false
	}
	var v version
	for i := range v {
		v[i], _ = strconv.Atoi(m[i+1]) // digits, by the pattern
	}
	return v, true
}

func (v version) less(w version) bool {
	for i := range v {
		if v[i] != w[i] {
			return v[i] < w[i]
		}
	}
	return false
}

// fixed are the first releases of each line, oldest first, without the holes
// through which a container reached its node. Distributions mend older ones
// and keep the number, so that an older one is a warning and not an error.
var fixed = map[string][]struct {
	v   version
	why string
}{
	// runc: CVE-2024-21626 (working directory leaks); CVE-2025-31133, -52565
	// and -52881 (races of masked paths and /dev mounts).
	"runc": {{version{1, 2, 8}, "CVE-2025-31133"}, {version{1, 3, 3}, "CVE-2025-31133"}},
	// containerd: CVE-2022-23648 (files of the node through a volume) and
	// CVE-2023-25173 (groups of an image's user).
	"containerd": {{version{1, 6, 18}, "CVE-2023-25173"}, {version{1, 7, 0}, "CVE-2023-25173"}},
}

// stale says what is known against a release, "" when nothing is. A release
// counts as mended from the fix of its own line on.
func stale(what string, v version) string {
	lines := fixed[what]
	for i, l := range lines {
		last := i == len(lines)-1
		if v[0] == l.v[0] && v[1] == l.v[1] || v.less(l.v) || last {
			if v.less(l.v) {
				return fmt.Sprintf("%s %d.%d.%d is older than %d.%d.%d (%s)", what, v[0], v[1], v[2], l.v[0], l.v[1], l.v[2], l.why)
			}
			return ""
		}
	}
	return ""
}

const versionTimeout = 5 * time.Second

// checkVersions warns, in one line, of releases with known holes and of what
// is missing.
func (r *Runtime) checkVersions(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	runc := ""
	out, err := exec.CommandContext(ctx, "runc", "--version").Output()
	if err == nil {
		runc, _, _ = strings.Cut(string(out), "\n")
	}
	v, verr := r.client.Version(r.with(ctx))
	if verr != nil {
		return // who needs it next says so
	}
	if notes := notes(v.Version, runc, err); len(notes) > 0 {
		r.cfg.Log.Warn("containers may be less safe than they should be; install current versions, or make sure that your distribution has mended these",
			"detail", strings.Join(notes, "; "))
	}
}

// notes lists what there is to warn of.
func notes(containerd, runc string, runcErr error) []string {
	var out []string
	if runcErr != nil {
		out = append(out, fmt.Sprintf("runc is not in the agent's PATH, so that its version is unknown (%v)", runcErr))
	}
	for _, x := range []struct{ what, text string }{{"containerd", containerd}, {"runc", runc}} {
		if v, ok := parseVersion(x.text); ok {
			if s := stale(x.what, v); s != "" {
				out = append(out, s)
			}
		}
	}
	return out
}

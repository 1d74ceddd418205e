package containerdrt

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/berth-scheduler/berth/agent/holes"
)

const versionTimeout = 5 * time.Second

// checkVersions warns, in one line, of releases with known vulnerabilities and of what is
// missing. The administrator decides whether to run with them.
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
		return // reported when next needed
	}
	if notes := notes(v.Version, runc, err); len(notes) > 0 {
		r.cfg.Log.Warn("containers may be less safe than they should be; install current versions, or make sure that your distribution has mended these",
			"detail", strings.Join(notes, "; "))
	}
}

// notes returns what to warn of.
func notes(containerd, runc string, runcErr error) []string {
	var out []string
	if runcErr != nil {
		out = append(out, fmt.Sprintf("runc is not in the agent's PATH, so that its version is unknown (%v)", runcErr))
	}
	for _, x := range []struct {
		what holes.Component
		text string
	}{{holes.Containerd, containerd}, {holes.Runc, runc}} {
		if v, ok := holes.ParseVersion(x.text); ok {
			if s := holes.Note(x.what, v); s != "" {
				out = append(out, s)
			}
		}
	}
	return out
}

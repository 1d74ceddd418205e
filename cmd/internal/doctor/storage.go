package doctor

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/berth-scheduler/berth/cmd/internal/config"
	"github.com/berth-scheduler/berth/cmd/internal/safefile"
)

const secretBytes = 64 << 10

type ownership struct {
	uid  uint32
	mode uint32
}

func statOwner(p string) (ownership, error) {
	info, err := os.Stat(p)
	if err != nil {
		return ownership{}, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ownership{}, errors.New("no owner")
	}
	return ownership{uid: st.Uid, mode: st.Mode & 0o7777}, nil
}

// existing returns the nearest existing directory at or above p.
func (h *Host) existing(p string) string {
	for ; p != "/" && !h.exists(p); p = filepath.Dir(p) {
	}
	return p
}

func mib(b uint64) string {
	if b >= 10<<30 {
		return fmt.Sprintf("%d GiB", b>>30)
	}
	return fmt.Sprintf("%d MiB", b>>20)
}

// space judges a disk's free space: the percentages below which it warns and fails.
func (h *Host) space(what, dir string, warnBelow, failBelow uint64) []Line {
	d, err := h.Disk(h.path(h.existing(dir)))
	if err != nil {
		return fail("", "%s %s: %v", what, dir, err)
	}
	if d.Bytes == 0 {
		return warn("", "%s %s: its file system does not report its size", what, dir)
	}
	percent := d.FreeBytes * 100 / d.Bytes
	text := fmt.Sprintf("%s %s: %s free (%d %%)", what, dir, mib(d.FreeBytes), percent)
	low := percent
	if d.Inodes > 0 {
		in := d.FreeInodes * 100 / d.Inodes
		text += fmt.Sprintf(", %d %% of inodes", in)
		low = min(low, in)
	}
	const fix = "free up space, or move it to a larger disk"
	switch {
	case low < failBelow:
		return fail(fix, "%s", text)
	case low < warnBelow:
		return warn(fix, "%s", text)
	}
	return ok("%s", text)
}

// dataDirs checks where daemons keep their persistent state.
func dataDirs(_ context.Context, h *Host, s *Subject) []Line {
	var out []Line
	look := func(dir string, agent bool) {
		m, found := h.mountOf(h.existing(dir))
		switch {
		case found && networked(m.kind) && agent:
			out = append(out, unsafe(config.UnsafeData, "set data.dir to a directory on a local disk", "data.dir %s is on %s: fsync may be unreliable there, and a hung server stops the node", dir, m.kind)...)
		case found && networked(m.kind):
			out = append(out, fail("set data.dir to a directory on a local disk", "data.dir %s is on %s: the log must be on a disk of this machine", dir, m.kind)...)
		case found && (m.kind == "tmpfs" || m.kind == "ramfs"):
			out = append(out, fail("set data.dir to a directory on a local disk", "data.dir %s is on %s: it is lost on reboot", dir, m.kind)...)
		}
		if info, err := os.Stat(h.path(dir)); err == nil && info.Mode().Perm()&0o022 != 0 {
			out = append(out, fail("chmod 700 "+dir, "data.dir %s is writable by others (mode %04o)", dir, info.Mode().Perm())...)
		}
		out = append(out, h.space("data.dir", dir, 10, 3)...)
	}
	if s.Coordinator != nil {
		look(s.Coordinator.Data.Dir, false)
	}
	if s.is(Agent) {
		look(agentOf(s).Data.Dir, true)
	}
	return out
}

// containerdDir is where packaged containerd keeps images.
const containerdDir = "/var/lib/containerd"

// images checks the disk of images: above 85 % unused ones are removed and
// above 90 % none are pulled.
func images(_ context.Context, h *Host, s *Subject) []Line {
	if !usesContainerd(h, agentOf(s)) {
		return nil
	}
	root := containerdDir
	for line := range strings.Lines(h.read("/etc/containerd/config.toml")) {
		name, value, found := strings.Cut(line, "=")
		if found && strings.TrimSpace(name) == "root" {
			root = strings.Trim(strings.TrimSpace(value), `"'`)
			break // the top level's comes first
		}
	}
	if !filepath.IsAbs(root) {
		root = containerdDir
	}
	return h.space("images", root, 15, 10)
}

// keys checks that secret files are not readable by others.
func keys(_ context.Context, h *Host, s *Subject) []Line {
	var files []string
	if a := s.Agent; a != nil {
		files = append(files, a.TLS.Key)
		if a.Gossip.Addr != "" {
			files = append(files, a.Gossip.KeyFile)
		}
	}
	if c := s.Coordinator; c != nil {
		files = append(files, c.TLS.Key, c.TLS.CAKey)
		if c.Gossip.Addr != "" {
			files = append(files, c.Gossip.KeyFile)
		}
	}
	var out []Line
	seen := map[string]bool{}
	for _, f := range files {
		if f == "" || seen[f] {
			continue
		}
		seen[f] = true
		switch _, err := safefile.ReadSecret(h.path(f), secretBytes); {
		case err == nil:
		case errors.Is(err, fs.ErrPermission):
			out = append(out, warn("run berth doctor as root", "%s cannot be read by this user", f)...)
		default:
			what, fix, _ := strings.Cut(err.Error(), "; run: ")
			out = append(out, fail(strings.ReplaceAll(fix, h.path(f), f), "%s", strings.ReplaceAll(what, h.path(f), f))...)
		}
	}
	if len(out) == 0 && len(seen) > 0 {
		return ok("%d files, not accessible to others", len(seen))
	}
	return out
}

// certificates checks how long the daemons' certificates remain valid.
func certificates(_ context.Context, h *Host, s *Subject) []Line {
	var out []Line
	if s.Coordinator != nil {
		out = append(out, certificate(h, s.Coordinator.TLS.Cert)...)
	}
	if s.Agent != nil {
		out = append(out, certificate(h, s.Agent.TLS.Cert)...)
	}
	return out
}

func certificate(h *Host, file string) []Line {
	data, err := safefile.Read(h.path(file), secretBytes)
	if errors.Is(err, fs.ErrPermission) {
		return warn("run berth doctor as root", "%s cannot be read by this user", file)
	}
	if err != nil {
		return fail("berth agent join, or berth cluster init", "%v", err)
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return fail("join again with a new token", "%s holds no certificate", file)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return fail("join again with a new token", "%s: %v", file, err)
	}
	now := h.Now()
	left, life := cert.NotAfter.Sub(now), cert.NotAfter.Sub(cert.NotBefore)
	days := func(d time.Duration) string { return fmt.Sprintf("%.1f days", d.Hours()/24) }
	switch {
	case now.Before(cert.NotBefore):
		return fail("set the clock", "%s is not yet valid: it begins at %s", file, cert.NotBefore.Format(time.RFC3339))
	case left <= 0:
		return fail("join again with a new token (berth token create, berth agent join)", "%s expired %s ago", file, days(-left))
	case left < life/5:
		return warn("see \"certificate not renewed\" in the daemon's log: it renews itself when a third of its lifetime is left", "%s is good for %s of %s", file, days(left), days(life))
	}
	return ok("%s is good for %s of %s", file, days(left), days(life))
}

package cluster

import (
	"path"
	"slices"
	"strings"
	"unicode/utf8"
)

// Network is the part of its node's network that a job sees.
type Network string

// The networks. A private one with a route out, a bridge, is not among them: gangs
// need the node's adapters and addresses.
const (
	NetHost Network = "host" // the node's
	NetNone Network = "none" // a loopback interface and nothing else
)

// Networks returns the networks that a job may ask for.
func Networks() []Network { return []Network{NetHost, NetNone} }

// Mount is a file or directory of the node that a job sees in its image. The node
// opens it with the job's own rights, where the operators allow it.
type Mount struct {
	// Source and Target are absolute paths, on the node and in the image.
	Source, Target string
	ReadOnly       bool
}

// Container is what a job asks of its container besides an image. The zero value
// takes the node's defaults.
type Container struct {
	// Network is "" for the default of the partition and node.
	Network Network
	Mounts  []Mount
	// ReadOnly keeps an image job from writing outside its mounts, /tmp, /run and
	// /dev/shm.
	ReadOnly bool
	// TmpMiB is the size of an image job's own /tmp, ShmMiB that of /dev/shm; 0 is
	// the node's default. Both count as the job's memory.
	TmpMiB, ShmMiB int64
}

// MaxMounts bounds Container.Mounts.
const MaxMounts = 32

// Set reports whether anything is asked for.
func (c *Container) Set() bool {
	return c.Network != "" || len(c.Mounts) > 0 || c.ReadOnly || c.TmpMiB != 0 || c.ShmMiB != 0
}

// ParseMount parses SOURCE:TARGET or SOURCE:TARGET:ro, or SOURCE alone for the same
// path in the image. Errors are *Error of CodeInvalid.
func ParseMount(text string) (Mount, error) {
	parts := strings.Split(text, ":")
	m := Mount{Source: parts[0], Target: parts[0]}
	switch {
	case len(parts) > 3:
		return m, Errorf(CodeInvalid, "mount %s: has %d colons; want SOURCE:TARGET or SOURCE:TARGET:ro, and no colon in a path", QuoteShort(text), len(parts)-1)
	case len(parts) == 3 && parts[2] != "ro" && parts[2] != "rw":
		return m, Errorf(CodeInvalid, "mount %s: ends in %s; want SOURCE:TARGET, or ro or rw after it", QuoteShort(text), QuoteShort(parts[2]))
	case len(parts) == 3:
		m.ReadOnly = parts[2] == "ro"
	}
	if len(parts) > 1 {
		m.Target = parts[1]
	}
	return m, m.check(QuoteShort(text))
}

// String returns the form that ParseMount parses.
func (m Mount) String() string {
	out := m.Source + ":" + m.Target
	if m.ReadOnly {
		out += ":ro"
	}
	return out
}

// ownTargets are places in a container that a job may not mount over.
var ownTargets = []string{"/proc", "/sys", "/dev"}

// neverMounted are places of the node that no operator can allow.
var neverMounted = []string{"/proc", "/sys", "/dev", "/etc"}

func (m Mount) check(shown string) error {
	for _, p := range []struct{ what, v string }{{"source", m.Source}, {"target", m.Target}} {
		switch {
		case !path.IsAbs(p.v) || path.Clean(p.v) != p.v:
			return Errorf(CodeInvalid, "mount %s: the %s must be an absolute path without '..', '.', double slashes or one at its end", shown, p.what)
		case p.v == "/":
			return Errorf(CodeInvalid, "mount %s: the %s is /; name a directory below it", shown, p.what)
		case len(p.v) > MaxPathLen:
			return Errorf(CodeInvalid, "mount %s: the %s has %d bytes, at most %d are allowed", shown, p.what, len(p.v), MaxPathLen)
		case !utf8.ValidString(p.v):
			return Errorf(CodeInvalid, "mount %s: the %s is not UTF-8", shown, p.what)
		case strings.ContainsAny(p.v, "\x00\n\r\x1b:,"):
			return Errorf(CodeInvalid, "mount %s: the %s holds a colon, a comma or a control character", shown, p.what)
		}
	}
	for _, own := range ownTargets {
		if below(m.Target, own) {
			return Errorf(CodeInvalid, "mount %s: the target is under %s, which belongs to the container", shown, own)
		}
	}
	for _, bad := range neverMounted {
		if below(m.Source, bad) {
			return Errorf(CodeInvalid, "mount %s: the source is under %s, which is never mounted", shown, bad)
		}
	}
	return nil
}

// below reports whether a clean path is dir or inside it.
func below(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }

// checkContainer bounds the container options.
func (s *Spec) checkContainer() error {
	c := &s.Container
	if c.Network == NetNone && s.Nodes > 1 {
		return Errorf(CodeInvalid, "net and nodes: a job on %d nodes needs their network; drop --net none, or ask for one node", s.Nodes)
	}
	if c.Network != "" && !slices.Contains(Networks(), c.Network) {
		return Errorf(CodeInvalid, "net %s: must be host or none", QuoteShort(string(c.Network)))
	}
	if len(c.Mounts) > MaxMounts {
		return Errorf(CodeInvalid, "mount: %d of them, at most %d are allowed; mount a parent directory", len(c.Mounts), MaxMounts)
	}
	targets := map[string]struct{}{}
	for _, m := range c.Mounts {
		if err := m.check(QuoteShort(m.String())); err != nil {
			return err
		}
		if _, twice := targets[m.Target]; twice {
			return Errorf(CodeInvalid, "mount: target %s is named twice", QuoteShort(m.Target))
		}
		targets[m.Target] = struct{}{}
	}
	for _, v := range []struct {
		field string
		mib   int64
	}{{"tmp", c.TmpMiB}, {"shm", c.ShmMiB}} {
		if v.mib < 0 || v.mib > MaxMemMiB {
			return Errorf(CodeInvalid, "%s: %d MiB is outside 0 to %d", v.field, v.mib, MaxMemMiB)
		}
		if v.mib > 0 && s.MemMiB > 0 && v.mib > s.MemMiB {
			return Errorf(CodeInvalid, "%s and mem: %d MiB of files in memory are more than the job's memory of %d MiB, in which they count; ask for more with --mem", v.field, v.mib, s.MemMiB)
		}
	}
	if s.Image == "" {
		switch {
		case len(c.Mounts) > 0:
			return Errorf(CodeInvalid, "mount and image: a job without an image sees the node's own files; drop --mount, or name an image")
		case c.ReadOnly:
			return Errorf(CodeInvalid, "read_only and image: a job without an image works on the node's own files; drop --read-only, or name an image")
		case c.TmpMiB > 0:
			return Errorf(CodeInvalid, "tmp and image: a job without an image uses the node's own /tmp; drop --tmp, or name an image")
		}
	}
	return nil
}

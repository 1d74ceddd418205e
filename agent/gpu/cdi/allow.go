package cdi

import (
	"cmp"
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"
)

// class is the class of a device node.
type class uint8

const (
	classNone     class = iota // not the driver's
	classCard                  // one GPU
	classControl               // shared by all that use any GPU
	classCaps                  // opens MIG instances
	classGraphics              // displays and rendering
	classIMEX                  // memory of other nodes
	classOther                 // the driver's, but never for jobs: switches
)

// classes are matched against the path below the device directory.
var classes = []struct {
	class class
	name  func() *regexp.Regexp
}{
	{classCard, pattern(`^nvidia(0|[1-9][0-9]{0,3})$`)},
	{classControl, pattern(`^nvidia(ctl|-uvm|-uvm-tools)$`)},
	{classCaps, pattern(`^nvidia-caps/nvidia-cap[0-9]{1,5}$`)},
	{classGraphics, pattern(`^(nvidia-modeset|dri/(card|renderD)[0-9]{1,4})$`)},
	{classIMEX, pattern(`^nvidia-caps-imex-channels/channel[0-9]{1,5}$`)},
	{classOther, pattern(`^nvidia-(nvswitch|nvlink)[a-z0-9]*$`)},
}

// classOf returns the class of a device node by its path in the container, which the
// specification always has below /dev.
func (in *Injector) classOf(p string) class {
	rest, ok := strings.CutPrefix(p, "/dev/")
	if !ok {
		return classNone
	}
	for _, c := range classes {
		if c.name().MatchString(rest) {
			return c.class
		}
	}
	return classNone
}

// given reports whether jobs get nodes of a class requested by a device of this name, or with
// "" by the whole specification.
func (in *Injector) given(c class, device string) bool {
	switch c {
	case classCard:
		return device != ""
	case classControl:
		return true
	case classCaps: // only with the instance that they open
		return strings.HasPrefix(device, "MIG-")
	case classGraphics:
		return slices.Contains(in.cfg.Extra, Graphics)
	case classIMEX:
		return slices.Contains(in.cfg.Extra, IMEX)
	default:
		return false
	}
}

func hostPath(n *specs.DeviceNode) string {
	return cmp.Or(n.HostPath, n.Path)
}

// allow checks one set of edits.
func (in *Injector) allow(where string, e *specs.ContainerEdits) error {
	for _, n := range []int{len(e.DeviceNodes), len(e.Mounts), len(e.Hooks), len(e.Env)} {
		if n > maxEdits {
			return fmt.Errorf("%s: %d entries of one kind, want at most %d", where, n, maxEdits)
		}
	}
	switch {
	case len(e.NetDevices) > 0:
		return fmt.Errorf("%s: asks for network devices, which are no GPUs", where)
	case e.IntelRdt != nil:
		return fmt.Errorf("%s: asks for intelRdt, which is no GPU's", where)
	case len(e.AdditionalGIDs) > 0:
		return fmt.Errorf("%s: adds groups %v to the job's user; make the device nodes accessible to users instead", where, e.AdditionalGIDs)
	}
	for _, n := range e.DeviceNodes {
		if err := in.allowNode(n); err != nil {
			return fmt.Errorf("%s: %w", where, err)
		}
	}
	for _, m := range e.Mounts {
		if err := allowMount(m); err != nil {
			return fmt.Errorf("%s: %w", where, err)
		}
	}
	for _, h := range e.Hooks {
		if err := in.allowHook(h); err != nil {
			return fmt.Errorf("%s: %w", where, err)
		}
	}
	for _, v := range e.Env {
		if err := allowEnv(v); err != nil {
			return fmt.Errorf("%s: %w", where, err)
		}
	}
	return nil
}

func (in *Injector) allowNode(n *specs.DeviceNode) error {
	if n == nil {
		return fmt.Errorf("an empty device node")
	}
	if err := plainPath(n.Path); err != nil {
		return fmt.Errorf("device node: %w", err)
	}
	c := in.classOf(n.Path)
	if c == classNone {
		return fmt.Errorf("device node %q is none of the NVIDIA driver's below /dev", n.Path)
	}
	if n.Type != "" && n.Type != "c" {
		return fmt.Errorf("device node %s is of type %.10q, want c", n.Path, n.Type)
	}
	if strings.Trim(n.Permissions, "rwm") != "" {
		return fmt.Errorf("device node %s has permissions %.20q, want of r, w and m", n.Path, n.Permissions)
	}
	if n.UID != nil && *n.UID != 0 || n.GID != nil && *n.GID != 0 {
		return fmt.Errorf("device node %s is to belong to another user than root or the job's", n.Path)
	}
	h := hostPath(n)
	if err := plainPath(h); err != nil {
		return fmt.Errorf("device node %s: %w", n.Path, err)
	}
	for _, root := range []string{in.cfg.DeviceDir, "/dev", "/run/nvidia/driver/dev"} {
		if rest, ok := strings.CutPrefix(h, root+"/"); ok && in.classOf("/dev/"+rest) == c && (c == classGraphics || "/dev/"+rest == n.Path) {
			return nil
		}
	}
	return fmt.Errorf("device node %s is %s on the node, want the same name below %s", n.Path, h, in.cfg.DeviceDir)
}

// places returns where the driver's files are. Those that may be written (sockets of its
// daemons) are separate from read-only ones.
func places() (readOnly, writable []string) {
	return []string{"/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/opt/nvidia", "/etc/vulkan", "/etc/OpenCL", "/etc/glvnd", "/etc/egl", "/etc/nvidia", "/run/nvidia/driver"},
		[]string{"/run/nvidia-persistenced", "/var/run/nvidia-persistenced", "/run/nvidia-fabricmanager", "/var/run/nvidia-fabricmanager"}
}

var mountOptions = pattern(`^(ro|rw|nosuid|nodev|noexec|bind|rbind|private|rprivate|slave|rslave)$`)

func allowMount(m *specs.Mount) error {
	if m == nil {
		return fmt.Errorf("an empty mount")
	}
	if m.Type != "" && m.Type != "bind" && m.Type != "none" {
		return fmt.Errorf("mount of %q is of type %.20q, want bind", m.HostPath, m.Type)
	}
	for _, p := range []string{m.HostPath, m.ContainerPath} {
		if err := plainPath(p); err != nil {
			return fmt.Errorf("mount: %w", err)
		}
	}
	for _, o := range m.Options {
		if !mountOptions().MatchString(o) {
			return fmt.Errorf("mount of %s has option %.40q", m.HostPath, o)
		}
	}
	if _, ok := mountMode(m); !ok {
		return fmt.Errorf("mount of %s at %s is none of the driver's files", m.HostPath, m.ContainerPath)
	}
	return nil
}

// mountMode reports whether a mount is the driver's, and if so whether it may be writable. Both
// ends must be of the same sort, and be a file in its place, not the place itself.
func mountMode(m *specs.Mount) (writable, ok bool) {
	ro, rw := places()
	in := func(p string, dirs []string) bool {
		return slices.ContainsFunc(dirs, func(d string) bool { return strings.HasPrefix(p, d+"/") })
	}
	sock := func(p string) bool { return in(p, rw) || p == mpsPipe }
	target := strings.TrimPrefix(m.HostPath, "/run/nvidia/driver")
	switch {
	case sock(m.HostPath) && sock(m.ContainerPath):
		return true, true
	case in(m.HostPath, ro) && in(m.ContainerPath, ro) && deep(target) && deep(m.ContainerPath):
		return false, true
	}
	return false, false
}

// deep rejects what is directly in a place: /usr/lib, /etc/nvidia.
func deep(p string) bool {
	return strings.Count(p, "/") >= 3 || strings.HasPrefix(p, "/lib/lib") || strings.HasPrefix(p, "/lib64/lib")
}

// hookFlags returns the toolkit's hooks that we run, and the flags that they accept.
func hookFlags() map[string][]string {
	return map[string][]string{
		"create-symlinks":                  {"--link"},
		"update-ldcache":                   {"--folder", "--ldconfig-path"},
		"chmod":                            {"--mode", "--path"},
		"enable-cuda-compat":               {"--host-driver-version", "--host-cuda-version", "--cuda-compat-mode"},
		"disable-device-node-modification": nil,
		"update-application-profile":       {"--device", "--gpu"},
		"apply-cuda-memory-limits":         {"--device", "--gpu", "--uuid"},
	}
}

var ldconfigPath = pattern(`^@?(/usr)?/sbin/ldconfig(\.real)?$`)

// allowHook accepts hooks of the toolkit, by absolute path and with valid arguments. Anything
// else that a specification names would be run as root.
func (in *Injector) allowHook(h *specs.Hook) error {
	if h == nil {
		return fmt.Errorf("an empty hook")
	}
	if !slices.Contains(in.cfg.Hooks, h.Path) {
		return fmt.Errorf("hook %q is none of the toolkit's (%s)", h.Path, strings.Join(in.cfg.Hooks, ", "))
	}
	if h.HookName != "createContainer" {
		return fmt.Errorf("hook %s runs at %.40q, want createContainer", h.Path, h.HookName)
	}
	args := h.Args
	if len(args) > 0 {
		args = args[1:] // its own name
	}
	if path.Base(h.Path) == "nvidia-ctk" && len(args) > 0 && args[0] == "hook" {
		args = args[1:]
	}
	if len(args) == 0 {
		return fmt.Errorf("hook %s has no command", h.Path)
	}
	flags, known := hookFlags()[args[0]]
	if !known {
		return fmt.Errorf("hook %s runs %.60q, which jobs need nothing of", h.Path, args[0])
	}
	for i := 1; i < len(args); i++ {
		flag, value, joined := strings.Cut(args[i], "=")
		if !slices.Contains(flags, flag) {
			return fmt.Errorf("hook %s has argument %.60q", args[0], args[i])
		}
		if !joined {
			if i++; i == len(args) {
				return fmt.Errorf("hook %s: %s without a value", args[0], flag)
			}
			value = args[i]
		}
		if err := allowArg(flag, value); err != nil {
			return fmt.Errorf("hook %s: %w", args[0], err)
		}
	}
	return nil
}

var plainArg = pattern(`^[A-Za-z0-9._:/+@,-]{1,1000}$`)

func allowArg(flag, value string) error {
	if !plainArg().MatchString(value) {
		return fmt.Errorf("%s %.60q has characters that no path of the driver has", flag, value)
	}
	switch flag {
	case "--link": // TARGET::LINK; a target may be relative to its link
		_, link, ok := strings.Cut(value, "::")
		if !ok || plainPath(link) != nil {
			return fmt.Errorf("%s %.200q, want TARGET::LINK with an absolute link", flag, value)
		}
	case "--folder", "--path":
		return plainPath(value)
	case "--ldconfig-path":
		if !ldconfigPath().MatchString(value) {
			return fmt.Errorf("%s %.200q, want /sbin/ldconfig", flag, value)
		}
	}
	return nil
}

var envName = pattern(`^NVIDIA_[A-Z0-9_]{1,64}$`)

func allowEnv(v string) error {
	name, value, ok := strings.Cut(v, "=")
	switch {
	case !ok || !envName().MatchString(name):
		return fmt.Errorf("variable %.80q, want NVIDIA_NAME=value", v)
	case name == "NVIDIA_VISIBLE_DEVICES" && value != "void" && value != "none":
		return fmt.Errorf("NVIDIA_VISIBLE_DEVICES is %.80q, want void: a specification names its devices by itself", value)
	case !plainArg().MatchString(value) && value != "":
		return fmt.Errorf("variable %s has characters that no path of the driver has", name)
	}
	return nil
}

// plainPath requires a clean absolute path.
func plainPath(p string) error {
	if !filepath.IsAbs(p) || filepath.Clean(p) != p || len(p) > 4096 || strings.ContainsAny(p, "\x00\n") {
		return fmt.Errorf("%.200q is no absolute path without dots", p)
	}
	return nil
}

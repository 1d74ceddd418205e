// Package cdi gives jobs their GPUs: by the device specifications that NVIDIA's toolkit writes
// (Container Device Interface, "nvidia-ctk cdi generate"), and in no other way. It treats them
// as instructions to root on this node, and so takes nothing on trust: every device node,
// mount, hook and variable must be of a known kind, or the file is refused.
package cdi

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"
)

// Qualifier is the kind of device that jobs get: the part before "=" in a qualified device
// name.
const Qualifier = "nvidia.com/gpu"

// Class is a class of device nodes that jobs may get in addition to the nodes of their GPUs.
type Class string

// The classes that a site may add.
const (
	// Graphics are nvidia-modeset and the nodes below /dev/dri.
	Graphics Class = "graphics"
	// IMEX are the channels through which nodes share memory over NVLink.
	IMEX Class = "imex"
)

// Config says where specifications are and what they may request. The zero value suits a normal
// node.
type Config struct {
	// Dirs are searched for *.yaml and *.json; if two files define a device, the one in the
	// later directory wins. Empty means the usual /etc/cdi and /var/run/cdi.
	Dirs []string
	// DeviceDir is where device nodes are, "/dev" when empty. The node's own file of a device
	// may also be below a driver root, /run/nvidia/driver.
	DeviceDir string
	// DriverDir is where the driver describes itself, "/proc/driver/nvidia" when empty.
	DriverDir string
	// Hooks are the programs that may be run as hooks, by absolute path; the toolkit's usual
	// paths when empty.
	Hooks []string
	// Extra are classes of device nodes that jobs get in addition to their GPUs.
	Extra []Class
	// AnyOwner accepts files that do not belong to root, or that others may write. For tests.
	AnyOwner bool
}

// Injector determines what a container needs for its GPUs. It caches nothing: each call reads
// the specifications afresh, since a new driver brings new ones. Its methods are safe for
// concurrent use.
type Injector struct{ cfg Config }

// New returns an Injector, with defaults for what cfg leaves empty.
func New(cfg Config) (*Injector, error) {
	if len(cfg.Dirs) == 0 {
		cfg.Dirs = []string{"/etc/cdi", "/var/run/cdi"}
	}
	cfg.DeviceDir = cmp.Or(cfg.DeviceDir, "/dev")
	cfg.DriverDir = cmp.Or(cfg.DriverDir, "/proc/driver/nvidia")
	if len(cfg.Hooks) == 0 {
		cfg.Hooks = defaultHooks()
	}
	for _, p := range append(append([]string{cfg.DeviceDir, cfg.DriverDir}, cfg.Dirs...), cfg.Hooks...) {
		if !filepath.IsAbs(p) || filepath.Clean(p) != p {
			return nil, fmt.Errorf("CDI: %q is no absolute path without dots", p)
		}
	}
	for _, c := range cfg.Extra {
		if c != Graphics && c != IMEX {
			return nil, fmt.Errorf("CDI: class of devices %q, want %s or %s", c, Graphics, IMEX)
		}
	}
	return &Injector{cfg: cfg}, nil
}

// defaultHooks returns where the toolkit's packages, its container and a build from source
// install its programs.
func defaultHooks() []string {
	var out []string
	for _, dir := range []string{"/usr/bin", "/usr/local/bin", "/usr/local/nvidia/toolkit", "/opt/nvidia-container-toolkit/bin"} {
		out = append(out, dir+"/nvidia-cdi-hook", dir+"/nvidia-ctk")
	}
	return out
}

// Fault is why a GPU cannot be given to jobs.
type Fault string

// The faults; their values are stable.
const (
	// Missing: there is no GPU specification.
	Missing Fault = "missing"
	// Lacks: the specifications lack the GPU.
	Lacks Fault = "lacks"
	// Stale: the specification is for another driver, or other GPUs, than the present ones.
	Stale Fault = "stale"
	// Gone: a device node does not exist.
	Gone Fault = "gone"
	// Refused: the specification requests what no job may have, or cannot be read.
	Refused Fault = "refused"
)

// Error is what keeps GPUs from jobs, and how to fix it. It is one line.
type Error struct {
	Fault Fault
	// File is the specification, UUID the GPU; either may be empty.
	File, UUID string
	// Text says what is wrong, Fix is a command that fixes it.
	Text, Fix string
}

// Error implements error.
func (e *Error) Error() string {
	var b strings.Builder
	if e.File != "" {
		b.WriteString(e.File + ": ")
	}
	b.WriteString(e.Text)
	if e.Fix != "" {
		b.WriteString("; run: " + e.Fix)
	}
	return b.String()
}

// Generate returns the command that writes the specification file.
func Generate(file string) string {
	return "nvidia-ctk cdi generate --device-name-strategy=uuid --output=" + file
}

const defaultFile = "/etc/cdi/nvidia.yaml"

// regenerate returns the command for an existing file: one below /run belongs to the toolkit's
// service, which would overwrite ours.
func regenerate(file string) string {
	if strings.HasPrefix(file, "/run/") || strings.HasPrefix(file, "/var/run/") {
		return Generate(file) + " (or: systemctl restart nvidia-cdi-refresh.service)"
	}
	return Generate(file)
}

// Name returns the qualified name of a GPU.
func Name(uuid string) string { return Qualifier + "=" + uuid }

// Grant returns the qualified device names of GPUs, after checking that each can be given: the
// specification exists, matches this driver and these GPUs, and its device nodes exist. The
// error is an *Error.
func (in *Injector) Grant(uuids []string) ([]string, error) {
	var names []string
	if len(uuids) == 0 {
		return nil, nil
	}
	set, err := in.load()
	if err != nil {
		return nil, err
	}
	for _, u := range uuids {
		if _, err := in.device(set, u); err != nil {
			return nil, err
		}
		names = append(names, Name(u))
	}
	return names, nil
}

// device returns a GPU's device and the specification that defines it, checked against the
// current state of the node.
func (in *Injector) device(set *specSet, uuid string) (*found, error) {
	f, err := set.find(uuid)
	if err != nil {
		return nil, err
	}
	if err := in.fresh(f); err != nil {
		return nil, err
	}
	return f, in.nodesThere(f)
}

// found is a device in its specification.
type found struct {
	file string
	spec *specs.Spec
	dev  *specs.Device
}

// Nodes returns the paths of the device nodes of a GPU, or of an instance, on this node,
// without those that all GPUs share.
func (in *Injector) Nodes(uuid string) ([]string, error) {
	set, err := in.load()
	if err != nil {
		return nil, err
	}
	f, err := in.device(set, uuid)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, n := range f.dev.ContainerEdits.DeviceNodes {
		if c := in.classOf(n.Path); c == classCard || c == classCaps && in.given(c, uuid) {
			out = append(out, hostPath(n))
		}
	}
	return out, nil
}

// Cards returns the names of the devices in the specifications, sorted, without "all" and
// without indices; for messages and tests.
func (in *Injector) Cards() ([]string, error) {
	set, err := in.load()
	if err != nil {
		return nil, err
	}
	return set.uuids(), nil
}

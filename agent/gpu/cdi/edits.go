package cdi

import (
	"fmt"
	"slices"
	"strings"

	"tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"
)

// Root is the kind of root that a job has.
type Root uint8

// The kinds of root.
const (
	// HostRoot is the node's own file system, which has the driver's files: such a job gets
	// device nodes and the rules for them.
	HostRoot Root = iota
	// ImageRoot is an image, into which the driver's files are mounted and registered by the
	// toolkit's hooks.
	ImageRoot
)

// HookEnv returns the whole environment of a hook. Without one, a hook would inherit that of
// the container's first process, including an image's LD_PRELOAD, as root (CVE-2025-23266).
func HookEnv() []string {
	return []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "NVIDIA_CTK_DEBUG=false"}
}

// Edits returns what a container needs for exactly the named devices. The error is an *Error
// where the node is at fault.
func (in *Injector) Edits(names []string, root Root) (*cdi.ContainerEdits, error) {
	out := &cdi.ContainerEdits{ContainerEdits: &specs.ContainerEdits{}}
	if len(names) == 0 {
		return out, nil
	}
	set, err := in.load()
	if err != nil {
		return nil, err
	}
	seen := map[string]struct{}{}
	files := map[string]struct{}{}
	for _, name := range names {
		uuid, ok := strings.CutPrefix(name, Qualifier+"=")
		if !ok {
			return nil, fmt.Errorf("CDI: device %q is not of kind %s", name, Qualifier)
		}
		if _, dup := seen[uuid]; dup {
			return nil, fmt.Errorf("CDI: device %s is named twice", uuid)
		}
		seen[uuid] = struct{}{}
		f, err := in.device(set, uuid)
		if err != nil {
			return nil, err
		}
		if _, done := files[f.file]; !done {
			files[f.file] = struct{}{}
			in.add(out.ContainerEdits, &f.spec.ContainerEdits, "", root)
		}
		in.add(out.ContainerEdits, &f.dev.ContainerEdits, uuid, root)
	}
	return out, nil
}

// add adds the part of a set of edits that jobs get.
func (in *Injector) add(to, from *specs.ContainerEdits, device string, root Root) {
	for _, n := range from.DeviceNodes {
		if !in.given(in.classOf(n.Path), device) || slices.ContainsFunc(to.DeviceNodes, func(have *specs.DeviceNode) bool { return have.Path == n.Path }) {
			continue
		}
		// No "m": a job that has the node need not create one.
		to.DeviceNodes = append(to.DeviceNodes, &specs.DeviceNode{
			Path: n.Path, HostPath: hostPath(n), Type: "c", Major: n.Major, Minor: n.Minor, FileMode: n.FileMode, Permissions: "rw",
		})
	}
	if root == HostRoot {
		return
	}
	to.Env = append(to.Env, from.Env...)
	for _, m := range from.Mounts {
		if m.HostPath == mpsPipe {
			continue
		}
		options := []string{"rbind", "nosuid", "nodev", "rprivate"}
		if writable, _ := mountMode(m); !writable {
			options = append(options, "ro")
		} else {
			options = append(options, "noexec")
		}
		to.Mounts = append(to.Mounts, &specs.Mount{HostPath: m.HostPath, ContainerPath: m.ContainerPath, Type: "bind", Options: options})
	}
	for _, h := range from.Hooks {
		args := h.Args
		if !in.hookServes(h) {
			continue
		}
		to.Hooks = append(to.Hooks, &specs.Hook{HookName: h.HookName, Path: h.Path, Args: args, Env: HookEnv(), Timeout: h.Timeout})
	}
}

// hookServes reports false for hooks for nodes that the job does not get: chmod of /dev/dri
// would fail without one.
func (in *Injector) hookServes(h *specs.Hook) bool {
	if slices.Contains(in.cfg.Extra, Graphics) {
		return true
	}
	return !slices.ContainsFunc(h.Args, func(a string) bool { return strings.Contains(a, "/dev/dri") })
}

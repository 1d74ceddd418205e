package cdi

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	specs "tags.cncf.io/container-device-interface/specs-go"
)

var (
	// The kernel module writes "NVRM version: NVIDIA UNIX x86_64 Kernel Module
	// 570.133.20  ..." and, when it is the open one, "... for x86_64  570.133.20".
	driverVersion  = pattern(`(?m)^NVRM version:.*?\s(\d{3,4}\.\d{1,4}(?:\.\d{1,4})?)\s`)
	libraryVersion = pattern(`\.so\.(\d{3,4}\.\d{1,4}(?:\.\d{1,4})?)$`)
	infoUUID       = pattern(`(?m)^GPU UUID:\s*(GPU-[0-9a-fA-F-]+)`)
	infoMinor      = pattern(`(?m)^Device Minor:\s*(\d+)`)
)

// DriverVersion returns the version of the running kernel module, or "" if none is running or
// it does not say.
func (in *Injector) DriverVersion() string {
	data, err := os.ReadFile(filepath.Join(in.cfg.DriverDir, "version"))
	if err != nil {
		return ""
	}
	if m := driverVersion().FindSubmatch(data); m != nil {
		return string(m[1])
	}
	return ""
}

// specVersion returns the version of the driver that a specification was made for, or "".
func specVersion(s *specs.Spec) string {
	for _, h := range s.ContainerEdits.Hooks {
		for _, a := range h.Args {
			if v, ok := strings.CutPrefix(a, "--host-driver-version="); ok {
				return v
			}
		}
	}
	for _, m := range s.ContainerEdits.Mounts {
		if !strings.HasPrefix(path.Base(m.HostPath), "lib") {
			continue
		}
		if v := libraryVersion().FindStringSubmatch(m.HostPath); v != nil {
			return v[1]
		}
	}
	return ""
}

// minors returns the current number of each GPU's device node according to the driver; empty
// when it does not say.
func (in *Injector) minors() map[string]string {
	out := map[string]string{}
	files, _ := filepath.Glob(filepath.Join(in.cfg.DriverDir, "gpus", "*", "information"))
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		uuid, minor := infoUUID().FindSubmatch(data), infoMinor().FindSubmatch(data)
		if uuid != nil && minor != nil {
			out[strings.ToLower(string(uuid[1]))] = string(minor[1])
		}
	}
	return out
}

// fresh compares a device with the running driver: GPUs may be renumbered after a boot, and the
// files of an older driver are gone, or worse, still there.
func (in *Injector) fresh(f *found) error {
	stale := func(format string, args ...any) error {
		return &Error{Fault: Stale, File: f.file, UUID: f.dev.Name, Text: fmt.Sprintf(format, args...), Fix: regenerate(f.file)}
	}
	runs, made := in.DriverVersion(), specVersion(f.spec)
	if runs != "" && made != "" && runs != made {
		return stale("was made for driver %s, and %s runs", made, runs)
	}
	if minor, ok := in.minors()[strings.ToLower(f.dev.Name)]; ok {
		for _, n := range f.dev.ContainerEdits.DeviceNodes {
			if in.classOf(n.Path) == classCard && n.Path != "/dev/nvidia"+minor {
				return stale("has %s as %s, and now it is /dev/nvidia%s", f.dev.Name, n.Path, minor)
			}
		}
	}
	for _, e := range []*specs.ContainerEdits{&f.spec.ContainerEdits, &f.dev.ContainerEdits} {
		for _, m := range e.Mounts {
			if m.HostPath == mpsPipe {
				continue
			}
			check := sound
			if writable, _ := mountMode(m); writable {
				check = soundSocket
			}
			if err := check(m.HostPath); errors.Is(err, fs.ErrNotExist) {
				return stale("names %s, which is not there", m.HostPath)
			} else if err != nil {
				return &Error{Fault: Refused, File: f.file, UUID: f.dev.Name, Text: fmt.Sprintf("mounts %s, and %v", m.HostPath, err)}
			}
		}
		for _, h := range e.Hooks {
			if unix.Access(h.Path, unix.X_OK) != nil {
				return stale("names the hook %s, which is not there or cannot be run (install nvidia-container-toolkit-base)", h.Path)
			}
			if err := sound(h.Path); err != nil {
				return &Error{Fault: Refused, File: f.file, UUID: f.dev.Name, Text: fmt.Sprintf("runs the hook %s as root, and %v", h.Path, err)}
			}
		}
	}
	return nil
}

// nodesThere checks that the device nodes that a job would get exist, and match their names.
func (in *Injector) nodesThere(f *found) error {
	check := func(n *specs.DeviceNode) error {
		h := hostPath(n)
		gone := func(text, fix string) error {
			return &Error{Fault: Gone, File: f.file, UUID: f.dev.Name, Text: h + " " + text, Fix: fix}
		}
		info, err := os.Lstat(h)
		if errors.Is(err, fs.ErrNotExist) {
			return gone("is not there; the driver is not loaded, or the card fell off", "nvidia-modprobe -c 0 -u && nvidia-smi -L && "+Generate(f.file))
		}
		if err != nil {
			return gone(err.Error(), "")
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok || info.Mode()&fs.ModeCharDevice == 0 {
			return gone("is not a character device", "rm "+h+" && nvidia-modprobe -c 0 -u")
		}
		major, minor := int64(unix.Major(st.Rdev)), int64(unix.Minor(st.Rdev))
		if (n.Major != 0 || n.Minor != 0) && (n.Major != major || n.Minor != minor) {
			return &Error{Fault: Stale, File: f.file, UUID: f.dev.Name, Fix: regenerate(f.file),
				Text: fmt.Sprintf("has %s as device %d:%d, and now it is %d:%d", n.Path, n.Major, n.Minor, major, minor)}
		}
		return nil
	}
	for _, n := range in.granted(f) {
		if err := check(n); err != nil {
			return err
		}
	}
	return nil
}

// granted returns the device nodes that a job with this device gets.
func (in *Injector) granted(f *found) []*specs.DeviceNode {
	var out []*specs.DeviceNode
	for _, n := range f.spec.ContainerEdits.DeviceNodes {
		if in.given(in.classOf(n.Path), "") {
			out = append(out, n)
		}
	}
	for _, n := range f.dev.ContainerEdits.DeviceNodes {
		if in.given(in.classOf(n.Path), f.dev.Name) {
			out = append(out, n)
		}
	}
	return out
}

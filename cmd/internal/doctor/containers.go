package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/berth-scheduler/berth/agent/gpu/cdi"
	"github.com/berth-scheduler/berth/agent/holes"
	"github.com/berth-scheduler/berth/cmd/internal/config"
)

// usesContainerd reports whether jobs run under containerd.
func usesContainerd(h *Host, a *config.Agent) bool {
	return a.Runtime.Kind == "containerd" || a.Runtime.Kind == "auto" && h.exists(a.Runtime.Containerd.Socket)
}

func containerd(ctx context.Context, h *Host, s *Subject) []Line {
	a := agentOf(s)
	if !usesContainerd(h, a) {
		return warn("install containerd and runc", "no socket at %s: jobs run as plain processes, without images and without rules for devices", a.Runtime.Containerd.Socket)
	}
	if err := h.Dial(ctx, "unix", a.Runtime.Containerd.Socket); err != nil {
		return fail("systemctl enable --now containerd", "%s does not answer: %v", a.Runtime.Containerd.Socket, err)
	}
	text, err := h.Run(ctx, "containerd", "--version")
	if err != nil {
		return warn("", "answers; its version is unknown: %v", err)
	}
	return judge(holes.Containerd, text)
}

func runc(ctx context.Context, h *Host, s *Subject) []Line {
	if !usesContainerd(h, agentOf(s)) {
		return nil
	}
	text, err := h.Run(ctx, "runc", "--version")
	if errors.Is(err, errAbsent) {
		return fail("install runc, and see the PATH of containerd's unit", "%v", err)
	}
	if err != nil {
		return fail("reinstall runc", "runc --version: %v", err)
	}
	first, _, _ := strings.Cut(text, "\n")
	return judge(holes.Runc, first)
}

// judge compares a version with the table. A severe hole in a maker's own
// release is a failure; distributions fix holes without changing the
// number, so for theirs a person has to find out.
func judge(c holes.Component, text string) []Line {
	v, known := holes.ParseVersion(text)
	if !known {
		return warn("", "version %.80q cannot be read", text)
	}
	var out []Line
	var minor []string
	for _, hole := range holes.Of(c, v) {
		fix := fmt.Sprintf("install %s %s or later", c, hole.Fix(v))
		switch {
		case !hole.Severe:
			minor = append(minor, hole.CVE+" ("+hole.What+")")
		case holes.Packaged(text):
			out = append(out, warn(fix+", or check your distribution's advisories that its package has the fix", "%s %s has %s by its number: %s", c, v, hole.CVE, hole.What)...)
		default:
			out = append(out, unsafe(hole.Key(), fix, "%s %s has %s: %s", c, v, hole.CVE, hole.What)...)
		}
	}
	if len(minor) > 0 {
		out = append(out, warn(fmt.Sprintf("install %s %s or later", c, newest(c, v)), "%s %s: %s", c, v, strings.Join(minor, "; "))...)
	}
	if len(out) == 0 {
		return ok("%s", v)
	}
	return out
}

// newest returns the release without any hole of v.
func newest(c holes.Component, v holes.Version) holes.Version {
	for {
		list := holes.Of(c, v)
		if len(list) == 0 {
			return v
		}
		for _, hole := range list {
			if f := hole.Fix(v); v.Less(f) {
				v = f
			}
		}
	}
}

// wantsCards reports whether the node is to offer the driver's GPUs.
func wantsCards(s *Subject) bool { return agentOf(s).GPUs.Provider == "nvml" }

func injector(h *Host, a *config.Agent) (*cdi.Injector, error) {
	c := cdi.Config{DeviceDir: h.path("/dev"), DriverDir: h.path("/proc/driver/nvidia")}
	for _, d := range a.GPUs.CDI.Dirs {
		c.Dirs = append(c.Dirs, h.path(d))
	}
	if h.Root != "" { // a recorded machine
		c.Hooks = []string{h.path("/usr/bin/nvidia-cdi-hook")}
	}
	return cdi.New(c)
}

func driver(_ context.Context, h *Host, s *Subject) []Line {
	if !wantsCards(s) {
		return ok("not needed: gpus.provider is %s", agentOf(s).GPUs.Provider)
	}
	in, err := injector(h, agentOf(s))
	if err != nil {
		return fail("", "%v", err)
	}
	v := in.DriverVersion()
	if v == "" {
		return fail("install NVIDIA's driver, and see dmesg and lsmod for the module nvidia; a node without GPUs sets gpus.provider: none", "no NVIDIA driver is loaded")
	}
	n := len(h.cardNodes())
	if n == 0 {
		return fail("nvidia-modprobe -c 0 -u; enable nvidia-persistenced", "%s is loaded, but /dev has no nvidia0: no card, or no device nodes", v)
	}
	return ok("%s with %d card nodes", v, n)
}

var cardNode = regexp.MustCompile(`^nvidia\d+$`)

func (h *Host) cardNodes() []string {
	entries, err := os.ReadDir(h.path("/dev"))
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		if cardNode.MatchString(e.Name()) {
			out = append(out, "/dev/"+e.Name())
		}
	}
	return out
}

func toolkit(ctx context.Context, h *Host, s *Subject) []Line {
	if !wantsCards(s) {
		return nil
	}
	text, err := h.Run(ctx, "nvidia-ctk", "--version")
	if errors.Is(err, errAbsent) {
		return fail("install nvidia-container-toolkit-base (the base package is enough)", "%v", err)
	}
	if err != nil {
		return fail("reinstall nvidia-container-toolkit-base", "nvidia-ctk --version: %v", err)
	}
	first, _, _ := strings.Cut(text, "\n")
	return judge(holes.Toolkit, first)
}

// deviceSpecs checks the specifications of every GPU as a job would use them.
func deviceSpecs(_ context.Context, h *Host, s *Subject) []Line {
	if !wantsCards(s) {
		return nil
	}
	in, err := injector(h, agentOf(s))
	if err != nil {
		return fail("", "%v", err)
	}
	names, err := in.Cards()
	if err != nil {
		return []Line{cdiLine(h, err)}
	}
	if len(names) == 0 {
		return fail(cdi.Generate("/etc/cdi/nvidia.yaml"), "the specifications name no card by its UUID")
	}
	var out []Line
	good := 0
	for _, n := range names {
		if _, err := in.Grant([]string{n}); err != nil {
			if l := cdiLine(h, err); !slices.Contains(out, l) {
				out = append(out, l)
			}
			continue
		}
		good++
	}
	if good > 0 {
		out = append(ok("%d of %d devices can be given to jobs", good, len(names)), out...)
	}
	return out
}

// cdiLine splits an error of package cdi into the problem and its fix.
func cdiLine(h *Host, err error) Line {
	l := Line{Status: Fail, Text: err.Error()}
	if e, ok := errors.AsType[*cdi.Error](err); ok {
		l.Text, l.Fix = e.Text, e.Fix
		if e.File != "" {
			l.Text = e.File + ": " + e.Text
		}
	}
	if h.Root != "" {
		l.Text, l.Fix = strings.ReplaceAll(l.Text, h.Root, ""), strings.ReplaceAll(l.Fix, h.Root, "")
	}
	return l
}

var systemdGroups = regexp.MustCompile(`(?m)^\s*SystemdCgroup\s*=\s*true`)

// daemonReload looks for causes of containers losing their GPUs when systemd
// rereads its units. Berth's own groups belong to runc and are no units, so
// this is about others, and about programs that look for /dev/char.
func daemonReload(_ context.Context, h *Host, s *Subject) []Line {
	cards := h.cardNodes()
	if !wantsCards(s) || len(cards) == 0 {
		return nil
	}
	var out []Line
	var missing []string
	for _, c := range append(cards, "/dev/nvidiactl", "/dev/nvidia-uvm") {
		var st unix.Stat_t
		if unix.Stat(h.path(c), &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR {
			continue
		}
		link := filepath.Join("/dev/char", strconv.Itoa(int(unix.Major(st.Rdev)))+":"+strconv.Itoa(int(unix.Minor(st.Rdev))))
		if _, err := os.Lstat(h.path(link)); errors.Is(err, fs.ErrNotExist) {
			missing = append(missing, c)
		}
	}
	if len(missing) > 0 {
		out = append(out, warn("nvidia-ctk system create-dev-char-symlinks --create-all",
			"/dev/char has no link for %s: containers in systemd's cgroups lose them at systemctl daemon-reload (Berth's own are not in one)", strings.Join(missing, ", "))...)
	}
	if systemdGroups.MatchString(h.read("/etc/containerd/config.toml")) && len(missing) > 0 {
		out = append(out, warn("", "containerd's CRI plugin uses systemd's groups (SystemdCgroup = true): containers other than Berth's are affected")...)
	}
	if len(out) == 0 {
		return ok("jobs' groups are below %s and no units; links in /dev/char are there", agentOf(s).Cgroup.Parent)
	}
	return out
}

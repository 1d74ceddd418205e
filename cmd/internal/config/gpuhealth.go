package config

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/berth-scheduler/berth/agent/gpu/health"
)

// GPUHealth says how a node monitors its GPUs; see docs/gpu-health.md.
type GPUHealth struct {
	// Kmsg is the kernel's log, PCI the folder of the PCI devices. auto is
	// /dev/kmsg and /sys/bus/pci/devices with gpus.provider nvml, and nothing
	// with others; "" means nothing.
	Kmsg string `yaml:"kmsg"`
	PCI  string `yaml:"pci"`
	// Every is the interval between checks of the bus and of the GPUs' counters.
	Every time.Duration `yaml:"every"`
	// Xids are overrides of what numbered faults lead to, as NUMBER=ACTION:
	// application, drain or end. The default is the table in code.
	Xids []string `yaml:"xids"`
	// Quiet is how long a GPU must show no trace of an ended job before its
	// share is free, Within after how long without that it is quarantined, and
	// SlackMiB how much more memory than before may stay in use.
	Quiet    time.Duration `yaml:"quiet"`
	Within   time.Duration `yaml:"within"`
	SlackMiB int           `yaml:"slack_mib"`
	// Check is a command and its arguments that each GPU must pass before and
	// after each job, within CheckTime.
	Check     []string      `yaml:"check"`
	CheckTime time.Duration `yaml:"check_time"`
}

const autoPath = "auto"

func defaultHealth() GPUHealth {
	return GPUHealth{
		Kmsg: autoPath, PCI: autoPath, Every: 30 * time.Second, Quiet: 2 * time.Second, Within: time.Minute, SlackMiB: 64, CheckTime: time.Second,
	}
}

// Paths resolves Kmsg and PCI for a provider.
func (h *GPUHealth) Paths(provider string) (kmsg, pci string) {
	kmsg, pci = h.Kmsg, h.PCI
	if kmsg == autoPath {
		kmsg = ""
		if provider == "nvml" {
			kmsg = "/dev/kmsg"
		}
	}
	if pci == autoPath {
		pci = ""
		if provider == "nvml" {
			pci = "/sys/bus/pci/devices"
		}
	}
	return kmsg, pci
}

// Actions parses Xids.
func (h *GPUHealth) Actions() (map[int]health.Action, error) {
	out := map[int]health.Action{}
	for _, s := range h.Xids {
		num, word, ok := strings.Cut(s, "=")
		n, err := strconv.ParseUint(num, 10, 16)
		if !ok || err != nil || n == 0 {
			return nil, fmt.Errorf("has %.40q, want NUMBER=ACTION such as 94=application, with a number from 1 to 65535", s)
		}
		if _, twice := out[int(n)]; twice {
			return nil, fmt.Errorf("has Xid %d twice", n)
		}
		a, err := health.ParseAction(word)
		if err != nil {
			return nil, fmt.Errorf("has Xid %d: %w", n, err)
		}
		out[int(n)] = a
	}
	return out, nil
}

func (p *Problems) gpuHealth(h GPUHealth) {
	for _, f := range []struct{ key, val string }{{"gpus.health.kmsg", h.Kmsg}, {"gpus.health.pci", h.PCI}} {
		if f.val != "" && f.val != autoPath && !filepath.IsAbs(f.val) {
			p.addf(f.key, "is %.80q, want auto, \"\" for none, or an absolute path", f.val)
		}
	}
	if _, err := h.Actions(); err != nil {
		p.addf("gpus.health.xids", "%v", err)
	}
	p.span("gpus.health.every", h.Every, 100*time.Millisecond, time.Hour)
	p.span("gpus.health.quiet", h.Quiet, 0, time.Minute)
	p.span("gpus.health.within", h.Within, time.Second, time.Hour)
	p.number("gpus.health.slack_mib", h.SlackMiB, 1, 1<<16)
	p.span("gpus.health.check_time", h.CheckTime, 10*time.Millisecond, time.Second)
	if len(h.Check) > 0 && !filepath.IsAbs(h.Check[0]) {
		p.addf("gpus.health.check", "runs %.80q, want an absolute path of a program, and its arguments after it", h.Check[0])
	}
}

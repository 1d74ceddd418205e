package config

import (
	"slices"
	"strings"

	"github.com/berth-scheduler/berth/agent/gpu/cdi"
	"github.com/berth-scheduler/berth/agent/holes"
)

// CDI says where the device specifications are, and which nodes jobs get in
// addition to their GPUs.
type CDI struct {
	Dirs []string `yaml:"dirs"`
	// Extra are classes of device nodes: graphics, imex.
	Extra []string `yaml:"extra"`
}

// UnsafeIsolation is the key that offers GPUs although jobs may see those of others.
const UnsafeIsolation = "gpu-isolation"

// UnsafeData is the key that lets the agent keep its journal on another machine's disk.
const UnsafeData = "data-on-network"

// unsafeKeys returns what Agent.Unsafe may name.
func unsafeKeys() []string {
	return append([]string{UnsafeIsolation, UnsafeData}, holes.Keys()...)
}

func (p *Problems) cdi(c CDI) {
	for i, d := range c.Dirs {
		p.path(indexed("gpus.cdi.dirs", i), d, required)
	}
	for i, x := range c.Extra {
		p.oneOf(indexed("gpus.cdi.extra", i), x, string(cdi.Graphics), string(cdi.IMEX))
	}
}

func (p *Problems) unsafe(keys []string) {
	for i, k := range keys {
		if !slices.Contains(unsafeKeys(), k) {
			p.addf(indexed("unsafe", i), "is %.80q, want one of %s", k, strings.Join(unsafeKeys(), ", "))
		}
	}
}

package config

import (
	"slices"
	"strings"

	"github.com/berth-scheduler/berth/agent/gpu/cdi"
	"github.com/berth-scheduler/berth/agent/holes"
)

// CDI says where the specifications of devices lie, and which nodes jobs get
// beside their cards.
type CDI struct {
	Dirs []string `yaml:"dirs"`
	// Extra are classes of device nodes: graphics, imex.
	Extra []string `yaml:"extra"`
}

// UnsafeIsolation is the key with which GPUs are offered although jobs may see
// those of others.
const UnsafeIsolation = "gpu-isolation"

// UnsafeData is the key with which the agent keeps its journal on a disk of
// another machine.
const UnsafeData = "data-on-network"

// unsafeKeys are what Agent.Unsafe may name.
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

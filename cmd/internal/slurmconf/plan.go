package slurmconf

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/units"
)

// Step is one command that sets up what Slurm had.
type Step struct {
	// Args follow berth.
	Args []string `json:"args"`
	// Why says what it is for, in a few words.
	Why string `json:"why"`
	// Later marks a command that fails until something else exists, such as a node.
	Later bool `json:"later,omitempty"`
}

// String is the command for a shell.
func (s Step) String() string {
	words := []string{"berth"}
	for _, a := range s.Args {
		words = append(words, shellWord(a))
	}
	return strings.Join(words, " ")
}

// shellWord quotes what a shell would split or expand.
func shellWord(s string) string {
	plain := s != "" && strings.IndexFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./=:,@%+", r))
	}) < 0
	if plain {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// Steps are the commands that set up the site, in order. With only, other partitions
// are left out.
func (s *Site) Steps(only []string) []Step {
	var out []Step
	for _, p := range s.Partitions {
		if len(only) > 0 && !slices.Contains(only, p.Name) {
			continue
		}
		out = append(out, p.step())
	}
	for _, d := range s.Drains {
		reason := cmp.Or(d.Reason, "was "+d.State+" in slurm.conf")
		out = append(out, Step{Args: []string{"node", "drain", d.Node, "--reason", reason}, Why: "node " + d.Node + " is " + d.State + " in the Slurm files", Later: true})
	}
	return out
}

// step is the command that creates a partition.
func (p *Partition) step() Step {
	args := []string{"partition", "set", p.Name, "--nodes", p.Nodes}
	if p.Default {
		args = append(args, "--default")
	}
	if p.MaxTime > 0 {
		args = append(args, "--max-time", spell(p.MaxTime))
	}
	if p.DefaultTime > 0 {
		args = append(args, "--default-time", spell(p.DefaultTime))
	}
	if p.MemPerGPUMiB > 0 {
		args = append(args, "--def-mem-per-gpu", units.FormatMiB(p.MemPerGPUMiB))
	}
	if p.CPUsPerGPU > 0 {
		args = append(args, "--def-cpus-per-gpu", strconv.FormatInt(p.CPUsPerGPU, 10))
	}
	if p.Down {
		args = append(args, "--state", "down")
	}
	for _, list := range cluster.AccessLists() {
		if names := p.Access[list]; len(names) > 0 {
			args = append(args, "--"+list, strings.Join(names, ","))
		}
	}
	return Step{Args: args, Why: "partition " + p.Name}
}

// Agent is what agent.yaml should say on the nodes of one class.
type Agent struct {
	Nodes    string    `json:"nodes"`
	At       Place     `json:"at"`
	GPUs     string    `json:"gpus"`
	Settings []Setting `json:"settings"`
}

// Agents suggests settings for the nodes with GPUs, or with cpu for all.
func (s *Site) Agents(cpu bool) []Agent {
	var out []Agent
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if n.CountGPUs() == 0 && !cpu {
			continue
		}
		a := Agent{Nodes: n.Names, At: n.At, GPUs: describe(n.GPUs)}
		if cores := n.CPUs - n.SpecCPUs; n.CPUs > 0 && cores > 0 {
			a.Settings = append(a.Settings, Setting{"node.cpus", strconv.Itoa(cores)})
		}
		if mem := n.MemMiB - n.SpecMiB; n.MemMiB > 1 && mem > 0 {
			a.Settings = append(a.Settings, Setting{"node.memory_mib", strconv.FormatInt(mem, 10)})
		}
		if len(n.Features) > 0 {
			var quoted []string
			for _, f := range n.Features {
				quoted = append(quoted, yamlValue(f))
			}
			a.Settings = append(a.Settings, Setting{"node.features", "[" + strings.Join(quoted, ", ") + "]"})
		}
		if n.CountGPUs() > 0 {
			a.Settings = append(a.Settings, Setting{"gpus.provider", "nvml"})
		} else {
			a.Settings = append(a.Settings, Setting{"gpus.provider", "none"})
		}
		a.Settings = append(a.Settings, s.Jobs...)
		out = append(out, a)
	}
	return out
}

func describe(gpus []GPUs) string {
	var parts []string
	for _, g := range gpus {
		text := strconv.Itoa(g.Count)
		if g.Type != "" {
			text += " " + g.Type
		}
		if g.File != "" {
			text += " (" + g.File + ")"
		}
		parts = append(parts, text)
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

// YAML is the part of agent.yaml that these settings are.
func (a *Agent) YAML() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# nodes %s (%s): GPUs %s\n", a.Nodes, a.At, a.GPUs)
	section := ""
	for _, s := range sortedSettings(a.Settings) {
		sec, key, _ := strings.Cut(s.Key, ".")
		if sec != section {
			fmt.Fprintf(&b, "%s:\n", sec)
			section = sec
		}
		v := s.Value
		if s.Key != "node.features" { // a list, whose items are quoted
			v = yamlValue(v)
		}
		fmt.Fprintf(&b, "  %s: %s\n", key, v)
	}
	return b.String()
}

// sortedSettings groups settings by section, in the order in which sections first
// appear; of one key, the last one counts.
func sortedSettings(in []Setting) []Setting {
	var sections []string
	last := map[string]string{}
	for _, s := range in {
		sec, _, _ := strings.Cut(s.Key, ".")
		if !slices.Contains(sections, sec) {
			sections = append(sections, sec)
		}
		last[s.Key] = s.Value
	}
	var out []Setting
	for _, sec := range sections {
		for _, s := range in {
			v, there := last[s.Key]
			if strings.HasPrefix(s.Key, sec+".") && there {
				out = append(out, Setting{s.Key, v})
				delete(last, s.Key)
			}
		}
	}
	return out
}

func yamlValue(v string) string {
	if strings.IndexFunc(v, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./", r))
	}) < 0 && v != "" {
		return v
	}
	return strconv.Quote(v)
}

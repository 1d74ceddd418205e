package slurmconf

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/berth-scheduler/berth/cluster"
)

// Fate is the outcome for one key of the configuration.
type Fate uint8

// The fates. Taken is in the commands or the agents' settings; Dropped has no
// counterpart or needs none, as the note says; Unread is what Slurm could not read
// either.
const (
	Taken Fate = iota
	Dropped
	Unread
)

// String returns the fate as it is shown.
func (f Fate) String() string { return [...]string{"taken", "dropped", "unread"}[f] }

// MarshalText implements encoding.TextMarshaler.
func (f Fate) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// Entry is the outcome for one key of one line.
type Entry struct {
	Place
	// Of names what the line is about, such as "PartitionName=gpu"; empty for
	// cluster-wide settings.
	Of    string `json:"of,omitempty"`
	Key   string `json:"key"`
	Value string `json:"value"`
	Fate  Fate   `json:"fate"`
	Note  string `json:"note"`
}

// GPUs are the GPUs of one type in each node of a class.
type GPUs struct {
	// Type is Slurm's name for it, empty when it has none.
	Type  string `json:"type"`
	Count int    `json:"count"`
	// File names their device files, as gres.conf does, empty when it does not.
	File string `json:"file,omitempty"`
}

// NodeClass is nodes that one NodeName line describes.
type NodeClass struct {
	At       Place    `json:"at"`
	Names    string   `json:"names"` // a host list
	CPUs     int      `json:"cpus"`  // 0 when not said
	SpecCPUs int      `json:"spec_cpus"`
	MemMiB   int64    `json:"memory_mib"` // 0 when not said
	SpecMiB  int64    `json:"spec_memory_mib"`
	Features []string `json:"features,omitempty"`
	GPUs     []GPUs   `json:"gpus"`
	// Shared says that Slurm allocates shards or MPS percentages there.
	Shared bool `json:"shared,omitempty"`
	// State and Reason are what the file sets for the nodes, such as DRAIN.
	State  string `json:"state,omitempty"`
	Reason string `json:"reason,omitempty"`

	list   cluster.HostList
	boards [4]int // sockets, cores, threads, boards
	again  int    // how many of its nodes an earlier line has
}

// CountGPUs is how many GPUs each node of the class has.
func (n *NodeClass) CountGPUs() int {
	sum := 0
	for _, g := range n.GPUs {
		sum += g.Count
	}
	return sum
}

// Partition is one PartitionName line, in Berth's terms.
type Partition struct {
	At      Place  `json:"at"`
	Name    string `json:"name"`
	Nodes   string `json:"nodes"` // a host list, or ALL
	Default bool   `json:"default"`
	Down    bool   `json:"down"`
	// 0 is no limit, and no default.
	MaxTime     time.Duration `json:"max_time"`
	DefaultTime time.Duration `json:"default_time"`
	// MemPerGPUMiB and CPUsPerGPU are what a job that requests none gets for each GPU;
	// 0 is no default.
	MemPerGPUMiB int64 `json:"mem_per_gpu_mib,omitempty"`
	CPUsPerGPU   int64 `json:"cpus_per_gpu,omitempty"`
	// Access is who may use it, nil for everybody.
	Access cluster.Access `json:"access,omitempty"`
}

// Site is what the files say, as far as Berth can use it.
type Site struct {
	Cluster    string      `json:"cluster"`
	Nodes      []NodeClass `json:"nodes"`
	Partitions []Partition `json:"partitions"`
	Drains     []Drain     `json:"drains,omitempty"`
	Accounts   *Accounts   `json:"accounts,omitempty"`
	// Jobs are settings for all agents, by key of agent.yaml.
	Jobs    []Setting `json:"agent_settings"`
	Entries []Entry   `json:"entries"`
	// Warnings are about several lines together, or about none.
	Warnings []string `json:"warnings,omitempty"`

	sets    map[string]string // NodeSet → host list
	feature map[string]string // NodeSet → feature
}

// Setting is one of agent.yaml.
type Setting struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// Files names what Read reads. Only Conf is needed.
type Files struct {
	Conf, Gres, Topology, Dump, QOS string
}

// Read reads a site's files. It fails if a requested file cannot be opened or is
// not a configuration; what is wrong with single lines is among the entries.
func Read(open ReadFile, f Files) (*Site, error) {
	s := &Site{sets: map[string]string{}, feature: map[string]string{}}
	r := &reader{open: open}
	if err := r.file(f.Conf); err != nil {
		return nil, err
	}
	s.Entries = append(s.Entries, r.faults...)
	s.conf(r.out)
	if f.Gres != "" {
		g := &reader{open: open, cluster: s.Cluster}
		if err := g.file(f.Gres); err != nil {
			return nil, err
		}
		s.Entries = append(s.Entries, g.faults...)
		s.gres(g.out)
	}
	if f.Topology != "" {
		t := &reader{open: open, cluster: s.Cluster}
		if err := t.file(f.Topology); err != nil {
			return nil, err
		}
		s.Entries = append(s.Entries, t.faults...)
		s.topology(t.out)
	}
	if err := s.accounts(open, f); err != nil {
		return nil, err
	}
	s.finish()
	if len(s.Nodes) == 0 && len(s.Partitions) == 0 {
		return nil, fmt.Errorf("%s: has no NodeName or PartitionName line; is it a slurm.conf?", f.Conf)
	}
	return s, nil
}

func (s *Site) say(at Place, of string, p pair, fate Fate, format string, args ...any) {
	s.Entries = append(s.Entries, Entry{Place: at, Of: of, Key: p.Key, Value: p.Value, Fate: fate, Note: fmt.Sprintf(format, args...)})
}

func (s *Site) warn(format string, args ...any) {
	s.Warnings = append(s.Warnings, fmt.Sprintf(format, args...))
}

// conf reads the lines of slurm.conf. Node sets come first, since partitions may
// precede them.
func (s *Site) conf(lines []line) {
	for _, l := range lines {
		if name, ok := l.is("nodeset"); ok {
			s.nodeSet(name, &l)
		}
	}
	nodes, parts := map[string]pair{}, map[string]pair{}
	for _, l := range lines {
		if l.Rest != "" {
			s.say(l.At, "", pair{Key: firstWord(l.Rest), Value: ""}, Unread, "%.60q is not Key=Value; Slurm stops at such a line", l.Rest)
		}
		if name, ok := l.is("nodename"); ok {
			s.nodeLine(name, &l, nodes)
		} else if name, ok := l.is("partitionname"); ok {
			s.partitionLine(name, &l, parts)
		} else if name, ok := l.is("downnodes"); ok {
			s.downNodes(name, &l)
		} else if _, ok := l.is("nodeset"); !ok {
			s.settings(&l)
		}
	}
}

func firstWord(s string) string {
	if f := strings.Fields(s); len(f) > 0 {
		return f[0]
	}
	return s
}

// withDefaults puts the pairs of a line over those of DEFAULT lines before it,
// in the order of keys of the line, then the others.
func withDefaults(l *line, defaults map[string]pair) []pair {
	out := slices.Clone(l.Pairs[1:])
	var rest []string
	for k := range defaults {
		if !slices.ContainsFunc(out, func(p pair) bool { return strings.EqualFold(p.Key, k) }) {
			rest = append(rest, k)
		}
	}
	slices.Sort(rest)
	for _, k := range rest {
		out = append(out, defaults[k])
	}
	return out
}

func setDefaults(l *line, defaults map[string]pair) {
	for _, p := range l.Pairs[1:] {
		defaults[strings.ToLower(p.Key)] = p
	}
}

// finish resolves what several lines say together.
func (s *Site) finish() {
	s.finishNodes()
	s.finishPartitions()
	slices.SortStableFunc(s.Entries, func(a, b Entry) int {
		if a.File != b.File {
			return 0 // files stay in the order in which they were read
		}
		return a.Line - b.Line
	})
}

// hosts reads a host list of Slurm's files, with an error that fits its line.
func hosts(text string) (cluster.HostList, error) {
	list, err := cluster.ParseHostList(text)
	if err == nil {
		return list, nil
	}
	if ce, ok := errors.AsType[*cluster.Error](err); ok {
		return list, errors.New(ce.Msg)
	}
	return list, err
}

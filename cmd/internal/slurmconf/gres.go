package slurmconf

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-scheduler/berth/cluster"
)

// Notes for keys of gres.conf without a counterpart, in lower case.
var gresKeys = map[string]string{
	"cores":         "cores near a GPU are not chosen by hand",
	"cpus":          "cores near a GPU are not chosen by hand",
	"links":         "the agent asks the driver which GPUs are linked",
	"flags":         "the agent asks the driver what a GPU can do",
	"multiplefiles": "the agent asks the driver for MIG instances",
	"autodetect":    "the agent asks the driver for its GPUs",
}

// gres reads the lines of gres.conf. They name the device files of a node's GPUs,
// and count them if slurm.conf does not name a type.
func (s *Site) gres(lines []line) {
	found := map[cluster.NodeID][]GPUs{}
	for _, l := range lines {
		if l.Rest != "" {
			s.say(l.At, "", pair{Key: firstWord(l.Rest)}, Unread, "%.60q is not Key=Value; Slurm stops at such a line", l.Rest)
		}
		s.gresLine(&l, found)
	}
	for i := range s.Nodes {
		s.compareGres(&s.Nodes[i], found)
	}
}

// gresLine reads one line of gres.conf, for all nodes or those that it names.
func (s *Site) gresLine(l *line, found map[cluster.NodeID][]GPUs) {
	var name, typ, file, nodes string
	count := -1
	for _, p := range l.Pairs {
		switch strings.ToLower(p.Key) {
		case "name":
			name = p.Value
		case "type":
			typ = p.Value
		case "file":
			file = p.Value
		case "nodename":
			nodes = p.Value
		case "count":
			if n, err := strconv.Atoi(p.Value); err == nil && n >= 0 && n <= 1<<16 {
				count = n
			} else if strings.EqualFold(name, "gpu") {
				s.say(l.At, "", p, Unread, "is not a number of GPUs")
			}
		}
	}
	of := ""
	if name != "" {
		of = "Name=" + name
	}
	for _, p := range l.Pairs {
		fate, note := s.gresFate(strings.ToLower(p.Key), name)
		s.say(l.At, of, p, fate, "%s", note)
	}
	if !strings.EqualFold(name, "gpu") {
		return
	}
	if count < 0 {
		count = countFiles(file)
	}
	var list cluster.HostList
	if nodes != "" {
		var err error
		if list, err = hosts(nodes); err != nil {
			s.warn("%s: NodeName=%s: %v", l.At, nodes, err)
			return
		}
	}
	for i := range s.Nodes {
		for _, id := range s.Nodes[i].list.Names() {
			if nodes == "" || list.Holds(id) {
				found[id] = append(found[id], GPUs{Type: typ, Count: count, File: file})
			}
		}
	}
}

func (s *Site) gresFate(key, name string) (Fate, string) {
	switch lower := strings.ToLower(name); {
	case lower == "shard" || lower == "mps":
		return Dropped, "GPUs are shared by memory, with no configuration"
	case name != "" && lower != "gpu":
		return Dropped, "only GPUs are managed"
	}
	switch key {
	case "name", "nodename":
		return Taken, ""
	case "type":
		return Taken, "for sbatch --gres=gpu:TYPE:N, which finds the GPU type with this in its name"
	case "count", "file":
		return Taken, "compared with Gres in slurm.conf"
	}
	if why, ok := gresKeys[key]; ok {
		return Dropped, why
	}
	return Unread, "is not a key of gres.conf"
}

// countFiles counts the devices of /dev/nvidia[0-3].
func countFiles(file string) int {
	if file == "" {
		return 1
	}
	n := 0
	for _, item := range outside(file) {
		list, err := hosts(strings.TrimLeft(strings.ReplaceAll(item, "/", "x"), "."))
		if err != nil {
			return 1
		}
		n += len(list.Names())
	}
	return n
}

// compareGres adds the device files to a class of nodes, and warns where the two
// files disagree.
func (s *Site) compareGres(n *NodeClass, found map[cluster.NodeID][]GPUs) {
	names := n.list.Names()
	if len(names) == 0 {
		return
	}
	first := found[names[0]]
	for _, id := range names[1:] {
		if !slices.Equal(found[id], first) {
			s.warn("%s: nodes %s and %s have different GPUs in gres.conf but share a line in slurm.conf", n.At, names[0], id)
			break
		}
	}
	sum := 0
	for _, g := range first {
		sum += g.Count
	}
	switch have := n.CountGPUs(); {
	case sum == 0:
	case have == 0:
		s.warn("%s: nodes %s have no Gres=gpu in slurm.conf but %s in gres.conf; Slurm allocates none", n.At, n.Names, plural(sum, "GPU"))
	case have != sum:
		s.warn("%s: nodes %s have %s in slurm.conf but %d in gres.conf", n.At, n.Names, plural(have, "GPU"), sum)
		n.GPUs = first
	default:
		n.GPUs = first
	}
}

// topology reads topology.conf. Agents state their own place in the tree of switches;
// this says what each should state.
func (s *Site) topology(lines []line) {
	up := map[string]string{} // the switch above one
	for _, l := range lines {
		name, _ := l.is("switchname")
		for _, p := range l.Pairs {
			if list, err := hosts(p.Value); strings.EqualFold(p.Key, "switches") && err == nil {
				for _, below := range list.Names() {
					up[string(below)] = name
				}
			}
		}
	}
	for _, l := range lines {
		name, ok := l.is("switchname")
		if !ok {
			for _, p := range l.Pairs {
				s.say(l.At, "", p, Unread, "is not a key of topology.conf; lines begin with SwitchName")
			}
			continue
		}
		for _, p := range l.Pairs {
			note := "jobs on several nodes are placed by the switches in node.features of agent.yaml"
			if strings.EqualFold(p.Key, "nodes") {
				if list, err := hosts(p.Value); err == nil {
					note = fmt.Sprintf("set node.features: [\"%s%s\"] in agent.yaml on the %s: jobs on several nodes are placed as near to each other as possible", cluster.SwitchFeature, pathOf(name, up), plural(len(list.Names()), "node"))
				}
			}
			s.say(l.At, "SwitchName="+name, p, Dropped, "%s", note)
		}
	}
}

// pathOf is the switches from the root of the network to one; a cycle ends where it closes.
func pathOf(name string, up map[string]string) string {
	path := []string{name}
	for above := up[name]; above != "" && !slices.Contains(path, above); above = up[above] {
		path = append(path, above)
	}
	slices.Reverse(path)
	return strings.Join(path, ":")
}

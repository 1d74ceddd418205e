package slurmconf

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-scheduler/berth/cluster"
)

// Notes for keys of NodeName lines that Berth does not use, by name in lower case.
var nodeKeys = map[string]string{
	"nodehostname":    "a node's name is set when it joins: berth agent join --name",
	"nodeaddr":        "agents connect to the coordinators; nothing connects to them unless node.address is set",
	"bcastaddr":       "files are not broadcast",
	"port":            "agents need no port for jobs",
	"boards":          "counted among the cores",
	"sockets":         "counted among the cores",
	"socketsperboard": "counted among the cores",
	"corespersocket":  "counted among the cores",
	"threadspercore":  "counted among the cores",
	"procs":           "the same as CPUs",
	"cpubind":         "cores are not placed by hand",
	"cpuspeclist":     "set the CPUs for jobs with containers.cpus in agent.yaml",
	"tmpdisk":         "disk space is not managed; an image job's /tmp is sized by containers.tmp_mib in agent.yaml",
	"weight":          "nodes are chosen by their free resources",
	"feature":         "",
	"features":        "",
}

func (s *Site) nodeLine(name string, l *line, defaults map[string]pair) {
	of := "NodeName=" + name
	if strings.EqualFold(name, "DEFAULT") {
		setDefaults(l, defaults)
		for _, p := range l.Pairs[1:] {
			fate, note := (&NodeClass{}).take(p)
			s.say(l.At, of, p, fate, "%s", forBelow(fate, note))
		}
		return
	}
	n := NodeClass{At: l.At, Names: name}
	var err error
	if n.list, err = hosts(name); err != nil {
		s.say(l.At, of, l.Pairs[0], Unread, "%v", err)
		return
	}
	s.say(l.At, of, l.Pairs[0], Taken, "%s", plural(len(n.list.Names()), "node"))
	for i, p := range withDefaults(l, defaults) {
		e := Entry{Place: l.At, Of: of, Key: p.Key, Value: p.Value}
		e.Fate, e.Note = n.take(p)
		if i < len(l.Pairs)-1 { // keys of DEFAULT were reported there
			s.Entries = append(s.Entries, e)
		}
	}
	s.Nodes = append(s.Nodes, n)
}

// forBelow is the note for a key of a DEFAULT line.
func forBelow(fate Fate, note string) string {
	if fate != Taken {
		return note
	}
	return strings.TrimPrefix(note+", for the lines below", ", ")
}

// take reads one key of a NodeName line.
func (n *NodeClass) take(p pair) (Fate, string) {
	key := strings.ToLower(p.Key)
	number := func(to *int, note string) (Fate, string) {
		v, err := strconv.Atoi(p.Value)
		if err != nil || v < 0 || v > 1<<20 {
			return Unread, "is not a number"
		}
		*to = v
		return Taken, note
	}
	switch key {
	case "cpus", "procs":
		return number(&n.CPUs, "node.cpus in agent.yaml")
	case "sockets", "socketsperboard":
		return number(&n.boards[0], nodeKeys[key])
	case "corespersocket":
		return number(&n.boards[1], nodeKeys[key])
	case "threadspercore":
		return number(&n.boards[2], nodeKeys[key])
	case "boards":
		return number(&n.boards[3], nodeKeys[key])
	case "corespeccount":
		return number(&n.SpecCPUs, "subtracted from node.cpus")
	case "realmemory":
		return n.memory(p.Value, &n.MemMiB, "node.memory_mib in agent.yaml")
	case "memspeclimit":
		return n.memory(p.Value, &n.SpecMiB, "subtracted from node.memory_mib")
	case "feature", "features":
		n.Features = strings.FieldsFunc(p.Value, func(r rune) bool { return r == ',' })
		return n.featureFate()
	case "gres":
		return n.readGres(p.Value)
	case "state":
		n.State = strings.ToUpper(p.Value)
		return n.stateFate()
	case "reason":
		n.Reason = p.Value
		return Taken, ""
	}
	if why, ok := nodeKeys[key]; ok {
		return Dropped, why
	}
	return Unread, "is not a key of a NodeName line"
}

func (n *NodeClass) memory(v string, to *int64, note string) (Fate, string) {
	x, err := strconv.ParseInt(v, 10, 64)
	if err != nil || x < 0 || x > cluster.MaxMemMiB {
		return Unread, "is not an amount of memory in MiB"
	}
	*to = x
	return Taken, note
}

func (n *NodeClass) featureFate() (Fate, string) {
	return Taken, "node.features in agent.yaml"
}

// stateFate says what becomes of a state in the file.
func (n *NodeClass) stateFate() (Fate, string) {
	switch n.State {
	case "UNKNOWN", "IDLE":
		return Taken, "the state in which nodes join"
	case "CLOUD":
		return Dropped, "nodes are not created for jobs; for power saving see docs/power.md"
	case "FUTURE":
		return Dropped, "a node exists once its agent joins"
	case "DOWN", "DRAIN", "FAIL", "FAILING":
		return Taken, "berth node drain"
	}
	return Unread, "is not a node state"
}

// readGres reads "gpu:a100:4(S:0-1),shard:16".
func (n *NodeClass) readGres(v string) (Fate, string) {
	n.GPUs, n.Shared = nil, false
	var not []string
	for item := range strings.SplitSeq(v, ",") {
		item, _, _ = strings.Cut(item, "(")
		f := strings.Split(item, ":")
		switch {
		case f[0] == "gpu" && len(f) <= 3:
			count := 1
			if last := f[len(f)-1]; len(f) > 1 {
				c, err := strconv.Atoi(last)
				switch {
				case err != nil && len(f) == 3, c < 0, c > 1024:
					return Unread, fmt.Sprintf("%s: want gpu:TYPE:COUNT", item)
				case err == nil:
					count, f = c, f[:len(f)-1]
				}
			}
			g := GPUs{Count: count}
			if len(f) > 1 {
				g.Type = f[1]
			}
			n.GPUs = append(n.GPUs, g)
		case f[0] == "shard", f[0] == "mps":
			n.Shared = true
		case f[0] != "" && !strings.HasPrefix(f[0], "no_consume"):
			not = append(not, f[0])
		}
	}
	note := ""
	if n.Shared {
		note = "; shard and mps are dropped: GPUs are shared by memory, with no configuration"
	}
	if len(not) > 0 {
		note += "; not managed: " + strings.Join(not, ", ")
	}
	if n.CountGPUs() == 0 {
		return Dropped, strings.TrimPrefix(note+"; no GPUs", "; ")
	}
	return Taken, fmt.Sprintf("%s per node, detected by its agent%s", plural(n.CountGPUs(), "GPU"), note)
}

func (s *Site) downNodes(names string, l *line) {
	n := NodeClass{At: l.At, Names: names, State: "DOWN"}
	of := "DownNodes=" + names
	var err error
	if n.list, err = hosts(names); err != nil {
		s.say(l.At, of, l.Pairs[0], Unread, "%v", err)
		return
	}
	s.say(l.At, of, l.Pairs[0], Taken, "berth node drain")
	for _, p := range l.Pairs[1:] {
		fate, note := Unread, "is not a key of a DownNodes line"
		if k := strings.ToLower(p.Key); k == "state" || k == "reason" {
			fate, note = n.take(p)
		}
		s.say(l.At, of, p, fate, "%s", note)
	}
	for i := range s.Nodes {
		for _, name := range n.list.Names() {
			if s.Nodes[i].list.Holds(name) {
				s.drain(name, n.State, n.Reason)
			}
		}
	}
}

// drain records the drain of one node, in order.
func (s *Site) drain(name cluster.NodeID, state, reason string) {
	i := slices.IndexFunc(s.Drains, func(d Drain) bool { return d.Node == string(name) })
	if i < 0 {
		s.Drains = append(s.Drains, Drain{Node: string(name)})
		i = len(s.Drains) - 1
	}
	s.Drains[i].State, s.Drains[i].Reason = state, reason
}

// Drain is a node that the files take out of use.
type Drain struct {
	Node   string `json:"node"`
	State  string `json:"state"`
	Reason string `json:"reason"`
}

// finishNodes computes cores, and finds nodes that two lines name.
func (s *Site) finishNodes() {
	seen := map[cluster.NodeID]Place{}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if n.CPUs == 0 {
			for _, b := range n.boards {
				if b > 0 {
					n.CPUs = max(1, n.CPUs) * b
				}
			}
		}
		for _, name := range n.list.Names() {
			if at, twice := seen[name]; twice {
				s.warn("%s: node %s is already defined at %s; Slurm ignores the second", n.At, name, at)
				n.again++
				continue
			}
			seen[name] = n.At
			switch n.State {
			case "DOWN", "DRAIN", "FAIL", "FAILING":
				if !slices.ContainsFunc(s.Drains, func(d Drain) bool { return d.Node == string(name) }) {
					s.drain(name, n.State, n.Reason)
				}
			}
		}
	}
	s.Nodes = slices.DeleteFunc(s.Nodes, func(n NodeClass) bool { return n.leftOver() })
}

// leftOver reports whether other lines have all nodes of the class.
func (n *NodeClass) leftOver() bool { return n.again > 0 && n.again == len(n.list.Names()) }

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

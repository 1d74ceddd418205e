package slurmconf

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/sbatch"
	"github.com/berth-scheduler/berth/cmd/internal/units"
)

// partitionKeys are keys of PartitionName lines that are dropped, in lower
// case, and why.
var partitionKeys = map[string]string{
	"allocnodes":           "jobs may be submitted from any host that reaches a coordinator",
	"alternate":            "jobs wait for the partition that they request",
	"cpubind":              "cores are not placed by hand",
	"defmempercpu":         "what a job does not request is predicted; see berth predict",
	"defmempernode":        "what a job does not request is predicted; see berth predict",
	"disablerootjobs":      "jobs of root are refused unless users.allow_root is set in agent.yaml",
	"exclusiveuser":        "sharing.* in agent.yaml sets who may share a GPU with whom",
	"gracetime":            "jobs.grace in agent.yaml sets the time between SIGTERM and SIGKILL",
	"hidden":               "everybody can see partitions",
	"lln":                  "nodes are chosen by their free resources",
	"maxcpuspernode":       "the scheduler keeps cores for GPUs that are still free",
	"maxmempercpu":         "memory per core is not limited",
	"maxmempernode":        "memory is limited by the nodes",
	"maxnodes":             "the number of nodes is not limited by partition",
	"minnodes":             "the number of nodes is not limited by partition",
	"oversubscribe":        "jobs share GPUs wherever they fit, by memory",
	"shared":               "jobs share GPUs wherever they fit, by memory",
	"overtimelimit":        "a job ends at its limit",
	"preemptmode":          "the job, and the policy in coordinator.yaml, decide what may be preempted",
	"priorityjobfactor":    "partitions have no priority; each has its own nodes and policy",
	"prioritytier":         "partitions have no priority; each has its own nodes and policy",
	"qos":                  "a partition has no quality of service of its own",
	"reqresv":              "a partition does not require a reservation",
	"resumetimeout":        whyPower,
	"rootonly":             "partitions are open to every user",
	"selecttypeparameters": "cores, memory and shares of GPUs are all accounted for",
	"suspendtime":          whyPower,
	"suspendtimeout":       whyPower,
	"tresbillingweights":   "GPU time is charged by the share that was used",
}

// accessKeys are the lists of who may use a partition.
var accessKeys = map[string]string{
	"allowaccounts": cluster.AllowAccounts, "denyaccounts": cluster.DenyAccounts,
	"allowqos": cluster.AllowQOS, "denyqos": cluster.DenyQOS, "allowgroups": cluster.AllowGroups,
}

func (s *Site) nodeSet(name string, l *line) {
	of := "NodeSet=" + name
	s.say(l.At, of, l.Pairs[0], Taken, "for partitions that name it")
	for _, p := range l.Pairs[1:] {
		switch strings.ToLower(p.Key) {
		case "nodes":
			s.sets[name] = p.Value
			s.say(l.At, of, p, Taken, "")
		case "feature":
			s.feature[name] = p.Value
			s.say(l.At, of, p, Taken, "")
		default:
			s.say(l.At, of, p, Unread, "is not a key of a NodeSet line")
		}
	}
}

func (s *Site) partitionLine(name string, l *line, defaults map[string]pair) {
	of := "PartitionName=" + name
	if strings.EqualFold(name, "DEFAULT") {
		setDefaults(l, defaults)
		for _, p := range l.Pairs[1:] {
			fate, note := (&Partition{}).take(p)
			s.say(l.At, of, p, fate, "%s", forBelow(fate, note))
		}
		return
	}
	if err := cluster.CheckPartitionName(name); err != nil {
		s.say(l.At, of, l.Pairs[0], Dropped, "%v", err)
		return
	}
	if slices.ContainsFunc(s.Partitions, func(p Partition) bool { return p.Name == name }) {
		s.say(l.At, of, l.Pairs[0], Unread, "partition is defined twice; the first is kept")
		return
	}
	part := Partition{At: l.At, Name: name}
	s.say(l.At, of, l.Pairs[0], Taken, "berth partition set")
	for i, p := range withDefaults(l, defaults) {
		e := Entry{Place: l.At, Of: of, Key: p.Key, Value: p.Value}
		e.Fate, e.Note = part.take(p)
		if i < len(l.Pairs)-1 {
			s.Entries = append(s.Entries, e)
		}
	}
	s.Partitions = append(s.Partitions, part)
}

// take reads one key of a PartitionName line.
func (t *Partition) take(p pair) (Fate, string) {
	key := strings.ToLower(p.Key)
	switch key {
	case "nodes":
		t.Nodes = p.Value
		return Taken, "--nodes"
	case "default":
		return yes(p.Value, &t.Default, "--default")
	case "maxtime":
		return limit(p.Value, &t.MaxTime, "--max-time")
	case "defaulttime":
		return limit(p.Value, &t.DefaultTime, "--default-time")
	case "defmempergpu", "defcpupergpu":
		return t.perGPU(key, p.Value)
	case "jobdefaults":
		return t.jobDefaults(p.Value)
	case "state":
		switch strings.ToUpper(p.Value) {
		case "UP":
			return Taken, "--state up"
		case "DOWN", "INACTIVE":
			t.Down = true
			return Taken, "--state down"
		case "DRAIN":
			t.Down = true
			return Taken, "--state down: jobs may be submitted, but wait"
		}
		return Unread, "is not a partition state"
	}
	if list := accessKeys[key]; list != "" {
		names := strings.FieldsFunc(p.Value, func(r rune) bool { return r == ',' || r == ' ' })
		if strings.EqualFold(p.Value, "ALL") {
			names = nil
		}
		t.Access = t.Access.With(list, names)
		if names == nil {
			return Taken, ""
		}
		return Taken, "--" + list
	}
	if why, ok := partitionKeys[key]; ok {
		return Dropped, why
	}
	return Unread, "is not a key of a PartitionName line"
}

// perGPU reads what a job gets for each GPU, DefMemPerGPU in MiB.
func (t *Partition) perGPU(key, v string) (Fate, string) {
	n, err := strconv.ParseInt(v, 10, 64)
	switch {
	case err != nil || n < 0 || n > 1<<24:
		return Unread, "is not a valid amount per GPU"
	case n == 0:
		return Taken, "no default"
	case strings.EqualFold(key, "DefMemPerGPU"):
		t.MemPerGPUMiB = n
		return Taken, "--def-mem-per-gpu, where nothing is predicted"
	}
	t.CPUsPerGPU = n
	return Taken, "--def-cpus-per-gpu, where nothing is predicted"
}

// jobDefaults reads JobDefaults, as DefCpuPerGPU=4,DefMemPerGPU=16000.
func (t *Partition) jobDefaults(v string) (Fate, string) {
	var notes []string
	for item := range strings.SplitSeq(v, ",") {
		key, value, _ := strings.Cut(item, "=")
		if !strings.EqualFold(key, "DefMemPerGPU") && !strings.EqualFold(key, "DefCpuPerGPU") {
			return Unread, "may hold only DefCpuPerGPU and DefMemPerGPU"
		}
		fate, note := t.perGPU(key, value)
		if fate != Taken {
			return fate, key + " " + note
		}
		flag, _, _ := strings.Cut(note, ",")
		notes = append(notes, flag)
	}
	return Taken, strings.Join(notes, " ") + ", where nothing is predicted"
}

func yes(v string, to *bool, note string) (Fate, string) {
	switch strings.ToUpper(v) {
	case "YES", "UP", "TRUE", "1":
		*to = true
		return Taken, note
	case "NO", "DOWN", "FALSE", "0":
		*to = false
		return Taken, ""
	}
	return Unread, "is neither YES nor NO"
}

func limit(v string, to *time.Duration, note string) (Fate, string) {
	if strings.EqualFold(v, "NONE") {
		return Taken, ""
	}
	d, limited, err := sbatch.ParseTime(v)
	switch {
	case err != nil:
		return Unread, "is not a time such as 1-00:00:00"
	case !limited:
		*to = 0
		return Taken, "no limit"
	case d < units.MinTime:
		return Unread, "is too short for a job"
	case d > units.MaxTime:
		*to = units.MaxTime
		return Taken, note + " " + spell(*to) + ", the longest that a job may request"
	}
	*to = d
	return Taken, note + " " + spell(d)
}

// spell writes a time as berth's flags read it.
func spell(d time.Duration) string {
	switch {
	case d%(24*time.Hour) == 0:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	case d%time.Hour == 0:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d%time.Minute == 0:
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return fmt.Sprintf("%ds", d/time.Second)
}

// finishPartitions replaces names of sets by host lists, and finds what partitions
// name but no line defines.
func (s *Site) finishPartitions() {
	standard := ""
	for i := range s.Partitions {
		p := &s.Partitions[i]
		s.expand(p)
		if p.Default && standard != "" {
			s.warn("%s: partition %s is a default too, after %s; the last one is used", p.At, p.Name, standard)
		}
		if p.Default {
			standard = p.Name
		}
		if p.MaxTime > 0 && p.DefaultTime > p.MaxTime {
			s.warn("%s: partition %s: DefaultTime is more than MaxTime; MaxTime is used", p.At, p.Name)
			p.DefaultTime = p.MaxTime
		}
		for _, pair := range [][2]string{{cluster.AllowAccounts, cluster.DenyAccounts}, {cluster.AllowQOS, cluster.DenyQOS}} {
			if len(p.Access[pair[0]]) > 0 && len(p.Access[pair[1]]) > 0 {
				s.warn("%s: partition %s: %s is ignored because %s is set, as in Slurm", p.At, p.Name, pair[1], pair[0])
				p.Access = p.Access.With(pair[1], nil)
			}
		}
	}
	s.withoutGPUs()
	for i := range s.Partitions { // one default, the last
		s.Partitions[i].Default = s.Partitions[i].Name == standard
	}
	s.Partitions = slices.DeleteFunc(s.Partitions, func(p Partition) bool {
		if p.Nodes == "" {
			s.warn("%s: partition %s has no nodes and is left out", p.At, p.Name)
		}
		return p.Nodes == ""
	})
}

// expand computes the nodes of a partition.
func (s *Site) expand(p *Partition) {
	if p.Nodes == "" || strings.EqualFold(p.Nodes, cluster.AllNodes) {
		p.Nodes = strings.ToUpper(p.Nodes)
		return
	}
	var parts []string
	for _, item := range outside(p.Nodes) {
		switch {
		case strings.EqualFold(item, cluster.AllNodes):
			p.Nodes = cluster.AllNodes
			return
		case s.sets[item] != "":
			parts = append(parts, s.sets[item])
		case s.feature[item] != "":
			found := s.withFeature(s.feature[item])
			if len(found) == 0 {
				s.warn("%s: partition %s: no node has the feature %s of NodeSet %s", p.At, p.Name, s.feature[item], item)
			}
			parts = append(parts, found...)
		case item != "":
			parts = append(parts, item)
		}
	}
	p.Nodes = strings.Join(parts, ",")
	list, err := hosts(p.Nodes)
	if p.Nodes == "" || err != nil {
		if err != nil && p.Nodes != "" {
			s.warn("%s: partition %s: %v", p.At, p.Name, err)
		}
		p.Nodes = ""
		return
	}
	s.unknownNodes(p, list)
}

// withoutGPUs warns of partitions that can be left to Slurm.
func (s *Site) withoutGPUs() {
	any := slices.ContainsFunc(s.Nodes, func(n NodeClass) bool { return n.CountGPUs() > 0 })
	for _, p := range s.Partitions {
		list, err := hosts(p.Nodes)
		if !any || err != nil || p.Nodes == cluster.AllNodes {
			continue
		}
		if !slices.ContainsFunc(list.Names(), s.hasGPUs) {
			s.warn("%s: partition %s: none of its nodes has a GPU; name the partitions to import with --partition, and leave the others to Slurm", p.At, p.Name)
		}
	}
}

func (s *Site) hasGPUs(name cluster.NodeID) bool {
	return slices.ContainsFunc(s.Nodes, func(n NodeClass) bool { return n.CountGPUs() > 0 && n.list.Holds(name) })
}

func (s *Site) unknownNodes(p *Partition, list cluster.HostList) {
	var unknown []string
	for _, name := range list.Names() {
		if !slices.ContainsFunc(s.Nodes, func(n NodeClass) bool { return n.list.Holds(name) }) {
			unknown = append(unknown, string(name))
		}
	}
	if n := len(unknown); n > 3 {
		unknown = append(unknown[:3], fmt.Sprintf("and %d more", n-3))
	}
	if len(unknown) > 0 {
		s.warn("%s: partition %s: no NodeName line defines %s", p.At, p.Name, strings.Join(unknown, ", "))
	}
}

// withFeature lists the nodes that have one.
func (s *Site) withFeature(feature string) []string {
	var out []string
	for _, n := range s.Nodes {
		if slices.Contains(n.Features, feature) {
			out = append(out, n.Names)
		}
	}
	return out
}

// outside splits at commas outside of brackets.
func outside(s string) []string {
	var out []string
	depth, from := 0, 0
	for i := range len(s) {
		switch s[i] {
		case '[':
			depth++
		case ']':
			depth--
		case ',':
			if depth == 0 {
				out, from = append(out, strings.TrimSpace(s[from:i])), i+1
			}
		}
	}
	return append(out, strings.TrimSpace(s[from:]))
}

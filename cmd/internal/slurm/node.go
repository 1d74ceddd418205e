package slurm

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/berth-scheduler/berth/cluster"
)

// Node is a node in Slurm's terms.
type Node struct {
	Name, Addr, Host string
	// State is how scontrol writes it, such as "MIXED+DRAIN"; see StateOf.
	State string
	// Silent tells that it does not answer, which Slurm marks by a star.
	Silent bool
	// Reason is why it is drained or down, User who said so and when.
	Reason, User   string
	UserID         uint32
	ReasonAt       time.Time
	CPUs, CPUsUsed int64
	// Load is the mean of the last minute, "" when nobody measures it.
	Load                     string
	MemMiB, MemUsed, FreeMem int64
	// Gres and GresUsed are such as "gpu:a100:4" and "gpu:a100:2(IDX:0-1)".
	Gres, GresUsed string
	// GPUs is how many cards it has, and GPUsUsed how many of them somebody has.
	GPUs, GPUsUsed int64
	Version        string
	Arch, OS       string
	// Boot is when the machine started, Registered when its agent did, Contact
	// when it was heard of last.
	Boot, Registered, Contact time.Time
	Partitions                []string
	Features                  []string
	// Times is how its times are written.
	Times Times
}

// Partition is a partition in Slurm's terms.
type Partition struct {
	Name    string
	Default bool
	Up      bool
	// MaxTime and DefaultTime are 0 for none.
	MaxTime, DefaultTime time.Duration
	Nodes                []string
	// AllowGroups and the others are who may use it, empty for all or nobody.
	AllowGroups, AllowAccounts, DenyAccounts, AllowQOS, DenyQOS []string
}

// states maps what scontrol writes to the forms of sinfo's %T and %t.
var stateForms = map[string][2]string{
	"IDLE": {"idle", "idle"}, "MIXED": {"mixed", "mix"}, "ALLOCATED": {"allocated", "alloc"}, "DOWN": {"down", "down"},
	"IDLE+DRAIN": {"drained", "drain"}, "MIXED+DRAIN": {"draining", "drng"}, "ALLOCATED+DRAIN": {"draining", "drng"}, "DOWN+DRAIN": {"drained", "drain"},
}

// StateOf is how scontrol writes the state of a node.
func StateOf(up, drain bool, cpusUsed, cpus int64) string {
	s := "IDLE"
	switch {
	case !up:
		s = "DOWN"
	case cpusUsed >= cpus && cpus > 0:
		s = "ALLOCATED"
	case cpusUsed > 0:
		s = "MIXED"
	}
	if drain {
		s += "+DRAIN"
	}
	return s
}

// InMaintenance is a state of a node in a reservation for maintenance, and
// InReservation in another one.
func InMaintenance(state string) string { return state + "+MAINTENANCE+RESERVED" }

// InReservation is the state of a node in a reservation.
func InReservation(state string) string { return state + "+RESERVED" }

func (n *Node) form(i int) string {
	f, ok := stateForms[n.State]
	switch base, flag, _ := strings.Cut(n.State, "+"); {
	case strings.HasPrefix(flag, "MAINTENANCE") && base != "DOWN":
		f, ok = [2]string{"maint", "maint"}, true
	case flag == "RESERVED" && base == "IDLE":
		f, ok = [2]string{"reserved", "resv"}, true
	case strings.HasSuffix(flag, "RESERVED"):
		f, ok = stateForms[base]
	}
	if !ok {
		f = [2]string{strings.ToLower(n.State), strings.ToLower(n.State)}
	}
	if n.Silent {
		return f[i] + "*"
	}
	return f[i]
}

// class is the column of A/I/O/T it counts in.
func (n *Node) class() int {
	switch {
	case strings.HasPrefix(n.State, "DOWN"), n.State == "IDLE+DRAIN":
		return 2
	case strings.HasPrefix(n.State, "IDLE+MAINTENANCE"):
		return 2
	case n.State == "IDLE", n.State == "IDLE+RESERVED":
		return 1
	}
	return 0
}

// group is a line of sinfo: nodes of one partition that look alike.
type group struct {
	part  *Partition // a partition without a name where there are none
	nodes []*Node
}

func (g *group) names() string {
	names := make([]string, len(g.nodes))
	for i, n := range g.nodes {
		names[i] = n.Name
	}
	return cluster.FoldSet(names)
}

func (g *group) partition() string {
	if g.part.Default {
		return g.part.Name + "*"
	}
	return g.part.Name
}

func (g *group) avail() string {
	if g.part.Up {
		return "up"
	}
	return "down"
}

func (g *group) timeLimit() string {
	if g.part.MaxTime == 0 {
		return "infinite"
	}
	return span(g.part.MaxTime)
}

func (g *group) defaultTime() string {
	if g.part.DefaultTime == 0 {
		return "n/a"
	}
	return span(g.part.DefaultTime)
}

// first answers for all nodes of the group where they are alike.
func (g *group) first(f func(*Node) string) string {
	if len(g.nodes) == 0 {
		return ""
	}
	return f(g.nodes[0])
}

// counts are allocated, idle, other and all nodes.
func (g *group) counts() (c [4]int) {
	for _, n := range g.nodes {
		c[n.class()]++
		c[3]++
	}
	return c
}

func (g *group) cpuStates() string {
	var used, idle, other int64
	for _, n := range g.nodes {
		used += n.CPUsUsed
		if n.class() == 2 || strings.HasSuffix(n.State, "+DRAIN") {
			other += n.CPUs - n.CPUsUsed
		} else {
			idle += n.CPUs - n.CPUsUsed
		}
	}
	return fmt.Sprintf("%d/%d/%d/%d", used, idle, other, used+idle+other)
}

func ofNode(f func(*Node) string) func(*group) string {
	return func(g *group) string { return g.first(f) }
}

func always(s string) func(*group) string { return func(*group) string { return s } }

func (n *Node) reason() string {
	if n.Reason == "" {
		return "none"
	}
	return n.Reason
}

func (n *Node) user() string {
	if n.Reason == "" {
		return "Unknown"
	}
	return n.User
}

// userLong has the number as well.
func (n *Node) userLong() string {
	if n.Reason == "" {
		return "Unknown"
	}
	return fmt.Sprintf("%s(%d)", n.User, n.UserID)
}

func (n *Node) features() string { return orNull(strings.Join(n.Features, ",")) }

// complete is its state with all flags, such as mixed+drain.
func (n *Node) complete() string {
	s := strings.ToLower(n.State)
	if n.Silent {
		s += "*"
	}
	return s
}

func (n *Node) sockets() string { return number(n.CPUs) + ":1:1" }

// stateForm is the state of the nodes of a line in one of its forms; of no nodes there
// is none.
func stateForm(form int) func(*group) string {
	return func(g *group) string {
		if len(g.nodes) == 0 {
			return "n/a"
		}
		return g.nodes[0].form(form)
	}
}

// groupFields are the columns of sinfo by the names of -O.
var groupFields = sync.OnceValue(func() map[string]column[group] {
	return map[string]column[group]{
		"allocnodes":     {head: "ALLOCNODES", value: always("all")},
		"available":      {head: "AVAIL", value: (*group).avail},
		"cpus":           {head: "CPUS", whole: true, value: ofNode(func(n *Node) string { return number(n.CPUs) })},
		"cpusload":       {head: "CPU_LOAD", value: ofNode(func(n *Node) string { return orNA(n.Load) })},
		"cpusstate":      {head: "CPUS(A/I/O/T)", value: (*group).cpuStates},
		"cores":          {head: "CORES", whole: true, value: always("1")},
		"defaulttime":    {head: "DEFAULTTIME", whole: true, value: (*group).defaultTime},
		"disk":           {head: "TMP_DISK", whole: true, value: always("0")},
		"allocmem":       {head: "ALLOCMEM", whole: true, value: ofNode(func(n *Node) string { return number(n.MemUsed) })},
		"cluster":        {head: "CLUSTER", value: always("N/A")},
		"comment":        {head: "COMMENT", value: always(null)},
		"extra":          {head: "EXTRA", value: always(null)},
		"features":       {head: "AVAIL_FEATURES", value: ofNode((*Node).features)},
		"featuresact":    {head: "ACTIVE_FEATURES", value: ofNode((*Node).features)},
		"freemem":        {head: "FREE_MEM", value: ofNode(func(n *Node) string { return number(n.FreeMem) })},
		"gres":           {head: "GRES", value: ofNode(func(n *Node) string { return orNull(n.Gres) })},
		"gresused":       {head: "GRES_USED", value: ofNode(func(n *Node) string { return orNull(n.GresUsed) })},
		"groups":         {head: "GROUPS", value: always("all")},
		"maxcpuspernode": {head: "MAX_CPUS_PER_NODE", value: always("UNLIMITED")},
		"memory":         {head: "MEMORY", whole: true, value: ofNode(func(n *Node) string { return number(n.MemMiB) })},
		"nodeaddr":       {head: "NODE_ADDR", value: ofNode(func(n *Node) string { return n.Addr })},
		"nodeai": {head: "NODES(A/I)", value: func(g *group) string {
			c := g.counts()
			return fmt.Sprintf("%d/%d", c[0], c[1])
		}},
		"nodeaiot": {head: "NODES(A/I/O/T)", value: func(g *group) string {
			c := g.counts()
			return fmt.Sprintf("%d/%d/%d/%d", c[0], c[1], c[2], c[3])
		}},
		"nodehost":          {head: "HOSTNAMES", value: ofNode(func(n *Node) string { return n.Host })},
		"nodelist":          {head: "NODELIST", value: (*group).names},
		"nodes":             {head: "NODES", whole: true, value: func(g *group) string { return number(len(g.nodes)) }},
		"oversubscribe":     {head: "OVERSUBSCRIBE", value: always("NO")},
		"partition":         {head: "PARTITION", value: (*group).partition},
		"partitionname":     {head: "PARTITION", value: func(g *group) string { return g.part.Name }},
		"preemptmode":       {head: "PREEMPT_MODE", value: always("OFF")},
		"priorityjobfactor": {head: "PRIO_JOB_FACTOR", whole: true, value: always("1")},
		"prioritytier":      {head: "PRIO_TIER", whole: true, value: always("1")},
		"reason":            {head: "REASON", value: ofNode((*Node).reason)},
		"root":              {head: "ROOT", value: always("no")},
		"size":              {head: "JOB_SIZE", value: always("1-infinite")},
		"socketcorethread":  {head: "S:C:T", value: ofNode((*Node).sockets)},
		"sockets":           {head: "SOCKETS", whole: true, value: ofNode(func(n *Node) string { return number(n.CPUs) })},
		"statecompact":      {head: "STATE", value: stateForm(1)},
		"statecomplete":     {head: "STATECOMPLETE", value: ofNode((*Node).complete)},
		"statelong":         {head: "STATE", value: stateForm(0)},
		"threads":           {head: "THREADS", whole: true, value: always("1")},
		"time":              {head: "TIMELIMIT", whole: true, value: (*group).timeLimit},
		"timestamp":         {head: "TIMESTAMP", value: ofNode(func(n *Node) string { return n.Times.stamp(n.ReasonAt, "Unknown") })},
		"user":              {head: "USER", value: ofNode((*Node).user)},
		"userlong":          {head: "USER", value: ofNode((*Node).userLong)},
		"version":           {head: "VERSION", value: ofNode(func(n *Node) string { return n.Version })},
		"weight":            {head: "WEIGHT", whole: true, value: always("1")},
	}
})

var groupLetters = sync.OnceValue(func() map[byte]column[group] {
	return letters(map[byte]string{
		'a': "available", 'A': "nodeai", 'B': "maxcpuspernode", 'c': "cpus", 'C': "cpusstate", 'd': "disk", 'D': "nodes", 'e': "freemem", 'E': "reason",
		'f': "features", 'F': "nodeaiot", 'g': "groups", 'G': "gres", 'h': "oversubscribe", 'H': "timestamp", 'I': "priorityjobfactor", 'l': "time",
		'L': "defaulttime", 'm': "memory", 'M': "preemptmode", 'n': "nodehost", 'N': "nodelist", 'o': "nodeaddr", 'O': "cpusload", 'p': "prioritytier",
		'P': "partition", 'r': "root", 'R': "partitionname", 's': "size", 'S': "allocnodes", 't': "statecompact", 'T': "statelong", 'u': "user", 'U': "userlong",
		'v': "version", 'w': "weight", 'X': "sockets", 'Y': "cores", 'Z': "threads", 'z': "socketcorethread",
	}, groupFields())
})

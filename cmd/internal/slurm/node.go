package slurm

import (
	"cmp"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/berth-scheduler/berth/cluster/hostnames"
	"github.com/berth-scheduler/berth/cmd/internal/slurm/text"
)

// Node is a node in Slurm's terms.
type Node struct {
	Name, Addr, Host string
	// State is the state as scontrol writes it, such as "MIXED+DRAIN"; see StateOf.
	State string
	// Silent says that it does not respond, which Slurm marks with a star.
	Silent bool
	// Reason is why it is drained or down, User and ReasonAt by whom and when.
	Reason, User   string
	UserID         uint32
	ReasonAt       time.Time
	CPUs, CPUsUsed int64
	// Load is the mean of the last minute, "" if it is not measured.
	Load                     string
	MemMiB, MemUsed, FreeMem int64
	// Gres and GresUsed are values such as "gpu:a100:4" and "gpu:a100:2(IDX:0-1)".
	Gres, GresUsed string
	// GPUs is how many GPUs it has, and GPUsUsed how many of them are in use.
	GPUs, GPUsUsed int64
	Version        string
	Arch, OS       string
	// Boot is when the machine started, Registered when its agent did, Contact
	// when it was last heard from.
	Boot, Registered, Contact time.Time
	Partitions                []string
	Features                  []string
	// Times is how its times are written.
	Times text.Times
}

// Partition is a partition in Slurm's terms.
type Partition struct {
	Name    string
	Default bool
	Up      bool
	// MaxTime and DefaultTime are 0 for none.
	MaxTime, DefaultTime time.Duration
	Nodes                []string
	// Lent is how many of its GPUs are on loan to jobs of other partitions, which
	// Slurm does not know.
	Lent int64
	// AllowGroups and the others say who may use it; empty means all or nobody.
	AllowGroups, AllowAccounts, DenyAccounts, AllowQOS, DenyQOS []string
}

// stateForms maps what scontrol writes to the forms of sinfo's %T and %t.
var stateForms = map[string][2]string{
	"IDLE": {"idle", "idle"}, "MIXED": {"mixed", "mix"}, "ALLOCATED": {"allocated", "alloc"}, "DOWN": {"down", "down"},
	"IDLE+DRAIN": {"drained", "drain"}, "MIXED+DRAIN": {"draining", "drng"}, "ALLOCATED+DRAIN": {"draining", "drng"}, "DOWN+DRAIN": {"drained", "drain"},
}

// StateOf returns the state of a node as scontrol writes it.
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

// InMaintenance returns the state of a node in a reservation for
// maintenance, InReservation that of one in any other.
func InMaintenance(state string) string { return state + "+MAINTENANCE+RESERVED" }

// InReservation returns the state of a node in a reservation.
func InReservation(state string) string { return state + "+RESERVED" }

// powerMarks are what sinfo appends to the state of a node that is powered
// down, or on its way down or up, by the flag that scontrol writes.
var powerMarks = map[string]string{PoweredDown: "~", PoweringDown: "%", PoweringUp: "#"}

// The flags of a node whose power is not simply on.
const (
	PoweredDown  = "+POWERED_DOWN"
	PoweringDown = "+POWERING_DOWN"
	PoweringUp   = "+POWERING_UP"
)

// unpowered returns the state without its power flag, and the mark of that flag.
func (n *Node) unpowered() (state, mark string) {
	if at := strings.LastIndexByte(n.State, '+'); at >= 0 && powerMarks[n.State[at:]] != "" {
		return n.State[:at], powerMarks[n.State[at:]]
	}
	return n.State, ""
}

func (n *Node) form(i int) string {
	if state, mark := n.unpowered(); mark != "" {
		plain := *n
		plain.State, plain.Silent = state, false
		return plain.form(i) + mark
	}
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

// class returns the column of A/I/O/T in which it counts.
func (n *Node) class() int {
	switch state, _ := n.unpowered(); {
	case strings.HasPrefix(state, "DOWN"), state == "IDLE+DRAIN":
		return 2
	case strings.HasPrefix(state, "IDLE+MAINTENANCE"):
		return 2
	case state == "IDLE", state == "IDLE+RESERVED":
		return 1
	}
	return 0
}

// group is a line of sinfo: nodes of one partition that look alike.
type group struct {
	part  *Partition // without a name if there are no partitions
	nodes []*Node
}

func (g *group) names() string {
	names := make([]string, len(g.nodes))
	for i, n := range g.nodes {
		names[i] = n.Name
	}
	return hostnames.FoldSet(names)
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
	return text.Span(g.part.MaxTime)
}

func (g *group) defaultTime() string {
	if g.part.DefaultTime == 0 {
		return "n/a"
	}
	return text.Span(g.part.DefaultTime)
}

// first returns a value that all nodes of the group share.
func (g *group) first(f func(*Node) string) string {
	if len(g.nodes) == 0 {
		return ""
	}
	return f(g.nodes[0])
}

// counts returns the numbers of allocated, idle, other and all nodes.
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
	return cmp.Or(n.Reason, "none")
}

func (n *Node) user() string {
	if n.Reason == "" {
		return "Unknown"
	}
	return n.User
}

// userLong includes the uid.
func (n *Node) userLong() string {
	if n.Reason == "" {
		return "Unknown"
	}
	return fmt.Sprintf("%s(%d)", n.User, n.UserID)
}

func (n *Node) features() string { return orNull(strings.Join(n.Features, ",")) }

// complete returns its state with all flags, such as mixed+drain.
func (n *Node) complete() string {
	s := strings.ToLower(n.State)
	if n.Silent {
		s += "*"
	}
	return s
}

func (n *Node) sockets() string { return number(n.CPUs) + ":1:1" }

// stateForm returns one form of the state of a line's nodes; without nodes
// there is none.
func stateForm(form int) func(*group) string {
	return func(g *group) string {
		if len(g.nodes) == 0 {
			return "n/a"
		}
		return g.nodes[0].form(form)
	}
}

// groupFields are the columns of sinfo by the names of -O.
var groupFields = sync.OnceValue(func() map[string]text.Column[group] {
	return map[string]text.Column[group]{
		"allocnodes":     {Head: "ALLOCNODES", Value: always("all")},
		"available":      {Head: "AVAIL", Value: (*group).avail},
		"cpus":           {Head: "CPUS", Whole: true, Value: ofNode(func(n *Node) string { return number(n.CPUs) })},
		"cpusload":       {Head: "CPU_LOAD", Value: ofNode(func(n *Node) string { return orNA(n.Load) })},
		"cpusstate":      {Head: "CPUS(A/I/O/T)", Value: (*group).cpuStates},
		"cores":          {Head: "CORES", Whole: true, Value: always("1")},
		"defaulttime":    {Head: "DEFAULTTIME", Whole: true, Value: (*group).defaultTime},
		"disk":           {Head: "TMP_DISK", Whole: true, Value: always("0")},
		"allocmem":       {Head: "ALLOCMEM", Whole: true, Value: ofNode(func(n *Node) string { return number(n.MemUsed) })},
		"cluster":        {Head: "CLUSTER", Value: always("N/A")},
		"comment":        {Head: "COMMENT", Value: always(null)},
		"extra":          {Head: "EXTRA", Value: always(null)},
		"features":       {Head: "AVAIL_FEATURES", Value: ofNode((*Node).features)},
		"featuresact":    {Head: "ACTIVE_FEATURES", Value: ofNode((*Node).features)},
		"freemem":        {Head: "FREE_MEM", Value: ofNode(func(n *Node) string { return number(n.FreeMem) })},
		"gres":           {Head: "GRES", Value: ofNode(func(n *Node) string { return orNull(n.Gres) })},
		"gresused":       {Head: "GRES_USED", Value: ofNode(func(n *Node) string { return orNull(n.GresUsed) })},
		"groups":         {Head: "GROUPS", Value: always("all")},
		"gpuslent":       {Head: "GPUS_LENT", Whole: true, Value: func(g *group) string { return number(g.part.Lent) }},
		"maxcpuspernode": {Head: "MAX_CPUS_PER_NODE", Value: always("UNLIMITED")},
		"memory":         {Head: "MEMORY", Whole: true, Value: ofNode(func(n *Node) string { return number(n.MemMiB) })},
		"nodeaddr":       {Head: "NODE_ADDR", Value: ofNode(func(n *Node) string { return n.Addr })},
		"nodeai": {Head: "NODES(A/I)", Value: func(g *group) string {
			c := g.counts()
			return fmt.Sprintf("%d/%d", c[0], c[1])
		}},
		"nodeaiot": {Head: "NODES(A/I/O/T)", Value: func(g *group) string {
			c := g.counts()
			return fmt.Sprintf("%d/%d/%d/%d", c[0], c[1], c[2], c[3])
		}},
		"nodehost":          {Head: "HOSTNAMES", Value: ofNode(func(n *Node) string { return n.Host })},
		"nodelist":          {Head: "NODELIST", Value: (*group).names},
		"nodes":             {Head: "NODES", Whole: true, Value: func(g *group) string { return number(len(g.nodes)) }},
		"oversubscribe":     {Head: "OVERSUBSCRIBE", Value: always("NO")},
		"partition":         {Head: "PARTITION", Value: (*group).partition},
		"partitionname":     {Head: "PARTITION", Value: func(g *group) string { return g.part.Name }},
		"preemptmode":       {Head: "PREEMPT_MODE", Value: always("OFF")},
		"priorityjobfactor": {Head: "PRIO_JOB_FACTOR", Whole: true, Value: always("1")},
		"prioritytier":      {Head: "PRIO_TIER", Whole: true, Value: always("1")},
		"reason":            {Head: "REASON", Value: ofNode((*Node).reason)},
		"root":              {Head: "ROOT", Value: always("no")},
		"size":              {Head: "JOB_SIZE", Value: always("1-infinite")},
		"socketcorethread":  {Head: "S:C:T", Value: ofNode((*Node).sockets)},
		"sockets":           {Head: "SOCKETS", Whole: true, Value: ofNode(func(n *Node) string { return number(n.CPUs) })},
		"statecompact":      {Head: "STATE", Value: stateForm(1)},
		"statecomplete":     {Head: "STATECOMPLETE", Value: ofNode((*Node).complete)},
		"statelong":         {Head: "STATE", Value: stateForm(0)},
		"threads":           {Head: "THREADS", Whole: true, Value: always("1")},
		"time":              {Head: "TIMELIMIT", Whole: true, Value: (*group).timeLimit},
		"timestamp":         {Head: "TIMESTAMP", Value: ofNode(func(n *Node) string { return n.Times.Stamp(n.ReasonAt, "Unknown") })},
		"user":              {Head: "USER", Value: ofNode((*Node).user)},
		"userlong":          {Head: "USER", Value: ofNode((*Node).userLong)},
		"version":           {Head: "VERSION", Value: ofNode(func(n *Node) string { return n.Version })},
		"weight":            {Head: "WEIGHT", Whole: true, Value: always("1")},
	}
})

var groupLetters = sync.OnceValue(func() map[byte]text.Column[group] {
	return text.Letters(map[byte]string{
		'a': "available", 'A': "nodeai", 'B': "maxcpuspernode", 'c': "cpus", 'C': "cpusstate", 'd': "disk", 'D': "nodes", 'e': "freemem", 'E': "reason",
		'f': "features", 'F': "nodeaiot", 'g': "groups", 'G': "gres", 'h': "oversubscribe", 'H': "timestamp", 'I': "priorityjobfactor", 'l': "time",
		'L': "defaulttime", 'm': "memory", 'M': "preemptmode", 'n': "nodehost", 'N': "nodelist", 'o': "nodeaddr", 'O': "cpusload", 'p': "prioritytier",
		'P': "partition", 'r': "root", 'R': "partitionname", 's': "size", 'S': "allocnodes", 't': "statecompact", 'T': "statelong", 'u': "user", 'U': "userlong",
		'v': "version", 'w': "weight", 'X': "sockets", 'Y': "cores", 'Z': "threads", 'z': "socketcorethread",
	}, groupFields())
})

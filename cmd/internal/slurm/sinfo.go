package slurm

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berth-scheduler/berth/cmd/internal/slurm/text"
)

// Formats of sinfo's tables.
const (
	nodesFormat   = "%#P %.5a %.10l %.6D %.6t %N"
	nodesLong     = "%#P %.5a %.10l %.10s %.4r %.8h %.10g %.6D %.11T %N"
	nodesSummary  = "%#P %.5a %.10l %.16F %N"
	nodesReasons  = "%20E %9u %19H %N"
	nodesReasonsL = "%20E %12U %19H %6t %N"
	nodesEach     = "%#N %.6D %.#P %6t"
	nodesEachLong = "%#N %.6D %.#P %.11T %4c %.8z %.6m %.8d %.6w %.8f %20E"
	leastFit      = 9 // of %#P and %#N
)

// Sinfo holds the options of sinfo.
type Sinfo struct {
	// Format is that of -o, Fields that of -O; if both are "", a table of
	// Slurm's is used.
	Format, Fields string
	// Each, Long, Summary, Reasons and NoHead are -N, -l, -s, -R and -h.
	Each, Long, Summary, Reasons, NoHead bool
	// Nodes, Partitions and States select; empty means all. States are in
	// lower case, in either form.
	Nodes, Partitions, States []string
	// Dead and Responding select nodes that do not respond, or do.
	Dead, Responding bool
	// Sort is that of -S; "" is Slurm's default.
	Sort string
}

// Print writes the nodes as sinfo does at the time now. Nodes are sorted by
// name. Without partitions all nodes are in one. The error is for a format
// that names no field; then nothing was written.
func (s *Sinfo) Print(w io.Writer, parts []Partition, nodes []Node, now time.Time) error {
	l, err := s.layout()
	if err != nil {
		return err
	}
	rows := s.groups(&l, parts, nodes)
	if s.Sort != "" {
		order, err := groupOrder(s.Sort, parts)
		if err != nil {
			return err
		}
		slices.SortStableFunc(rows, order)
	}
	l.Fit(len(rows), func(i int) *group { return &rows[i] }, leastFit)
	var b strings.Builder
	if s.Long && !s.NoHead {
		fmt.Fprintln(&b, now.Format("Mon Jan 02 15:04:05 2006"))
	}
	if !s.NoHead {
		fmt.Fprintln(&b, l.Heads())
	}
	for i := range rows {
		fmt.Fprintln(&b, l.Row(&rows[i]))
	}
	_, err = io.WriteString(w, b.String())
	return err
}

func (s *Sinfo) layout() (text.Table[group], error) {
	format := nodesFormat
	switch {
	case s.Format != "":
		format = s.Format
	case s.Reasons && s.Long:
		format = nodesReasonsL
	case s.Reasons:
		format = nodesReasons
	case s.Summary:
		format = nodesSummary
	case s.Each && s.Long:
		format = nodesEachLong
	case s.Each:
		format = nodesEach
	case s.Long:
		format = nodesLong
	}
	l := text.ByLetter(format, groupLetters())
	if s.Fields != "" {
		l = text.ByName(s.Fields, groupFields())
	}
	return l, l.Err("node")
}

// groups makes the lines: nodes of a partition that agree in all columns
// except sums share one.
func (s *Sinfo) groups(l *text.Table[group], parts []Partition, nodes []Node) []group {
	var out []group
	for p := range parts {
		part := &parts[p]
		if len(s.Partitions) > 0 && !slices.Contains(s.Partitions, part.Name) {
			continue
		}
		var own []group
		at := map[string]int{}
		for i := range nodes {
			n := &nodes[i]
			if !slices.Contains(part.Nodes, n.Name) || !s.Wants(n) {
				continue
			}
			one := group{part: part, nodes: []*Node{n}}
			key := n.Name
			if !s.Each {
				key = l.Keys(&one, "NODELIST", "NODES", "CPUS(A/I/O/T)", "NODES(A/I)", "NODES(A/I/O/T)")
			}
			if k, ok := at[key]; ok {
				own[k].nodes = append(own[k].nodes, n)
				continue
			}
			at[key] = len(own)
			own = append(own, one)
		}
		if !s.Each {
			slices.SortStableFunc(own, func(a, b group) int { return cmp.Compare(b.nodes[0].rank(), a.nodes[0].rank()) })
		}
		if len(own) == 0 && !s.Reasons && len(s.Nodes)+len(s.States) == 0 && !s.Each {
			own = append(own, group{part: part, nodes: nil})
		}
		out = append(out, own...)
	}
	if s.Reasons {
		out = oncePerNode(out)
	}
	if s.Each {
		slices.SortStableFunc(out, func(a, b group) int { return cmp.Compare(a.nodes[0].Name, b.nodes[0].Name) })
	}
	return out
}

// oncePerNode drops the lines of further partitions.
func oncePerNode(rows []group) []group {
	var out []group
	for _, g := range rows {
		if !slices.ContainsFunc(out, func(o group) bool { return o.names() == g.names() }) {
			out = append(out, g)
		}
	}
	return out
}

// Wants reports whether a node's name and state are selected.
func (s *Sinfo) Wants(n *Node) bool {
	if s.Reasons && n.Reason == "" || s.Dead && !n.Silent || s.Responding && n.Silent {
		return false
	}
	return (len(s.Nodes) == 0 || slices.Contains(s.Nodes, n.Name)) &&
		(len(s.States) == 0 || slices.Contains(s.States, n.form(0)) || slices.Contains(s.States, n.form(1)))
}

// rank returns Slurm's number of a state, flags above the base state.
func (n *Node) rank() int {
	base, flags, _ := strings.Cut(n.State, "+")
	r := slices.Index([]string{"UNKNOWN", "DOWN", "IDLE", "ALLOCATED", "ERROR", "MIXED"}, base)
	if flags != "" {
		r += 0x200
	}
	return r
}

// groupOrder reads an order of -S: letters of -o, each with an optional + or
// -, and # before P for the order of the partitions.
func groupOrder(spec string, parts []Partition) (func(a, b group) int, error) {
	var keys []func(a, b *group) int
	for _, field := range strings.Split(spec, ",") {
		name, dir := strings.TrimLeft(field, "+-"), 1
		if strings.HasPrefix(field, "-") {
			dir = -1
		}
		var by func(a, b *group) int
		col, ok := groupColumn(name)
		switch {
		case name == "#P":
			at := func(g *group) int {
				return slices.IndexFunc(parts, func(p Partition) bool { return p.Name == g.part.Name })
			}
			by = func(a, b *group) int { return cmp.Compare(at(a), at(b)) }
		case name == "t" || name == "T":
			by = func(a, b *group) int { return cmp.Compare(a.rank(), b.rank()) }
		case !ok:
			return nil, text.Message("Invalid sort specification: " + field)
		default:
			by = func(a, b *group) int { return compareText(col.Value(a), col.Value(b)) }
		}
		keys = append(keys, func(a, b *group) int { return dir * by(a, b) })
	}
	return func(a, b group) int {
		for _, by := range keys {
			if c := by(&a, &b); c != 0 {
				return c
			}
		}
		return 0
	}, nil
}

func groupColumn(name string) (text.Column[group], bool) {
	if len(name) != 1 {
		return text.Column[group]{}, false
	}
	col, ok := groupLetters()[name[0]]
	return col, ok
}

// compareText compares numbers numerically.
func compareText(a, b string) int {
	x, errA := strconv.ParseInt(a, 10, 64)
	y, errB := strconv.ParseInt(b, 10, 64)
	if errA == nil && errB == nil {
		return cmp.Compare(x, y)
	}
	return cmp.Compare(a, b)
}

// rank returns that of its nodes' state, below all others if it has none.
func (g *group) rank() int {
	if len(g.nodes) == 0 {
		return -1
	}
	return g.nodes[0].rank()
}

// PrintReservations writes reservations as sinfo -T does.
func (s *Sinfo) PrintReservations(w io.Writer, list []Reservation, now time.Time) error {
	var b strings.Builder
	if len(list) == 0 {
		b.WriteString("No reservations in the system\n")
	}
	if len(list) > 0 && s.Long && !s.NoHead {
		fmt.Fprintln(&b, now.Format("Mon Jan 02 15:04:05 2006"))
	}
	const line = "%-10s %8s  %19s  %19s  %11s  %s\n"
	if len(list) > 0 && !s.NoHead {
		fmt.Fprintf(&b, line, "RESV_NAME", "STATE", "START_TIME", "END_TIME", "DURATION", "NODELIST")
	}
	for i := range list {
		x := &list[i]
		fmt.Fprintf(&b, line, x.Name, x.state(), text.Stamp(x.Start, ""), text.Stamp(x.End, ""), text.Clock(x.End.Sub(x.Start)), x.Nodes)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

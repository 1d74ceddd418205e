package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/say"
)

// NeverFits reports whether job could never run on nodes, even if all were empty;
// drained and silent nodes count, since they may come back. The error has
// CodeInvalid and names the first thing that no node has, and the most available of
// it. It is nil if some node could run the job, and if no node is registered at
// all: then the job waits.
func NeverFits(nodes []*cluster.Node, job *cluster.Job, pol Policy) *cluster.Error {
	why := NeverOn(nodes, job, pol)
	if c := CoresOf(job, &pol); c != nil && why != "" {
		switch on := NeverOn(nodes, c.Plain(job), pol); {
		case c.Never != "":
			why += "; and on cores it " + c.Never
		case on != "":
			why += "; and on cores: " + on
		default:
			return nil
		}
	}
	if why == "" {
		return nil
	}
	return cluster.Errorf(cluster.CodeInvalid, "never satisfiable: %s", why)
}

// NeverOn is NeverFits without the option of cores instead of GPUs, and returns
// only what is missing. A job that fits on some nodes fits on more, so a few are
// tried first: nearly every job fits on them.
func NeverOn(nodes []*cluster.Node, job *cluster.Job, pol Policy) string {
	for few := 2 * job.Spec.NodeCount(); few < len(nodes); few *= 8 {
		if lackOn(nodes[:few], job, pol) == "" {
			return ""
		}
	}
	return lackOn(nodes, job, pol)
}

// LeastNodeMem returns the memory of the smallest of nodes on which a job could run
// if it had all of it, in MiB; 0 if there is none. It checks only nodes smaller
// than those so far, as many users may ask at once.
func LeastNodeMem(nodes []*cluster.Node, job *cluster.Job, pol Policy) (least int64) {
	for i, n := range nodes {
		if least > 0 && n.MemMiB >= least {
			continue
		}
		s := newSieve(nodes[i:i+1], job, pol)
		if s.first(s.node, s.gpuType, s.limits, s.gpuMem, s.count, s.cores) == "" {
			least = n.MemMiB
		}
	}
	return least
}

// lackOn returns what all of nodes lack, or "".
func lackOn(nodes []*cluster.Node, job *cluster.Job, pol Policy) string {
	if len(nodes) == 0 {
		return ""
	}
	s := newSieve(nodes, job, pol)
	if len(s.able) == 0 && job.Spec.Restricted() {
		return whereNever(nodes, job)
	}
	return s.first(s.node, s.gpuType, s.limits, s.gpuMem, s.count, s.cores, s.host, s.enough)
}

// sieve keeps the nodes that have everything checked so far. Each step says what is
// missing if it would keep none, so its words are about the nodes that have the
// rest.
type sieve struct {
	job      *cluster.Job
	pol      Policy
	cpu, mem int64
	able     []*cluster.Node // sorted by id
}

func newSieve(nodes []*cluster.Node, job *cluster.Job, pol Policy) *sieve {
	able := slices.DeleteFunc(slices.Clone(nodes), func(n *cluster.Node) bool { return !job.Spec.Allows(n) })
	slices.SortFunc(able, ByNode)
	s := &sieve{job: job, pol: pol, able: able}
	s.cpu, s.mem = HostOf(job, &pol)
	return s
}

// first returns the words of the first step that would keep no node, "" if all keep
// some.
func (s *sieve) first(steps ...func() string) string {
	for _, lack := range steps {
		if why := lack(); why != "" {
			return why
		}
	}
	return ""
}

// keep drops the nodes that are not good; it reports whether any are left.
func (s *sieve) keep(good func(*cluster.Node) bool) bool {
	left := make([]*cluster.Node, 0, len(s.able))
	for _, n := range s.able {
		if good(n) {
			left = append(left, n)
		}
	}
	if len(left) == 0 {
		return false
	}
	s.able = left
	return true
}

// most returns the first node with the highest value of of.
func (s *sieve) most(of func(*cluster.Node) int64) *cluster.Node {
	return slices.MaxFunc(s.able, func(a, b *cluster.Node) int { return cmp.Compare(of(a), of(b)) })
}

func (s *sieve) node() string {
	if len(s.able) > 0 {
		return ""
	}
	return fmt.Sprintf("node %s is not registered", s.job.Spec.Node)
}

func (s *sieve) gpuType() string {
	want := s.job.Spec.GPUType
	if s.job.Spec.GPUs == 0 || s.keep(func(n *cluster.Node) bool {
		return slices.ContainsFunc(n.GPUs, func(g cluster.GPU) bool { return want == "" || g.Type == want })
	}) {
		return ""
	}
	var types []string
	for _, n := range s.able {
		for i := range n.GPUs {
			types = append(types, n.GPUs[i].Type)
		}
	}
	slices.Sort(types)
	switch types = slices.Compact(types); {
	case len(types) > 0:
		return fmt.Sprintf("no GPU of type %s%s; the types are %s", want, s.onNode(" on node "), strings.Join(types, ", "))
	case s.job.Spec.Node != "":
		return fmt.Sprintf("node %s has no GPU", s.job.Spec.Node)
	}
	return "no node has a GPU"
}

// onNode adds the node that the job asks for, if it does.
func (s *sieve) onNode(words string) string {
	if s.job.Spec.Node == "" {
		return ""
	}
	return words + string(s.job.Spec.Node)
}

// limits reports the case that every suitable type is beyond the job's limits of
// power and price.
func (s *sieve) limits() string {
	if s.job.Spec.MaxPowerW == 0 && s.job.Spec.MaxCostMilli == 0 || s.job.Spec.GPUs == 0 {
		return ""
	}
	why := ""
	if s.keep(func(n *cluster.Node) bool {
		return slices.ContainsFunc(n.GPUs, func(g cluster.GPU) bool {
			e, _ := cluster.EstimateFor(s.job.Estimates, g.Type)
			nd := NeedOn(s.job, &g, &e, &s.pol)
			if nd.Why != vetoPower && nd.Why != vetoCost {
				return nd.Why != vetoType
			}
			if why == "" {
				why = "on " + g.Type + " it " + VetoReason(s.job, &g, &e, &nd, &s.pol).Detail
			}
			return false
		})
	}) {
		return ""
	}
	return why
}

func (s *sieve) gpuMem() string {
	if s.job.Spec.GPUs == 0 || s.keep(func(n *cluster.Node) bool { return s.alike(n) > 0 }) {
		return ""
	}
	n := s.most(func(n *cluster.Node) int64 { return s.largest(n).SellableMiB })
	g := s.largest(n)
	need, whence := s.job.Spec.GPUMemMiB, ""
	if e, _ := cluster.EstimateFor(s.job.Estimates, g.Type); need == 0 {
		need, whence = e.GPUMemMiB, " (predicted; declare the memory to overrule it)"
	}
	if g.SellableMiB <= 0 {
		return fmt.Sprintf("no GPU%s has memory to give away", s.onNode(" of node "))
	}
	asked, most := cluster.MemTexts(need, g.SellableMiB)
	return fmt.Sprintf("%s of GPU memory%s; the largest GPU sells %s (%s, node %s)", asked, whence, most, g.Type, n.ID)
}

// largest returns the GPU of n, of the requested type, that sells most. The
// previous step left only nodes that have one.
func (s *sieve) largest(n *cluster.Node) *cluster.GPU {
	var best *cluster.GPU
	for i := range n.GPUs {
		g := &n.GPUs[i]
		if want := s.job.Spec.GPUType; (want == "" || g.Type == want) && (best == nil || g.SellableMiB > best.SellableMiB) {
			best = g
		}
	}
	return best
}

func (s *sieve) count() string {
	if s.job.Spec.GPUs == 0 || s.keep(func(n *cluster.Node) bool { return s.alike(n) >= s.job.Spec.GPUs }) {
		return ""
	}
	n := s.most(func(n *cluster.Node) int64 { return int64(s.alike(n)) })
	k, gpuType := 0, ""
	for i := range n.GPUs {
		if same := s.same(n, &n.GPUs[i]); same > k {
			k, gpuType = same, n.GPUs[i].Type
		}
	}
	memory := ""
	if m := s.job.Spec.GPUMemMiB; m > 0 {
		memory = " with " + cluster.MemText(m)
	}
	return fmt.Sprintf("%s%s on one node; the largest is node %s with %d × %s%s", say.GPUs(s.job.Spec.GPUs), memory, n.ID, k, gpuType, s.spread())
}

// spread says over how many nodes, as few as possible, a job that asks for too many GPUs
// on one could have them, or "".
func (s *sieve) spread() string {
	if s.job.Spec.NodeCount() > 1 || s.job.Spec.Node != "" {
		return ""
	}
	all := s.job.Spec.GPUs
	for nodes := 2; nodes <= min(all, len(s.able)); nodes++ {
		if all%nodes > 0 {
			continue
		}
		job, spec := *s.job, *s.job.Spec
		job.Spec, spec.Nodes, spec.GPUs = &spec, nodes, all/nodes
		part := sieve{job: &job, pol: s.pol, cpu: s.cpu, mem: s.mem, able: s.able}
		if part.first(part.count, part.cores, part.host, part.enough) == "" {
			return fmt.Sprintf("; as a job on %d nodes with %s on each it fits (--nodes %d, -N %d of sbatch)", nodes, say.GPUs(all/nodes), nodes, nodes)
		}
	}
	return ""
}

// alike returns how many GPUs of one kind the job could have on n.
func (s *sieve) alike(n *cluster.Node) int {
	most := 0
	for i := range n.GPUs {
		if i > 0 && Twins(&n.GPUs[i-1], &n.GPUs[i]) {
			continue
		}
		most = max(most, s.same(n, &n.GPUs[i]))
	}
	return most
}

// Twins reports whether two GPUs suit the same jobs when empty.
func Twins(a, b *cluster.GPU) bool {
	return a.Type == b.Type && a.SellableMiB == b.SellableMiB && a.Shareable() == b.Shareable()
}

// same returns how many GPUs of n are like g, 0 if the job cannot run on g.
func (s *sieve) same(n *cluster.Node, g *cluster.GPU) int {
	e, _ := cluster.EstimateFor(s.job.Estimates, g.Type)
	if nd := NeedOn(s.job, g, &e, &s.pol); nd.Way == WayNone {
		return 0
	}
	same := 0
	for k := range n.GPUs {
		if Twins(&n.GPUs[k], g) {
			same++
		}
	}
	return same
}

// beside says which nodes are meant if only those with GPUs will do.
func (s *sieve) beside() string {
	if s.job.Spec.GPUs == 0 {
		return ""
	}
	return " beside " + say.GPUs(s.job.Spec.GPUs)
}

func (s *sieve) cores() string {
	if s.keep(func(n *cluster.Node) bool { return n.CPUMilli >= s.cpu }) {
		return ""
	}
	n := s.most(func(n *cluster.Node) int64 { return n.CPUMilli })
	return fmt.Sprintf("%s%s; the most is node %s with %s", say.Cores(s.cpu), s.beside(), n.ID, say.Cores(n.CPUMilli))
}

func (s *sieve) host() string {
	if s.keep(func(n *cluster.Node) bool { return n.MemMiB >= s.mem }) {
		return ""
	}
	n := s.most(func(n *cluster.Node) int64 { return n.MemMiB })
	also := ""
	if s.cpu > 0 {
		also = " and " + say.Cores(s.cpu)
	}
	asked, most := cluster.MemTexts(s.mem, n.MemMiB)
	return fmt.Sprintf("%s of host memory%s; the most is node %s with %s", asked, s.besideWith(also), n.ID, most)
}

func (s *sieve) besideWith(also string) string {
	if b := s.beside(); b != "" {
		return b + also
	}
	return strings.Replace(also, " and", " beside", 1)
}

// whereNever says why no node of the cluster is one that the job asks for.
func whereNever(nodes []*cluster.Node, job *cluster.Job) string {
	w := job.Spec.Where
	var has []string
	for _, n := range nodes {
		has = append(has, n.Features...)
	}
	slices.Sort(has)
	has = slices.Compact(has)
	if set, none := dataNever(w.Features.String(), has); none {
		return set
	}
	some := func(feature string) bool { return slices.Contains(has, feature) }
	switch text := w.Features.String(); {
	case w.Named() && !slices.ContainsFunc(nodes, func(n *cluster.Node) bool { return w.Nodes.Holds(n.ID) }):
		return fmt.Sprintf("no node of %s is registered, or in its partition", w.Nodes)
	case text != "" && len(has) == 0:
		return fmt.Sprintf("no node has the features %s; none has any (features in the configuration of agents)", text)
	case text != "" && !slices.ContainsFunc(strings.FieldsFunc(text, func(r rune) bool { return r == '&' || r == '|' }), some):
		return fmt.Sprintf("no node has the features %s; there are %s", text, strings.Join(has, ", "))
	case text != "":
		return fmt.Sprintf("no node that it may use has the features %s all at once; there are %s", text, strings.Join(has, ", "))
	}
	return fmt.Sprintf("all nodes are excluded (%s)", w.Exclude)
}

// dataNever says that no node has a data set that a job must have.
func dataNever(features string, has []string) (words string, none bool) {
	var sets []string
	for _, f := range has {
		if set, ok := strings.CutPrefix(f, cluster.DataFeature); ok {
			sets = append(sets, set)
		}
	}
	for term := range strings.SplitSeq(features, "&") {
		set, ok := strings.CutPrefix(term, cluster.DataFeature)
		switch {
		case !ok || slices.Contains(sets, set) || strings.Contains(set, "|"):
		case len(sets) == 0:
			return fmt.Sprintf("no node has the data set %s; none has any (node.data of their agents)", set), true
		default:
			const most = 16
			return fmt.Sprintf("no node has the data set %s; there are %s", set, strings.Join(sets[:min(len(sets), most)], ", ")), true
		}
	}
	return "", false
}

// enough reports the case that a job needs more nodes than could ever hold it at
// once, on GPUs of one type.
func (s *sieve) enough() string {
	n := s.job.Spec.NodeCount()
	if w := s.job.Spec.Where; w.Named() {
		for _, id := range w.Nodes.Names() {
			if !slices.ContainsFunc(s.able, func(o *cluster.Node) bool { return o.ID == id }) {
				return fmt.Sprintf("node %s, which it asks for, with all that it needs", id)
			}
		}
	}
	if n == 1 {
		return ""
	}
	if s.job.Spec.GPUs == 0 {
		if len(s.able) >= n {
			return ""
		}
		return fmt.Sprintf("%d nodes at once; the largest set that has what it needs on each is %s", n, say.Nodes(len(s.able)))
	}
	count, most, of := map[ClassKey]int{}, 0, ""
	for _, node := range s.able {
		seen := map[ClassKey]bool{}
		for i := range node.GPUs {
			k := classOf(&node.GPUs[i])
			if seen[k] || s.same(node, &node.GPUs[i]) < s.job.Spec.GPUs || !s.named(k) {
				continue
			}
			seen[k] = true
			if count[k]++; count[k] > most || count[k] == most && k.GPUType < of {
				most, of = count[k], k.GPUType
			}
		}
	}
	switch {
	case most >= n:
		return ""
	case most == 0: // each has some, or it would not be left
		return fmt.Sprintf("%s of one type on each of %s, which it asks for", say.GPUs(s.job.Spec.GPUs), s.job.Spec.Where.Nodes)
	}
	return fmt.Sprintf("%d nodes with %s of one type on each; the largest set is %s with %s of %s", n, say.GPUs(s.job.Spec.GPUs), say.Nodes(most), say.GPUs(s.job.Spec.GPUs), of)
}

// named reports whether each node that the job names has enough GPUs of a kind.
func (s *sieve) named(k ClassKey) bool {
	w := s.job.Spec.Where
	if !w.Named() {
		return true
	}
	return !slices.ContainsFunc(s.able, func(n *cluster.Node) bool {
		return w.Nodes.Holds(n.ID) && !slices.ContainsFunc(n.GPUs, func(g cluster.GPU) bool { return classOf(&g) == k && s.same(n, &g) >= s.job.Spec.GPUs })
	})
}

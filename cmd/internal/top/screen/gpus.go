package screen

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/admin"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// Every is how often nodes are fetched, and the time between samples.
const Every = 2 * time.Second

// kept is how many samples are kept: ten minutes.
const kept = int(10 * time.Minute / Every)

// series are samples in thousandths, the newest last; -1 is unknown.
type series struct {
	values []int16
	last   int64 // the interval of the newest
}

// add appends a sample at its time; intervals without one are unknown.
func (r *series) add(at time.Time, v int16) {
	slot := at.UnixNano() / int64(Every)
	switch gap := slot - r.last; {
	case len(r.values) > 0 && gap <= 0:
		r.values[len(r.values)-1] = v
		return
	case len(r.values) > 0:
		missed := int16(-1)
		if gap == 2 { // an answer that took its time
			missed = v
		}
		for range min(gap-1, int64(kept)) {
			r.values = append(r.values, missed)
		}
	}
	r.last = slot
	if r.values = append(r.values, v); len(r.values) > 2*kept {
		r.values = append([]int16(nil), r.values[len(r.values)-kept:]...)
	}
}

// latest are the samples of the last ten minutes.
func (r *series) latest() []int16 { return r.values[max(0, len(r.values)-kept):] }

// card is a GPU with its samples.
type card struct {
	node      *apiv1.Node
	gpu       *apiv1.GPU
	busy, mem series
	round     time.Time
}

func (c *card) id() string { return c.node.GetId() + "/" + strconv.Itoa(int(c.gpu.GetIndex())) }

// takeCards records what each GPU shows now, and forgets those that are gone.
func (s *Screen) takeCards() {
	for _, n := range s.nodes {
		for _, g := range n.GetGpus() {
			c := s.cards[g.GetUuid()]
			if c == nil {
				c = &card{}
				s.cards[g.GetUuid()] = c
			}
			c.node, c.gpu, c.round = n, g, s.now
			mem := int16(-1)
			if used := g.GetMeasuredUsedMib(); used >= 0 && g.GetMemMib() > 0 {
				mem = int16(min(1000, used*1000/g.GetMemMib()))
			}
			c.busy.add(s.now, int16(min(1000, g.GetMeasuredUtilMilli())))
			c.mem.add(s.now, mem)
		}
	}
	for id, c := range s.cards {
		if c.round != s.now {
			delete(s.cards, id)
		}
	}
}

var gpuSorts = []string{"node", "busy", "free", "type"}

func (s *Screen) makeGPURows() []*card {
	rows := make([]*card, 0, len(s.cards))
	low := strings.ToLower(s.filters[TabGPUs])
	for _, c := range s.cards {
		if s.mine && !slices.ContainsFunc(c.gpu.GetJobs(), func(id uint64) bool { e := s.store.byID[id]; return e != nil && s.isMine(e.job) }) {
			continue
		}
		if low == "" || strings.Contains(strings.ToLower(c.id()+" "+c.gpu.GetType()+" "+c.gpu.GetUuid()+" "+admin.GpuHealth(c.gpu)), low) {
			rows = append(rows, c)
		}
	}
	by := s.sorts[TabGPUs]
	slices.SortFunc(rows, func(a, b *card) int {
		n := 0
		switch gpuSorts[by.by] {
		case "busy":
			n = cmp.Compare(b.gpu.GetMeasuredUtilMilli(), a.gpu.GetMeasuredUtilMilli())
		case "free":
			n = cmp.Compare(b.gpu.GetSellableMib()-b.gpu.GetLedgerUsedMib(), a.gpu.GetSellableMib()-a.gpu.GetLedgerUsedMib())
		case "type":
			n = strings.Compare(a.gpu.GetType(), b.gpu.GetType())
		}
		n = cmp.Or(n, natural(a.node.GetId(), b.node.GetId()), cmp.Compare(a.gpu.GetIndex(), b.gpu.GetIndex()))
		if by.reverse {
			return -n
		}
		return n
	})
	return rows
}

// natural compares names so that n2 comes before n10.
func natural(a, b string) int {
	stem := func(s string) (string, int) {
		t := strings.TrimRight(s, "0123456789")
		n, _ := strconv.Atoi(s[len(t):])
		return t, n
	}
	sa, na := stem(a)
	sb, nb := stem(b)
	return cmp.Or(strings.Compare(sa, sb), na-nb, strings.Compare(a, b))
}

func (s drawing) gpuTable() table {
	t := table{
		cols: []column{
			{head: "NODE", width: 8}, {head: "GPU", width: 3, right: true}, {head: "TYPE", width: 14, rank: 4}, {head: "MEMORY", width: 16, grow: true},
			{head: "USED/GIVEN", width: 11, right: true, rank: 1}, {head: "BUSY", width: 4, right: true}, {head: "10 MIN", width: 8, rank: 1, grow: s.width >= 120}, {head: "TEMP", width: 4, right: true, rank: 2},
			{head: "POWER", width: 5, right: true, rank: 3}, {head: "JOBS", width: 9, grow: s.width >= 120},
		},
		n:     len(s.gpuRows),
		key:   func(i int) string { return s.gpuRows[i].id() },
		cells: func(i int) []cell { return s.gpuCells(s.gpuRows[i]) },
		empty: "no node has a GPU",
	}
	switch {
	case !s.gotNodes:
		t.empty = "loading the nodes …"
	case s.filters[TabGPUs] != "" || s.mine:
		t.empty = "no GPU matches; Esc clears the filter, m shows those without your jobs"
	}
	return t
}

func (s drawing) gpuCells(c *card) []cell {
	g := c.gpu
	jobs := text(s.store.labels(g.GetJobs()))
	if health := admin.GpuHealth(g); health != cluster.GPUOK.String() || admin.NodeState(c.node) != cluster.NodeReady.String() {
		if health == cluster.GPUOK.String() {
			health = admin.NodeState(c.node)
		}
		jobs = styled(red, strings.TrimSpace(clean(health)+" "+jobs.text))
	}
	given := fmt.Sprintf("%s/%sG", gib(g.GetMeasuredUsedMib()), gib(g.GetLedgerUsedMib()))
	return []cell{
		text(clean(c.node.GetId())), text(strconv.Itoa(int(g.GetIndex()))), text(clean(g.GetType())),
		{draw: func(k ink, width int) string { return s.memoryBar(k, g, width) }},
		text(given), text(percent(g.GetMeasuredUtilMilli())),
		{draw: func(k ink, width int) string { return k.paint(green, k.curve(c.busy.latest(), width, 1)[0]) }},
		text(unit(int64(g.GetTemperatureC()), "C")), text(unit(int64(g.GetPowerW()), "W")), jobs,
	}
}

// unit is n with its unit, "-" if unknown.
func unit(n int64, of string) string {
	if n <= 0 {
		return "-"
	}
	return strconv.FormatInt(n, 10) + of
}

func percent(milli int64) string {
	if milli < 0 {
		return "-"
	}
	return console.PercentOf(milli)
}

// gib is MiB as GiB, with a decimal below 100.
func gib(mib int64) string {
	switch {
	case mib < 0:
		return "?"
	case mib == 0:
		return "0"
	case mib < 100<<10:
		return strconv.FormatFloat(float64(mib)/1024, 'f', 1, 64)
	}
	return strconv.FormatInt((mib+512)>>10, 10)
}

func (s drawing) memoryBar(k ink, g *apiv1.GPU, width int) string {
	parts, stray := s.parts(g)
	return k.bar(parts, stray, max(g.GetMemMib(), g.GetSellableMib()), width)
}

// parts are the shares of the jobs on a GPU. Usage is measured for the GPU as a whole,
// and drawn over the shares in proportion; stray is what is used beyond them.
func (s drawing) parts(g *apiv1.GPU) (parts []part, stray int64) {
	known, given := int64(0), make([]int64, len(g.GetJobs()))
	for i, id := range g.GetJobs() {
		given[i] = s.shareOn(id, g)
		known += max(0, given[i])
	}
	unknown := int64(0)
	for _, n := range given {
		if n < 0 {
			unknown++
		}
	}
	sum := int64(0)
	for i := range given {
		if given[i] < 0 { // of another node of the job, say
			given[i] = max(0, g.GetLedgerUsedMib()-known) / unknown
		}
		sum += given[i]
	}
	used := max(0, g.GetMeasuredUsedMib())
	for _, n := range given {
		p := part{given: n}
		if sum > 0 {
			p.used = min(n, used*n/sum)
		}
		parts = append(parts, p)
	}
	return parts, max(0, used-sum)
}

// shareOn is the memory of a GPU that a job was given, -1 if unknown.
func (s drawing) shareOn(id uint64, g *apiv1.GPU) int64 {
	e := s.store.byID[id]
	if e == nil {
		return -1
	}
	for _, x := range e.job.GetGpus() {
		switch {
		case x.GetUuid() != g.GetUuid():
		case x.GetShare().GetExclusive():
			return max(x.GetShare().GetMemMib(), g.GetSellableMib())
		default:
			return x.GetShare().GetMemMib()
		}
	}
	return -1
}

package screen

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/admin"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/units"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// mostLines is how much of a log is kept.
const mostLines = 2000

// How much of the screen the details of the selected row take.
const (
	paneOff = iota
	paneHalf
	paneFull
	paneLog // all of it, with the log alone
)

// pane shows the details of the selected row; of a job, it follows the output.
type pane struct {
	size    int
	job     string // whose why and log are there, "" for none
	why     []string
	log     []string
	partial []byte
	end     string
	back    int // how many lines it is scrolled back
}

// takeLog adds what a job wrote.
func (p *pane) takeLog(m Log) {
	if m.Job != p.job {
		return
	}
	if m.Reset {
		p.log, p.partial, p.end = nil, nil, ""
	}
	if m.End != "" {
		p.end = clean(m.End)
	}
	data := append(p.partial, m.Data...)
	for {
		i := bytes.IndexByte(data, '\n')
		if i < 0 {
			break
		}
		p.log = append(p.log, cleanLine(string(data[:i])))
		data = data[i+1:]
	}
	if len(data) > 4*mostBytes { // an endless line
		data = data[len(data)-mostBytes:]
	}
	p.partial = append([]byte(nil), data...)
	if len(p.log) > mostLines+mostLines/4 {
		p.log = append([]string(nil), p.log[len(p.log)-mostLines:]...)
	}
}

// lines are those of the log, including an unfinished one.
func (p *pane) lines() []string {
	out := p.log
	if len(p.partial) > 0 {
		out = append(slices.Clip(out), cleanLine(string(p.partial)))
	}
	if p.end != "" {
		out = append(slices.Clip(out), "("+p.end+")")
	}
	return out
}

// chosen is the selected row of the jobs.
func (s *Screen) chosen() (jobRow, bool) {
	i := s.lists[TabJobs].row
	if s.tab != TabJobs || i >= len(s.jobRows) {
		return jobRow{}, false
	}
	return s.jobRows[i], true
}

// follow asks for what the pane is to show if that has changed.
func (s *Screen) follow() {
	job := ""
	if r, ok := s.chosen(); ok && s.pane.size != paneOff {
		_, job = r.named()
	}
	if job == s.pane.job {
		return
	}
	s.pane = pane{size: s.pane.size, job: job}
	s.ask(Look{job})
}

// paneLines draws the pane in exactly height lines.
func (s drawing) paneLines(width, height int) []string {
	var title string
	var out []string
	switch s.tab {
	case TabJobs:
		r, ok := s.chosen()
		if !ok {
			return fill([]string{s.rule("no job is selected", width)}, height)
		}
		title, out = s.jobPane(r, width, height-1)
	case TabGPUs:
		if i := s.lists[TabGPUs].row; i < len(s.gpuRows) {
			title, out = s.gpuPane(s.gpuRows[i], width, height-1)
		}
	case TabNodes:
		if i := s.lists[TabNodes].row; i < len(s.nodeRows) {
			title, out = s.nodePane(s.nodeRows[i], width)
		}
	case TabEvents:
		if i := s.lists[TabEvents].row; i < len(s.eventRows) {
			title, out = s.eventRows[i].of, wrap(s.eventRows[i].detail, width)
		}
	case TabUsers:
		if i := s.lists[TabUsers].row; i < len(s.userRows) {
			r := s.userRows[i]
			title, out = "User "+r.user, []string{fmt.Sprintf("%d running, %d waiting; holds %d GPUs with %sG of GPU memory", r.running, r.waiting, r.gpus, gib(r.memMiB))}
		}
	}
	for i := range out {
		if !strings.Contains(out[i], "\x1b") {
			out[i] = s.ink.fit(out[i], width, false)
		}
	}
	return fill(append([]string{s.rule(title, width)}, out...), height)
}

// rule is a horizontal line with a title.
func (s drawing) rule(title string, width int) string {
	line := s.ink.pick("──", "--")
	head := line + " " + title + " "
	rest := width - console.TextWidth(head)
	if rest > 0 {
		head += strings.Repeat(s.ink.pick("─", "-"), rest)
	}
	return s.ink.paint(bold, s.ink.fit(head, width, false))
}

func (s drawing) jobPane(r jobRow, width, height int) (title string, out []string) {
	j := r.job
	title = fmt.Sprintf("Job %s %s: %s", r.label(), r.name, clean(j.GetState()))
	if r.array != 0 {
		title = fmt.Sprintf("Array %d %s: %s", r.array, r.name, statesText(r.tasks))
	}
	if s.pane.size != paneLog {
		out = append(out, s.jobFacts(r))
		room := max(2, height/3)
		var why []string
		for _, line := range s.pane.why {
			why = append(why, wrap(line, width)...)
		}
		if len(why) > room {
			why = append(why[:room-1], s.ink.pick("… in full: berth why ", "~ in full: berth why ")+s.pane.job)
		}
		out = append(out, why...)
		if r.array == 0 {
			out = append(out, s.jobCurves(j, width, max(1, min(4, (height-len(out))/6)))...)
		}
	}
	log := s.pane.lines()
	if len(log) == 0 {
		return title, append(out, s.ink.paint(dim, "no output yet"))
	}
	room := max(1, height-len(out))
	s.pane.back = max(0, min(s.pane.back, len(log)-room))
	end := len(log) - s.pane.back
	return title, append(out, log[max(0, end-room):end]...)
}

// jobFacts is one line of what is known without a request.
func (s drawing) jobFacts(r jobRow) string {
	j := r.job
	facts := []string{clean(j.GetUser())}
	if a := j.GetAccount(); a != "" {
		facts = append(facts, "account "+clean(a))
	}
	if p := j.GetPartition(); p != "" {
		facts = append(facts, "partition "+clean(p))
	}
	if r.array == 0 && len(j.GetGpus()) > 0 {
		facts = append(facts, clean(console.NodesOf(j)+" "+console.GpuNames(j.GetGpus())), console.ShareText(j.GetGpus()))
	}
	switch {
	case j.GetStarted() != nil && !console.Waiting(j.GetState()):
		facts = append(facts, "ran "+console.Clock(s.ran(j)))
	case j.GetSubmitted() != nil:
		facts = append(facts, "submitted "+units.HumanDuration(max(0, s.now.Sub(j.GetSubmitted().AsTime())))+" ago")
	}
	return strings.Join(facts, s.ink.pick(" · ", ", "))
}

// jobCurves are those of the job's first GPU.
func (s drawing) jobCurves(j *apiv1.Job, width, height int) []string {
	if len(j.GetGpus()) == 0 || console.Terminal(j.GetState()) {
		return nil
	}
	c := s.cards[j.GetGpus()[0].GetUuid()]
	if c == nil {
		return nil
	}
	return s.curves(c, width, height)
}

// curves are how busy a GPU was and how much of its memory was in use, side by side.
func (s drawing) curves(c *card, width, height int) []string {
	half := (width - 3) / 2
	busy := fmt.Sprintf("%s busy %s", clean(c.id()), percent(c.gpu.GetMeasuredUtilMilli()))
	mem := fmt.Sprintf("memory %s of %sG", gib(c.gpu.GetMeasuredUsedMib()), gib(c.gpu.GetMemMib()))
	out := []string{s.ink.fit(busy, half, false) + "   " + s.ink.fit(mem+"; 10 min", half, false)}
	left, right := s.ink.curve(c.busy.latest(), half, height), s.ink.curve(c.mem.latest(), half, height)
	for i := range left {
		out = append(out, s.ink.paint(green, left[i])+" "+s.ink.pick("│", "|")+" "+s.ink.paint(cyan, right[i]))
	}
	return out
}

func (s drawing) gpuPane(c *card, width, height int) (title string, out []string) {
	g := c.gpu
	title = fmt.Sprintf("GPU %s: %s, %s", clean(c.id()), clean(g.GetType()), clean(admin.GpuHealth(g)))
	if why := strings.TrimSpace(g.GetStateReason() + " " + g.GetDrainReason()); why != "" {
		out = append(out, wrap(clean(why), width)...)
	}
	out = append(out, fmt.Sprintf("given %sG of %sG and %s of the compute to %s of at most %d; memory capped by %s", gib(g.GetLedgerUsedMib()), gib(g.GetSellableMib()),
		console.PercentOf(g.GetLedgerUsedMilli()), console.Plural(int(g.GetShares()), "job", "jobs"), g.GetMaxShares(), clean(console.OrDash(g.GetCapMode()))))
	out = append(out, s.memoryBar(s.ink, g, width))
	parts, _ := s.parts(g)
	for i, id := range g.GetJobs() {
		line := "job " + strconv.FormatUint(id, 10)
		if e := s.store.byID[id]; e != nil {
			line = fmt.Sprintf("%s %s of %s, %s", (jobRow{entry: e}).label(), e.name, clean(e.job.GetUser()), console.Clock(s.ran(e.job)))
		}
		line = s.ink.fit(fmt.Sprintf("%s, given %sG", line, gib(parts[i].given)), width, false)
		out = append(out, s.ink.paint(partStyles[i%len(partStyles)], line))
	}
	return title, append(out, s.curves(c, width, max(1, min(6, height-len(out)-1)))...)
}

func (s drawing) nodePane(n *apiv1.Node, width int) (title string, out []string) {
	title = fmt.Sprintf("Node %s: %s", clean(n.GetId()), clean(admin.NodeState(n)))
	if why := nodeReason(n); why != "" {
		out = append(out, wrap(why, width)...)
	}
	heard := ""
	if n.GetLastContact() != nil && n.GetState() != cluster.NodeReady.String() {
		heard = ", last heard from " + units.HumanDuration(max(0, s.now.Sub(n.GetLastContact().AsTime()))) + " ago"
	}
	out = append(out, fmt.Sprintf("%s, version %s, gossip %s%s", clean(n.GetAddress()), clean(console.OrDash(n.GetVersion())), clean(console.OrDash(n.GetGossip())), heard))
	if len(n.GetJobs()) > 0 {
		out = append(out, wrap("jobs "+s.store.labels(n.GetJobs()), width)...)
	}
	label := 0
	for _, g := range n.GetGpus() {
		label = max(label, console.TextWidth(clean(g.GetType()))+4)
	}
	label = min(label, width/3)
	for _, g := range n.GetGpus() {
		head := s.ink.fit(fmt.Sprintf("%d %s", g.GetIndex(), clean(g.GetType())), label, false)
		out = append(out, head+" "+s.memoryBar(s.ink, g, max(10, width-label-8))+" "+s.ink.fit(percent(g.GetMeasuredUtilMilli()), 5, true))
	}
	return title, out
}

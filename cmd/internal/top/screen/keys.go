package screen

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/admin"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
)

// prompt is what the last line asks for: y to a question, or a text.
type prompt struct {
	ask   string
	text  string
	typed bool
	done  func(text string)
	each  func(text string) // after each key
	none  func()            // when it is cancelled with Esc
}

// hand is a screen that takes keys.
type hand struct{ *Screen }

func (s hand) key(k Key) {
	s.note, s.noted = Note{}, 0
	switch {
	case k.Name == "ctrl+c":
		s.ask(Quit{})
	case s.prompt != nil:
		s.promptKey(k)
	case s.help:
		s.help = false
	case s.pane.size >= paneFull && s.scrollKey(k):
	case s.moveKey(k), s.tabKey(k):
	default:
		s.actKey(k)
	}
}

func (s hand) promptKey(k Key) {
	p := s.prompt
	if !p.typed {
		s.prompt = nil
		if k.Name == "y" || k.Name == "Y" || k.Name == "shift+y" {
			p.done("")
		}
		return
	}
	switch {
	case k.Name == "enter":
		s.prompt = nil
		p.done(p.text)
		return
	case k.Name == "esc":
		s.prompt = nil
		if p.none != nil {
			p.none()
		}
		return
	case k.Name == "backspace":
		_, n := utf8.DecodeLastRuneInString(p.text)
		p.text = p.text[:len(p.text)-n]
	case k.Name == "ctrl+u":
		p.text = ""
	case len(p.text)+len(k.Text) <= 256:
		p.text += console.Escape(k.Text)
	}
	if p.each != nil {
		p.each(p.text)
	}
}

// scrollKey scrolls the pane.
func (s hand) scrollKey(k Key) bool {
	by := map[string]int{"up": 1, "k": 1, "down": -1, "j": -1, "pgup": s.height / 2, "pgdown": -s.height / 2, "home": mostLines * 2, "g": mostLines * 2, "end": -mostLines * 2, "G": -mostLines * 2}[k.Name]
	if by == 0 {
		return false
	}
	s.pane.back = max(0, s.pane.back+by)
	return true
}

func (s hand) moveKey(k Key) bool {
	page := max(1, drawing(s).listHeight()-2)
	by, ok := map[string]int{"up": -1, "k": -1, "down": 1, "j": 1, "pgup": -page, "ctrl+b": -page, "pgdown": page, "ctrl+f": page,
		"home": -1 << 30, "g": -1 << 30, "end": 1 << 30, "G": 1 << 30, "shift+g": 1 << 30}[k.Name]
	if ok {
		s.lists[s.tab].move(drawing(s).table(s.tab), by)
	}
	return ok
}

func (s hand) tabKey(k Key) bool {
	var to Tab
	switch k.Name {
	case "1", "2", "3", "4", "5":
		to = Tab(k.Name[0] - '1')
	case "tab", "right":
		to = (s.tab + 1) % tabs
	case "shift+tab", "left":
		to = (s.tab + tabs - 1) % tabs
	default:
		return false
	}
	if s.tab = to; s.pane.size == paneLog {
		s.pane.size = paneHalf
	}
	return true
}

// actKey does what a key means on the tab.
func (s hand) actKey(k Key) {
	switch k.Name {
	case "q":
		s.ask(Quit{})
	case "?", "h":
		s.help = true
	case "/":
		s.askFilter()
	case "esc":
		s.back()
	case "enter":
		s.pane.size = map[int]int{paneOff: paneHalf, paneHalf: paneFull, paneFull: paneHalf, paneLog: paneFull}[s.pane.size]
	case "s":
		s.sorts[s.tab].by = (s.sorts[s.tab].by + 1) % len(s.sortNames())
		s.change(s.tab)
	case "r", "S", "shift+s":
		s.sorts[s.tab].reverse = !s.sorts[s.tab].reverse
		s.change(s.tab)
	case "m":
		s.mine = !s.mine
		s.change(TabJobs, TabGPUs, TabUsers)
	case "a":
		s.ended = !s.ended
		s.change(TabJobs)
	case "space", " ":
		if r, ok := s.chosen(); ok {
			s.fold(r)
		}
	case "D", "shift+d":
		s.askDrain()
	case "l", "e", "d":
		r, ok := s.chosen()
		if !ok {
			s.note = Note{k.Name + " applies to a job: select one of the jobs (1)", true}
			return
		}
		s.jobKey(k.Name, r)
	}
}

// sortNames are the sort keys of the tab.
func (s *Screen) sortNames() []string {
	return [tabs][]string{jobSorts, gpuSorts, nodeSorts, userSorts, {"time"}}[s.tab]
}

// back closes the details, then clears the filter.
func (s hand) back() {
	switch {
	case s.pane.size != paneOff:
		s.pane.size = paneOff
	case s.filters[s.tab] != "":
		s.setFilter("")
	}
}

func (s *Screen) setFilter(text string) {
	s.filters[s.tab] = text
	s.change(s.tab)
}

func (s hand) askFilter() {
	was := s.filters[s.tab]
	s.prompt = &prompt{ask: "Filter: ", text: was, typed: true, done: s.setFilter, each: s.setFilter, none: func() { s.setFilter(was) }}
}

// fold unfolds or folds the array of a line.
func (s hand) fold(r jobRow) {
	array := r.array
	if r.task {
		array = r.job.GetArrayJobId()
	}
	if array == 0 {
		return
	}
	if s.open[array] {
		delete(s.open, array)
		s.lists[TabJobs].key = fmt.Sprint(array)
	} else {
		s.open[array] = true
	}
	s.change(TabJobs)
}

func (s hand) jobKey(key string, r jobRow) {
	all, _ := r.named()
	switch key {
	case "l":
		s.pane.size = paneLog
	case "e":
		switch {
		case r.array != 0 || r.count() > 1:
			s.note = Note{"a shell opens in one task: unfold the array with Space and select one", true}
		case r.rank != rankRunning:
			s.note = Note{fmt.Sprintf("job %s is not running (%s), so no shell can be opened in it", all, clean(r.job.GetState())), true}
		default:
			s.ask(Shell{all})
		}
	case "d":
		what := fmt.Sprintf("job %s (%s of %s)", all, console.Cut(r.name, 30), clean(r.job.GetUser()))
		n := 0
		for _, e := range r.tasks {
			if e.rank != rankEnded {
				n += e.count()
			}
		}
		switch {
		case r.array != 0:
			what = fmt.Sprintf("all %d tasks of array %s (%s of %s)", n, all, console.Cut(r.name, 30), clean(r.job.GetUser()))
		case r.rank == rankEnded:
			s.note = Note{fmt.Sprintf("job %s has ended (%s)", all, clean(r.job.GetState())), true}
			return
		}
		s.prompt = &prompt{ask: "Cancel " + what + "? [y/N]", done: func(string) { s.ask(Run{[]string{"cancel", all}}) }}
	}
}

// askDrain asks for the reason to drain the selected node or GPU, or whether to resume a
// drained one.
func (s hand) askDrain() {
	noun, name, drained := "", "", false
	switch i := s.lists[s.tab].row; {
	case s.tab == TabNodes && i < len(s.nodeRows):
		noun, name, drained = "node", s.nodeRows[i].GetId(), s.nodeRows[i].GetDrain()
	case s.tab == TabGPUs && i < len(s.gpuRows):
		noun, name, drained = "gpu", s.gpuRows[i].id(), s.gpuRows[i].gpu.GetDrain()
	default:
		s.note = Note{"D drains a node or a GPU: select one of the GPUs (2) or nodes (3)", true}
		return
	}
	node, _, _ := strings.Cut(name, "/")
	if err := cluster.CheckName("node", node); err != nil {
		s.note = Note{clean(err.Error()), true}
		return
	}
	if drained {
		s.prompt = &prompt{ask: fmt.Sprintf("Resume %s %s? [y/N]", noun, name), done: func(string) { s.ask(Run{[]string{noun, "resume", name}}) }}
		return
	}
	s.prompt = &prompt{ask: fmt.Sprintf("Drain %s %s; reason, shown to others (Esc cancels): ", noun, name), typed: true, done: func(reason string) {
		if strings.TrimSpace(reason) == "" {
			s.note = Note{"not drained: a reason is required", true}
			return
		}
		s.ask(Run{[]string{noun, "drain", name, "--reason=" + reason}})
	}}
}

// usable is how many GPUs are held, how many there are, and how busy they are.
func (s *Screen) usable() (held, all int, busy int64) {
	sum, n := int64(0), int64(0)
	for _, c := range s.cards {
		all++
		if c.gpu.GetShares() > 0 {
			held++
		}
		if u := c.gpu.GetMeasuredUtilMilli(); u >= 0 && admin.GpuHealth(c.gpu) == cluster.GPUOK.String() {
			sum, n = sum+u, n+1
		}
	}
	if busy = -1; n > 0 {
		busy = sum / n
	}
	return held, all, busy
}

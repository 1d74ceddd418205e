package screen

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/units"
)

// The minimum size of the screen.
const leastWidth, leastHeight = 40, 8

// View is the screen as text: as many lines as the terminal has, none wider than it,
// and no control sequences but colours.
func (s *Screen) View() string { return drawing{s}.view() }

// drawing is a screen as it is drawn.
type drawing struct{ *Screen }

func (s drawing) view() string {
	if s.width < leastWidth || s.height < leastHeight {
		text := fmt.Sprintf("%d×%d is too small: berth top needs %d×%d", s.width, s.height, leastWidth, leastHeight)
		return strings.Join(fill(wrap(strings.ReplaceAll(text, "×", s.ink.pick("×", "x")), max(1, s.width)), s.height), "\n")
	}
	lines := []string{s.head(), s.status()}
	body := s.height - 3
	switch {
	case s.help:
		lines = append(lines, s.helpLines(body)...)
	case s.pane.size == paneOff:
		lines = append(lines, s.table(s.tab).lines(s.ink, &s.lists[s.tab], s.width, body)...)
	case s.pane.size >= paneFull:
		lines = append(lines, s.paneLines(s.width, body)...)
	default:
		list := s.listHeight()
		lines = append(lines, s.table(s.tab).lines(s.ink, &s.lists[s.tab], s.width, list)...)
		lines = append(lines, s.paneLines(s.width, body-list)...)
	}
	return strings.Join(append(lines, s.foot()), "\n")
}

// listHeight is how many lines the list has, its heads included.
func (s drawing) listHeight() int {
	body := s.height - 3
	if s.pane.size == paneOff {
		return body
	}
	return max(4, body*2/5)
}

// head names the tabs and the cluster.
func (s drawing) head() string {
	var b strings.Builder
	width := 0
	for t, name := range tabNames {
		label := fmt.Sprintf(" %d %s ", t+1, name)
		if s.width < 45 { // no room for the keys
			label = " " + name + " "
		}
		width += len(label)
		if Tab(t) == s.tab {
			label = s.ink.paint(reverse, label)
		}
		b.WriteString(label)
	}
	return b.String() + s.ink.paint(bold, s.ink.fit(s.cluster, max(0, s.width-width-1), true))
}

// status is the state of the cluster, or that it does not answer.
func (s drawing) status() string {
	if len(s.lost) > 0 {
		why := s.lost[slices.Min(slices.Collect(maps.Keys(s.lost)))]
		text := fmt.Sprintf("no answer for %s, retrying; what is shown may be out of date: %s", units.HumanDuration(max(0, s.now.Sub(s.lostAt))), why)
		return s.ink.paint(red, s.ink.fit(text, s.width, false))
	}
	held, all, busy := s.usable()
	parts := []string{fmt.Sprintf("%d running, %d waiting", s.running, s.waiting), fmt.Sprintf("%d of %d GPUs held, %s busy", held, all, percent(busy))}
	if by := s.sorts[s.tab]; by.by != 0 || by.reverse {
		text := "by " + s.sortNames()[by.by]
		if by.reverse {
			text += ", reversed"
		}
		parts = append(parts, text)
	}
	if s.mine {
		parts = append(parts, "mine only")
	}
	if s.ended && s.tab == TabJobs {
		parts = append(parts, "with ended")
	}
	if s.filters[s.tab] != "" {
		parts = append(parts, "with "+console.ShortQuote(s.filters[s.tab]))
	}
	return s.ink.fit(" "+strings.Join(parts, s.ink.pick(" · ", ", ")), s.width, false)
}

// foot is a prompt, a note or the keys.
func (s drawing) foot() string {
	switch {
	case s.prompt != nil && s.prompt.typed:
		ask, room := s.prompt.ask, s.width-1
		if console.TextWidth(ask) > s.width*2/3 {
			ask = console.Cut(ask, s.width*2/3)
		}
		text := s.prompt.text
		for console.TextWidth(ask+text) > room && text != "" { // the end is where the user types
			text = text[1:]
		}
		return s.ink.paint(bold, s.ink.fit(ask+clean(text)+s.ink.pick("▏", "_"), s.width, false))
	case s.prompt != nil:
		return s.ink.paint(bold, s.ink.fit(s.prompt.ask, s.width, false))
	case s.note.Text != "":
		st := green
		if s.note.Bad {
			st = red
		}
		return s.ink.paint(st, s.ink.fit(s.note.Text, s.width, false))
	}
	keys := map[Tab]string{
		TabJobs: "Enter details  l logs  e shell  d cancel  Space fold  / filter  s sort  m mine  ? help  q quit",
		TabGPUs: "Enter details  D drain  / filter  s sort  m mine  ? help  q quit", TabNodes: "Enter details  D drain  / filter  s sort  ? help  q quit",
	}[s.tab]
	keys = cmp.Or(keys, "/ filter  s sort  r reverse  ? help  q quit")
	if s.pane.size == paneLog {
		keys = "Up, Down, PgUp, PgDn scroll  End newest  Esc back  q quit"
	}
	return s.ink.paint(dim, s.ink.fit(keys, s.width, false))
}

const helpText = `1-5, Tab     Jobs, GPUs, Nodes, Users and fair share, Events
Up, Down     select a row; also k and j, PgUp and PgDn, Home and End
Enter        details of the row: why it waits, ten-minute curves, its log;
             again for the full screen, Esc to close
/            filter by text: name, user, state, node or reason
s, r         change the sort key, or reverse the order
m            show only my jobs, and the GPUs they use
a            also show jobs that ended since the screen opened
Space        unfold or fold a job array
l            the job's log, in full
e            a shell in the job, with its limits and GPUs
d            cancel the job, after confirmation
D            drain the GPU or node, or resume it (administrators)
q            quit

MEMORY: what each job was given, side by side; solid is in use, hatched is
reserved but unused. Usage is measured for the GPU as a whole and drawn over
the shares in proportion.`

func (s drawing) helpLines(height int) []string {
	var out []string
	for line := range strings.SplitSeq(helpText, "\n") {
		out = append(out, s.ink.fit(line, s.width, false))
	}
	return fill(out, height)
}

package console

import "fmt"

// Progress is one line on standard error that says how something stands while a command
// waits, and goes away when the wait is over. Off a terminal, and for Slurm's
// commands, it is nowhere.
type Progress struct {
	e    *Env
	last string
}

// NewProgress returns a line that is not shown yet.
func NewProgress(e *Env) *Progress { return &Progress{e: e} }

// Shown reports whether somebody sees the line.
func (p *Progress) Shown() bool { return p.e.StderrTerminal && p.e.Prog == "" }

// Say shows text in the place of what was there, cut to the width of the terminal.
func (p *Progress) Say(text string) {
	text = Escape(text)
	if !p.Shown() || text == p.last {
		return
	}
	width := p.e.Width()
	if width == 0 {
		width = 80
	}
	p.last = text
	fmt.Fprintf(p.e.Stderr, "\r\x1b[K%s", Cut(text, width-1))
}

// Clear takes the line away, before something else is written.
func (p *Progress) Clear() {
	if p.last != "" {
		p.last = ""
		fmt.Fprint(p.e.Stderr, "\r\x1b[K")
	}
}

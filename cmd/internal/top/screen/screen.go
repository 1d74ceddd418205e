// Package screen is the live screen of berth top as a value: what is known of the
// cluster, where the user looks, and how both look as text. It reads no clock, asks
// nobody and knows no terminal: news come in as messages, and what is to be done goes
// out as values.
package screen

import (
	"time"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// Tab is one of the lists that the screen shows.
type Tab int

// The tabs, in the order of their keys.
const (
	TabJobs Tab = iota
	TabGPUs
	TabNodes
	TabUsers
	TabEvents
	tabs
)

var tabNames = [tabs]string{"Jobs", "GPUs", "Nodes", "Users", "Events"}

// Config is what a screen starts with.
type Config struct {
	Tab  Tab
	Mine bool
	// Me is the user of the screen, by name or number.
	Me string
	// Plain leaves out colours, ASCII all other characters.
	Plain, ASCII bool
	Now          time.Time
}

// Messages that Update takes.
type (
	// Size is how large the terminal is now.
	Size struct{ Width, Height int }
	// Key is a key that was pressed, by its name such as "up" or "ctrl+c", and the text
	// that it types, if any.
	Key struct{ Name, Text string }
	// Tick is the time now.
	Tick struct{ At time.Time }
	// Jobs are jobs as they are now: all of them, or those that changed.
	Jobs struct {
		All  bool
		Jobs []*apiv1.Job
	}
	// Nodes are all nodes; with History, their events too.
	Nodes struct {
		Nodes   []*apiv1.Node
		History bool
	}
	// Standing is how much users used, and their rank by fair share.
	Standing struct{ Resp *apiv1.ListStandingResponse }
	// Cluster is the cluster's name.
	Cluster struct{ Name string }
	// Link says that coordinators answer, or why they do not: of jobs, or of nodes.
	Link struct {
		Of  string
		Err string
	}
	// Why is what berth why says of a job.
	Why struct{ Job, Text string }
	// Log is what a job wrote. Reset empties what was shown, End says why no more comes.
	Log struct {
		Job   string
		Data  []byte
		Reset bool
		End   string
	}
	// Note is a line about what was done.
	Note struct {
		Text string
		Bad  bool
	}
)

// What the screen wants done.
type (
	// Quit ends it.
	Quit struct{}
	// Look asks for all about a job; "" ends that.
	Look struct{ Job string }
	// Run asks to run a berth command, whose messages are shown as a note.
	Run struct{ Args []string }
	// Shell asks for a shell in a job, in place of the screen.
	Shell struct{ Job string }
)

// noteTicks is for how many ticks a note stays, unless a key is pressed first.
const noteTicks = 30

// Screen is its state. It is for one goroutine.
type Screen struct {
	cfg           Config
	ink           ink
	now           time.Time
	width, height int
	tab           Tab
	lists         [tabs]cursor
	stale         [tabs]bool // rows to be rebuilt before they are shown
	cluster       string
	lost          map[string]string
	lostAt        time.Time

	store    store
	nodes    []*apiv1.Node
	cards    map[string]*card
	gotJobs  bool
	running  int
	waiting  int
	gotNodes bool
	standing *apiv1.ListStandingResponse
	events   []event
	seen     map[string]struct{} // events of nodes, so that each is shown once

	filters     [tabs]string
	mine, ended bool
	sorts       [tabs]sorting
	open        map[uint64]bool // arrays that are unfolded
	jobRows     []jobRow
	gpuRows     []*card
	nodeRows    []*apiv1.Node
	userRows    []*userRow
	eventRows   []event

	pane   pane
	prompt *prompt
	note   Note
	noted  int // ticks since
	help   bool
	asks   []any
}

type sorting struct {
	by      int
	reverse bool
}

// New returns an empty screen.
func New(cfg Config) *Screen {
	return &Screen{
		cfg: cfg, ink: ink{plain: cfg.Plain, ascii: cfg.ASCII}, now: cfg.Now, width: 80, height: 24, tab: cfg.Tab, mine: cfg.Mine,
		store: newStore(), cards: map[string]*card{}, open: map[uint64]bool{}, lost: map[string]string{}, seen: map[string]struct{}{},
	}
}

// Update takes a message and returns what is to be done for it.
func (s *Screen) Update(msg any) []any {
	s.asks = nil
	switch m := msg.(type) {
	case Size:
		s.width, s.height = m.Width, m.Height
	case Key:
		hand{s}.key(m)
	case Tick:
		s.now = m.At
		if s.noted++; s.noted > noteTicks {
			s.note = Note{}
		}
	case Jobs:
		s.takeJobs(m)
	case Nodes:
		s.takeNodes(m)
	case Standing:
		s.standing = m.Resp
		s.change(TabUsers)
	case Cluster:
		s.cluster = m.Name
	case Link:
		s.takeLink(m)
	case Why:
		if m.Job == s.pane.job {
			s.pane.why = cleanLines(m.Text)
		}
	case Log:
		s.pane.takeLog(m)
	case Note:
		s.note, s.noted = Note{clean(m.Text), m.Bad}, 0
	}
	s.rows()
	s.follow()
	return s.asks
}

// change marks the rows of tabs as stale.
func (s *Screen) change(of ...Tab) {
	for _, t := range of {
		s.stale[t] = true
	}
}

func (s *Screen) ask(what any) { s.asks = append(s.asks, what) }

func (s *Screen) takeLink(m Link) {
	if m.Err == "" {
		delete(s.lost, m.Of)
		return
	}
	if len(s.lost) == 0 {
		s.lostAt = s.now
	}
	s.lost[m.Of] = clean(m.Err)
}

func (s *Screen) takeJobs(m Jobs) {
	s.gotJobs = true
	if m.All {
		s.store.reset()
	}
	for _, j := range m.Jobs {
		was := s.store.put(j)
		if !m.All {
			s.jobEvent(was, j)
		}
	}
	s.store.forget()
	s.running, s.waiting = s.store.tally()
	s.change(TabJobs, TabUsers, TabEvents)
	if s.mine {
		s.change(TabGPUs)
	}
}

func (s *Screen) takeNodes(m Nodes) {
	s.gotNodes = true
	s.nodes = m.Nodes
	s.takeCards()
	if m.History {
		s.nodeEvents()
		s.change(TabEvents)
	}
	s.change(TabGPUs, TabNodes)
}

// rows rebuilds the rows of the current tab if they are stale, and finds the selected
// one among them.
func (s *Screen) rows() {
	t := s.tab
	if !s.stale[t] {
		return
	}
	s.stale[t] = false
	switch t {
	case TabJobs:
		s.jobRows = s.makeJobRows()
	case TabGPUs:
		s.gpuRows = s.makeGPURows()
	case TabNodes:
		s.nodeRows = s.makeNodeRows()
	case TabUsers:
		s.userRows = s.makeUserRows()
	case TabEvents:
		s.eventRows = s.makeEventRows()
	}
	s.lists[t].find(drawing{s}.table(t))
}

// table is a tab as a list of rows.
func (s drawing) table(t Tab) table {
	switch t {
	case TabGPUs:
		return s.gpuTable()
	case TabNodes:
		return s.nodeTable()
	case TabUsers:
		return s.userTable()
	case TabEvents:
		return s.eventTable()
	default:
		return s.jobTable()
	}
}

// cursor is the selected row of a list, and the first that is shown. Once the user has
// moved, the row is known by its key.
type cursor struct {
	row, top int
	key      string
}

// find puts the cursor on the row with its key, or leaves it where it is.
func (c *cursor) find(t table) {
	if c.key != "" && (c.row >= t.n || t.key(c.row) != c.key) {
		for i := range t.n {
			if t.key(i) == c.key {
				c.row = i
				return
			}
		}
	}
	c.row = max(0, min(c.row, t.n-1))
	if c.key != "" && t.n > 0 {
		c.key = t.key(c.row)
	}
}

// move selects another row.
func (c *cursor) move(t table, by int) {
	c.row = max(0, min(c.row+by, t.n-1))
	if c.key = ""; t.n > 0 {
		c.key = t.key(c.row)
	}
}

// scroll makes the selected row one of the height rows shown.
func (c *cursor) scroll(n, height int) {
	c.top = max(0, min(c.top, n-height, c.row))
	if c.row >= c.top+height {
		c.top = c.row - height + 1
	}
}

package sruncmd

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/berth-scheduler/berth/agent/step"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
)

// node is where some of a step's tasks run.
type node interface {
	// Send sends a frame to the node, Recv receives one; io.EOF is its end.
	Send(step.Frame) error
	Recv() (step.Frame, error)
	// Signal passes a signal on, ahead of what was sent.
	Signal(syscall.Signal)
	// Close ends what still runs there.
	Close()
}

// settings say how a step behaves.
type settings struct {
	killOnBad bool
	wait      time.Duration // after the first task has ended, 0 means forever
	quit      bool          // at the first interrupt
	quiet     bool
	appends   bool // to existing files, which are truncated otherwise
	// input says which tasks read it: "all", "none" or the number of a task;
	// anything else is a file for all.
	input string
}

const (
	// killWait is the time between asking tasks to end and killing them.
	killWait = 2 * time.Second
	// gather is how long ends of tasks are collected into one line.
	gather = 100 * time.Millisecond
	// twice is how soon a second interrupt must follow to end the step.
	twice = time.Second
)

// ended is how a task ended.
type ended struct{ code, signal, core byte }

func (e ended) text() string {
	switch {
	case e.signal == 0:
		return fmt.Sprintf("Exited with exit code %d", e.code)
	case e.core != 0:
		return signalText(syscall.Signal(e.signal)) + " (core dumped)"
	}
	return signalText(syscall.Signal(e.signal))
}

// signalText returns a signal's name as in strsignal(3).
func signalText(s syscall.Signal) string {
	text := s.String()
	for sig, want := range map[syscall.Signal]string{
		syscall.SIGUSR1: "User defined signal 1", syscall.SIGUSR2: "User defined signal 2", syscall.SIGALRM: "Alarm clock",
		syscall.SIGXCPU: "CPU time limit exceeded", syscall.SIGILL: "Illegal instruction", syscall.SIGTRAP: "Trace/breakpoint trap",
	} {
		if s == sig {
			text = want
		}
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

// event is news from a node.
type event struct {
	place int
	frame step.Frame
	err   error
}

// running is a running step.
type running struct {
	e    *console.Env
	l    *layout
	set  settings
	id   string // JOB.STEP
	outs *outputs

	nodes  []node
	events chan event
	ends   map[int]ended
	unsaid []int // failed tasks that were not reported yet
	code   int
	firstEnd,
	interrupted time.Time
	aborting bool
	killAt   <-chan time.Time
}

// runStep runs the tasks on the nodes, given in the layout's order, and
// returns the exit code: the highest of the tasks'.
func (r *running) runStep(ctx context.Context, configs []*step.Config, open func(context.Context, int) (node, error)) (int, error) {
	r.events, r.ends = make(chan event, 64), map[int]ended{}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // an interrupt is for the step
	defer cancel()
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGCONT)
	defer signal.Stop(signals)
	defer func() {
		for _, n := range r.nodes {
			n.Close()
		}
	}()
	for i := range r.l.places {
		n, err := open(ctx, i)
		if err != nil {
			return 0, err
		}
		r.nodes = append(r.nodes, n)
		data, err := json.Marshal(configs[i])
		if err == nil {
			err = n.Send(step.Frame{Kind: step.Begin, Data: data})
		}
		if err != nil {
			return 0, fmt.Errorf("start tasks on node %s: %w", r.l.places[i].node, err)
		}
		go r.hear(ctx, i, n) // ends with the node's stream, which Close ends
	}
	if err := r.input(ctx); err != nil {
		return 0, err
	}
	err := r.await(signals)
	r.say()
	return r.code, err
}

func (r *running) hear(ctx context.Context, i int, n node) {
	for {
		f, err := n.Recv()
		select {
		case r.events <- event{i, f, err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// input passes standard input, or a file, to the tasks that read it. The
// goroutine may stay behind: nothing can end a read of a terminal.
func (r *running) input(ctx context.Context) error {
	from := r.e.Stdin
	switch name := r.set.input; {
	case name == "none":
		return nil
	case name != "" && name != "all" && !number(name):
		f, err := os.Open(name)
		if err != nil {
			return slurmWords("Could not open stdin file: %v", unwrap(err))
		}
		from = f
	}
	go func() {
		buf := make([]byte, step.MaxData)
		for ctx.Err() == nil {
			n, err := from.Read(buf)
			f := step.Frame{Kind: step.Input, Data: buf[:n]}
			if err != nil {
				f = step.Frame{Kind: step.InputEnd}
			}
			if n > 0 || err != nil {
				for _, to := range r.nodes {
					_ = to.Send(f) // a broken one is reported elsewhere
				}
			}
			if err != nil {
				return
			}
		}
	}()
	return nil
}

func number(s string) bool {
	_, err := strconv.Atoi(s)
	return err == nil
}

// await serves until all tasks have ended.
func (r *running) await(signals <-chan os.Signal) error {
	var say, late <-chan time.Time
	for len(r.ends) < r.l.tasks {
		select {
		case ev := <-r.events:
			first := len(r.ends) == 0
			if err := r.take(ev); err != nil {
				return err
			}
			if first && len(r.ends) > 0 && r.set.wait > 0 {
				r.firstEnd, late = time.Now(), time.After(r.set.wait)
			}
			if len(r.unsaid) > 0 && say == nil {
				say = time.After(gather)
			}
		case <-say:
			say = nil
			r.say()
		case <-late:
			r.tooLong()
		case s := <-signals:
			r.signal(s)
		case <-r.killAt:
			r.kill()
		}
	}
	return nil
}

// take handles one piece of news.
func (r *running) take(ev event) error {
	p := r.l.places[ev.place]
	if ev.err != nil {
		return r.lost(ev)
	}
	rank := p.first + int(ev.frame.Task)
	switch ev.frame.Kind {
	case step.Stdout, step.Stderr:
		return r.outs.write(ev.frame.Kind, rank, ev.frame.Data)
	case step.Words:
		_, err := r.e.Stderr.Write(ev.frame.Data)
		return err
	case step.Exit:
		if len(ev.frame.Data) == 3 && int(ev.frame.Task) < p.tasks {
			r.end(rank, ended{ev.frame.Data[0], ev.frame.Data[1], ev.frame.Data[2]})
		}
	}
	return nil
}

func (r *running) end(rank int, how ended) {
	if _, known := r.ends[rank]; known {
		return
	}
	r.ends[rank] = how
	r.code = max(r.code, int(how.code))
	if how.code == 0 {
		return
	}
	r.unsaid = append(r.unsaid, rank)
	if r.set.killOnBad && !r.aborting && len(r.ends) < r.l.tasks {
		r.say()
		r.terminate(syscall.SIGTERM)
	}
}

// lost ends the tasks of a node that it did not report as ended.
func (r *running) lost(ev event) error {
	p, left := r.l.places[ev.place], 0
	for i := range p.tasks {
		if _, known := r.ends[p.first+i]; !known {
			left++
			r.ends[p.first+i] = ended{code: 1}
		}
	}
	if left == 0 {
		return nil
	}
	r.code = max(r.code, 1)
	if ev.err != io.EOF {
		r.fault("node %s: %v", p.node, ev.err)
	}
	r.fault("%s: %s: lost with the connection to them", p.node, tasksText(allOf(p)))
	if !r.aborting && len(r.ends) < r.l.tasks {
		r.terminate(syscall.SIGTERM)
	}
	return nil
}

func (r *running) fault(format string, args ...any) {
	fmt.Fprintf(r.e.Stderr, r.e.Name()+": error: "+format+"\n", args...)
}

func (r *running) word(format string, args ...any) {
	if !r.set.quiet {
		fmt.Fprintf(r.e.Stderr, r.e.Name()+": "+format+"\n", args...)
	}
}

// say reports the failed tasks, those of a node that ended alike in one line.
func (r *running) say() {
	slices.Sort(r.unsaid)
	for _, p := range r.l.places {
		var order []ended
		by := map[ended][]int{}
		for _, rank := range r.unsaid {
			if rank < p.first || rank >= p.first+p.tasks {
				continue
			}
			how := r.ends[rank]
			if by[how] == nil {
				order = append(order, how)
			}
			by[how] = append(by[how], rank)
		}
		for _, how := range order {
			r.fault("%s: %s: %s", p.node, tasksText(by[how]), how.text())
		}
	}
	r.unsaid = nil
}

func allOf(p place) []int {
	out := make([]int, p.tasks)
	for i := range out {
		out[i] = p.first + i
	}
	return out
}

// tasksText formats task 3, or tasks 0-2,5.
func tasksText(ranks []int) string {
	if len(ranks) == 1 {
		return fmt.Sprintf("task %d", ranks[0])
	}
	var spans []string
	for i := 0; i < len(ranks); {
		k := i
		for k+1 < len(ranks) && ranks[k+1] == ranks[k]+1 {
			k++
		}
		if s := strconv.Itoa(ranks[i]); i == k {
			spans = append(spans, s)
		} else {
			spans = append(spans, s+"-"+strconv.Itoa(ranks[k]))
		}
		i = k + 1
	}
	return "tasks " + strings.Join(spans, ",")
}

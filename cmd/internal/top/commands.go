package top

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/berth-scheduler/berth/cluster/wait"
	"github.com/berth-scheduler/berth/cmd/internal/cli/admin"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/enter"
	"github.com/berth-scheduler/berth/cmd/internal/cli/frame"
	"github.com/berth-scheduler/berth/cmd/internal/cli/jobcmd"
	"github.com/berth-scheduler/berth/cmd/internal/top/screen"
)

// berth are the commands that the screen runs.
var berth = frame.Program{Name: "berth", Commands: []frame.Command{
	{Name: "why", New: jobcmd.NewWhyCmd}, {Name: "cancel", New: jobcmd.NewCancelCmd}, {Name: "logs", New: enter.NewLogsCmd},
	{Name: "node", New: admin.NewNodeCmd}, {Name: "gpu", New: admin.NewGPUCmd},
}}

// run runs a command, and returns what it wrote to standard error.
func (f *feed) run(ctx context.Context, out io.Writer, args ...string) (said string, err error) {
	var errs bytes.Buffer
	e := *f.env
	e.Stdin, e.Stdout, e.Stderr, e.IsTerminal, e.Out = strings.NewReader(""), out, &errs, false, bufio.NewWriter(out)
	c := client.NewClient(&e)
	defer c.Close()
	err = frame.Again(ctx, args, &e, c, berth)
	if ferr := e.Flush(); err == nil {
		err = ferr
	}
	if _, msg := console.Classify(ctx, err); msg != "" {
		errs.WriteString(msg)
	}
	return oneLine(errs.String()), err
}

// oneLine is text for a line of the screen.
func oneLine(s string) string {
	var b strings.Builder
	for line := range strings.Lines(s) {
		switch line = strings.TrimPrefix(strings.TrimSpace(line), "berth: "); {
		case line == "":
			continue
		case strings.HasSuffix(b.String(), ":"):
			b.WriteByte(' ')
		case b.Len() > 0:
			b.WriteString("; ")
		}
		b.WriteString(line)
	}
	return b.String()
}

// carryOut runs a command that changes something.
func (f *feed) carryOut(args []string) screen.Note {
	var out bytes.Buffer
	said, err := f.run(f.ctx, &out, args...)
	if err != nil {
		return screen.Note{Text: said, Bad: true}
	}
	return screen.Note{Text: oneLine(out.String() + said)}
}

const (
	// settle is how long a job is selected before requests are made about it.
	settle = 200 * time.Millisecond
	// whyEvery is how often it is asked why a job waits.
	whyEvery = 10 * time.Second
	// tailLines is how many lines of a log are shown at first.
	tailLines = "200"
)

// look makes requests about a job, and no more about the previous one; "" is none.
func (f *feed) look(job string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.leave()
	ctx, leave := context.WithCancel(f.ctx)
	f.leave = leave
	if job == "" || ctx.Err() != nil {
		return
	}
	f.wg.Go(func() { f.why(ctx, job) })
	f.wg.Go(func() { f.log(ctx, job) })
}

func (f *feed) why(ctx context.Context, job string) {
	for pause := settle; wait.Sleep(ctx, pause); pause = whyEvery {
		var out bytes.Buffer
		said, err := f.run(ctx, &out, "why", job)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			out.Reset()
			out.WriteString(said)
		}
		f.send(screen.Why{Job: job, Text: out.String()})
	}
}

func (f *feed) log(ctx context.Context, job string) {
	if !wait.Sleep(ctx, settle) {
		return
	}
	w := &logWriter{ctx: ctx, job: job, send: f.send}
	said, err := f.run(ctx, w, "logs", "--follow", "--tail", tailLines, job)
	w.flush()
	if ctx.Err() != nil {
		return
	}
	if err == nil {
		said = "end of output"
	}
	f.send(screen.Log{Job: job, End: said})
}

// logWriter hands what a job writes to the screen, a few times a second, and lets
// a job that writes faster wait.
type logWriter struct {
	ctx  context.Context
	job  string
	send func(any)

	mu   sync.Mutex
	data []byte
	due  *time.Timer
}

// mostUnshown is how many bytes of a log may wait to be shown.
const mostUnshown = 256 << 10

// Write implements io.Writer.
func (w *logWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	w.data = append(w.data, b...)
	full := len(w.data) > mostUnshown
	if w.due == nil {
		w.due = time.AfterFunc(gather, w.flush)
	}
	w.mu.Unlock()
	if full && !wait.Sleep(w.ctx, gather) {
		return 0, context.Cause(w.ctx)
	}
	return len(b), w.ctx.Err()
}

func (w *logWriter) flush() {
	w.mu.Lock()
	msg := screen.Log{Job: w.job, Data: w.data}
	w.data, w.due = nil, nil
	w.mu.Unlock()
	if len(msg.Data) > 0 && w.ctx.Err() == nil {
		w.send(msg)
	}
}

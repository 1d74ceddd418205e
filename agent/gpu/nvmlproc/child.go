package nvmlproc

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"time"

	"github.com/berth-scheduler/berth/agent/gpu"
)

// child is one process that holds the driver. The Provider's loop owns it; two goroutines
// read its output.
type child struct {
	cmd    *exec.Cmd
	in     *os.File // questions
	out    *os.File // answers and events
	errs   *os.File // its log
	frames chan frame
	born   time.Time
	ready  bool // it has sent its hello
	lastID uint32
}

// startChild starts the process. It gets three descriptors and the given environment,
// nothing else of ours; it ends with the calling thread, at the end of its input, or when
// told to.
func startChild(command, env []string, events func(gpu.Event), log *slog.Logger) (*child, error) {
	var mine, theirs [3]*os.File
	closeAll := func(fs [3]*os.File) {
		for _, f := range fs {
			if f != nil {
				f.Close()
			}
		}
	}
	for i := range mine {
		r, w, err := os.Pipe()
		if err != nil {
			closeAll(mine)
			closeAll(theirs)
			return nil, fmt.Errorf("pipe to the driver's process: %w", err)
		}
		if mine[i], theirs[i] = r, w; i == 0 {
			mine[i], theirs[i] = w, r
		}
	}
	c := &child{
		cmd: exec.Command(command[0], command[1:]...), in: mine[0], out: mine[1], errs: mine[2],
		frames: make(chan frame, 1), born: time.Now(),
	}
	c.cmd.Env, c.cmd.Dir = env, "/"
	if env == nil {
		c.cmd.Env = []string{} // nil would mean all of ours
	}
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = theirs[0], theirs[1], theirs[2]
	c.cmd.SysProcAttr = bound()
	err := c.cmd.Start()
	closeAll(theirs)
	if err != nil {
		closeAll(mine)
		return nil, fmt.Errorf("start the driver's process: %w", err)
	}
	log = log.With("pid", c.cmd.Process.Pid)
	go c.read(events, log)
	go c.copyLog(log)
	return c, nil
}

// read passes on what the child sends until it stops.
func (c *child) read(events func(gpu.Event), log *slog.Logger) {
	defer close(c.frames)
	r := bufio.NewReader(c.out)
	for {
		f, err := readFrame(r)
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrClosed) {
				log.Warn("the driver's process talks nonsense", "err", err)
			}
			return
		}
		if f.kind != kindEvent {
			c.frames <- f // an answer no longer waited for is drained at the end
			continue
		}
		e, err := decodeEvent(f)
		if err != nil {
			log.Warn("the driver's process talks nonsense", "err", err)
			return
		}
		events(e)
	}
}

// copyLog logs the child's standard error, line by line.
func (c *child) copyLog(log *slog.Logger) {
	r := bufio.NewReaderSize(c.errs, 4096)
	for said := 0; ; {
		line, more, err := r.ReadLine()
		if err != nil {
			return
		}
		// A library in trouble can write endlessly.
		if said++; said <= maxLogLines {
			log.Warn("the driver's process says", "line", oneLine(string(line), 512), "cut", more)
		}
	}
}

// maxLogLines is how much of one child's standard error is logged.
const maxLogLines = 200

// ask sends a question.
func (c *child) ask(k kind, body []byte) (id uint32, err error) {
	c.lastID++
	if err := c.in.SetWriteDeadline(time.Now().Add(time.Second)); err != nil && !errors.Is(err, os.ErrNoDeadline) {
		return 0, err
	}
	return c.lastID, frame{kind: k, id: c.lastID, body: body}.write(c.in)
}

// end makes the process end, without waiting for it: one that hangs in the kernel stays
// until the kernel releases it. Then reaped is called.
func (c *child) end(kill func(*os.Process) error, reaped func()) {
	c.in.Close()
	// An error means that it is gone already.
	_ = kill(c.cmd.Process)
	go func() {
		_ = c.cmd.Wait()
		reaped()
	}()
	go func() {
		for range c.frames { // let the reader finish
		}
	}()
	c.out.Close()
	c.errs.Close()
}

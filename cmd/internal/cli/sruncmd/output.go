package sruncmd

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"

	"github.com/berth-scheduler/berth/agent/step"
	"github.com/berth-scheduler/berth/cluster/outputpath"
)

// outputs writes the tasks' output: to srun's own, or to files.
type outputs struct {
	mu    sync.Mutex
	label int // the width of the task number before each line, 0 for none
	out   map[step.Kind]func(task int) (io.Writer, error)
	rest  map[string][]byte // incomplete lines, by task and kind
	order []string
	files map[string]*os.File
}

// patterns are the values of patterns in paths.
type patterns struct {
	names        outputpath.Names
	nodeOf       func(task int) (name string, id int)
	openTruncate bool
}

func newOutputs(o *options, tasks int, stdout, stderr io.Writer, p patterns) *outputs {
	out := &outputs{rest: map[string][]byte{}, files: map[string]*os.File{}}
	if o.has("label") {
		out.label = len(strconv.Itoa(max(0, tasks-1)))
	}
	out.out = map[step.Kind]func(int) (io.Writer, error){
		step.Stdout: out.route(o.values["output"], stdout, p),
		step.Stderr: out.route(o.values["error"], stderr, p),
	}
	if o.has("output") && !o.has("error") {
		out.out[step.Stderr] = out.out[step.Stdout]
	}
	return out
}

// route decides where an output goes: "" and all are srun's own, none is
// nowhere, a number is that task's alone, and anything else is a file for
// each value.
func (o *outputs) route(path string, own io.Writer, p patterns) func(int) (io.Writer, error) {
	only, err := strconv.Atoi(path)
	switch {
	case path == "" || path == "all":
		return func(int) (io.Writer, error) { return own, nil }
	case path == "none":
		return func(int) (io.Writer, error) { return io.Discard, nil }
	case err == nil:
		return func(task int) (io.Writer, error) {
			if task == only {
				return own, nil
			}
			return io.Discard, nil
		}
	}
	return func(task int) (io.Writer, error) {
		name := p.expand(path, task)
		if f := o.files[name]; f != nil {
			return f, nil
		}
		flags := os.O_CREATE | os.O_WRONLY | os.O_APPEND
		if p.openTruncate {
			flags |= os.O_TRUNC
		}
		f, err := os.OpenFile(name, flags, 0o666) // #nosec G302 -- the user's own file, and umask, as of a shell
		if err != nil {
			return nil, err
		}
		o.files[name] = f
		return f, nil
	}
}

// expand replaces Slurm's patterns for a task.
func (p patterns) expand(path string, task int) string {
	n := p.names
	n.Node, n.NodeRank = p.nodeOf(task)
	n.Rank = strconv.Itoa(task)
	return outputpath.Expand(path, &n)
}

// write writes a task's output.
func (o *outputs) write(kind step.Kind, task int, data []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	w, err := o.out[kind](task)
	if err != nil {
		return err
	}
	if o.label == 0 {
		_, err := w.Write(data)
		return err
	}
	key := string(kind) + strconv.Itoa(task)
	if _, known := o.rest[key]; !known {
		o.order = append(o.order, key)
	}
	for {
		line, rest, ended := bytes.Cut(data, []byte("\n"))
		if !ended {
			if o.rest[key] = append(o.rest[key], line...); len(o.rest[key]) > 64<<10 {
				err = o.flushLine(w, key, task)
			}
			return err
		}
		o.rest[key] = append(o.rest[key], line...)
		if err := o.flushLine(w, key, task); err != nil {
			return err
		}
		data = rest
	}
}

func (o *outputs) flushLine(w io.Writer, key string, task int) error {
	line := fmt.Appendf(nil, "%*d: %s\n", o.label, task, o.rest[key])
	o.rest[key] = nil
	_, err := w.Write(line)
	return err
}

// close completes the last lines and closes the files.
func (o *outputs) close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	var errs []error
	for _, key := range o.order {
		task, _ := strconv.Atoi(key[1:]) // keys are written this way
		if w, err := o.out[step.Kind(key[0])](task); err == nil && len(o.rest[key]) > 0 {
			errs = append(errs, o.flushLine(w, key, task))
		}
	}
	for _, f := range o.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

package batch

import (
	"fmt"
	"io"
	"math"
	"path/filepath"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/sbatch"
	"github.com/berth-scheduler/berth/cmd/internal/slurm"
	"github.com/berth-scheduler/berth/proto/conv/plainconv"
)

// Job is a request before it becomes a cluster.Spec that can be submitted:
// some of it depends on the rest of the request, and on where it is made.
type Job struct {
	Spec cluster.Spec
	// GPUsSaid says that a number of GPUs was given, even 0.
	GPUsSaid bool
	// Nodes and Tasks are how many there are, 0 for one.
	Nodes, Tasks int64
	Where        Where
	// Export says which variables travel, see Environment, and Env are lines
	// NAME=value that override them.
	Export string
	Env    []string
	// Begin and Deadline are times in Slurm's form, "" for none.
	Begin, Deadline string
}

// Where says on which nodes the job may run, as typed; see cluster.Where.
type Where struct {
	Nodes, Exclude, Features, Reservation, Switches string
	Whole                                           bool
}

// Caller is where a job is submitted. No function may be nil.
type Caller struct {
	Getwd, Hostname func() (string, error)
	Environ         func() []string
	Now             func() time.Time
}

// PlaceError reports that the caller's directory or machine name is unknown.
type PlaceError struct{ Err error }

// Error implements error.
func (e *PlaceError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *PlaceError) Unwrap() error { return e.Err }

func misplaced(format string, args ...any) error {
	return &PlaceError{fmt.Errorf(format, args...)}
}

// Slurm's default outputs of a batch script and of the tasks of an array.
const (
	output     = "slurm-%j.out"
	taskOutput = "slurm-%A_%a.out"
)

// Take copies a request in Slurm's terms into j. Berth's flags follow and win.
func (j *Job) Take(a *sbatch.Request) {
	s := &j.Spec
	s.Name, s.Comment, s.Dir = a.Name, a.Comment, a.Dir
	s.Stdin, s.Stdout, s.Stderr = a.Stdin, a.Stdout, a.Stderr
	s.GPUs, j.GPUsSaid = int(min(a.GPUs, math.MaxInt32)), a.GPUsSaid
	s.GPUType = a.GPUType
	j.Where = Where{a.NodeList, a.Exclude, a.Constraint, a.Reservation, a.Switches, a.WholeNodes}
	s.CPUMilli, s.MemMiB, s.AllMem = min(a.CPUs, 1<<30)*1000, a.MemMiB, a.AllMem
	s.TimeLimit, s.Node, s.Partition = a.TimeLimit, cluster.NodeID(a.Node), a.Partition
	s.Account, s.QOS, s.Nice = a.Account, a.QOS, a.Nice
	s.RequeueOnLoss = a.Requeue
	j.Nodes, j.Tasks, s.Mail, s.NodeRange = a.Nodes, a.Tasks, a.Mail, cluster.NodeRange{}
	if a.MostNodes > 0 {
		j.Nodes = max(1, a.Nodes)
		s.NodeRange = cluster.NodeRange{Min: int(j.Nodes), Max: int(a.MostNodes)}
	}
	s.Array = a.Array
	s.Hold, j.Begin, s.Depends, s.DependAny, s.KillInvalidDepend = a.Hold, a.Begin, a.Depends, a.DependAny, a.KillInvalidDepend
	s.Warning, s.Truncate, j.Deadline = a.Warning, a.Truncate, a.Deadline
	s.Power.Freq, s.Exclusive = a.GPUFreq, a.GPUFreq != "" // a clock applies to a whole GPU
	if a.Export != "" {
		j.Export = a.Export
	}
}

// Script makes j the job of the batch script at path, with the script's own arguments.
func (j *Job) Script(c *Caller, a *sbatch.Request, script []byte, path string, args []string) error {
	return j.script(c, a, script, append([]string{path}, args...), filepath.Base(path))
}

// Wrap makes j the job of --wrap, as sbatch does: a script of one command.
func (j *Job) Wrap(c *Caller, a *sbatch.Request) error {
	text := "#!/bin/sh\n# This script was created by sbatch --wrap.\n\n" + a.Wrap + "\n"
	return j.script(c, a, []byte(text), []string{a.Wrap}, "wrap")
}

// Session makes j the job of a session: a script that only holds the resources.
func (j *Job) Session(c *Caller, a *sbatch.Request, script, name string) error {
	return j.script(c, a, []byte(script), []string{name}, name)
}

// script completes a batch script's job as sbatch would.
func (j *Job) script(c *Caller, a *sbatch.Request, script []byte, command []string, name string) (err error) {
	if j.Spec.Script, err = plainconv.PackScript(script); err != nil {
		return err
	}
	j.Spec.Command, j.Tasks = command, 0 // tasks belong to its steps
	if j.Spec.Name == "" {
		j.Spec.Name = sbatch.CleanName(name)
	}
	if j.Spec.Stdout == "" {
		j.Spec.Stdout = output
		if j.Spec.Array != nil {
			j.Spec.Stdout = taskOutput
		}
	}
	wd, err := c.Getwd()
	if err != nil {
		return misplaced("this directory cannot be named (%w); go to another one", err)
	}
	host, err := c.Hostname()
	if err != nil {
		return misplaced("name of this machine: %w", err)
	}
	j.Env = append(j.Env, a.Env...)
	if x := a.Export; x != "" {
		j.Env = append(j.Env, "SLURM_EXPORT_ENV="+x)
		if x != "ALL" {
			j.Env = append(j.Env, "SLURM_GET_USER_ENV=1")
		}
	}
	j.Env = append(j.Env, "SLURM_SUBMIT_DIR="+wd, "SLURM_SUBMIT_HOST="+host, "SLURM_CLUSTER_NAME=berth")
	return nil
}

// ImpliedGPUs gives a job one GPU if a GPU option or a model was given.
func (j *Job) ImpliedGPUs(model bool) {
	s := &j.Spec
	if !j.GPUsSaid && (s.Exclusive || s.GPUType != "" || s.GPUMemMiB > 0 || s.GPUMilli > 0 || model) {
		s.GPUs = 1
	}
}

// Settle fills in what depends on the caller: directory, times and
// environment. Warnings are for standard error.
func (j *Job) Settle(c *Caller) (warnings []string, err error) {
	s := &j.Spec
	if filepath.IsAbs(s.Dir) {
		s.Dir = filepath.Clean(s.Dir)
	} else {
		wd, err := c.Getwd()
		if err != nil {
			return nil, misplaced("this directory cannot be named (%w); go to another one, or give one with --chdir", err)
		}
		s.Dir = filepath.Join(wd, s.Dir)
	}
	now := c.Now()
	if at, ok := slurm.ParseNext(j.Begin, now); ok && at.After(now) {
		s.Begin = cluster.TimeOf(at) // a time in the past means now
	}
	if at, ok := slurm.ParseNext(j.Deadline, now); ok {
		s.Deadline, s.DeadlineIn = cluster.TimeOf(at), 0
	}
	s.Env, warnings, err = Environment(c.Environ(), j.Export, j.Env)
	return warnings, err
}

// Place decides on which nodes, and how many, the job may run. A job that
// names several has as many.
func (j *Job) Place() error {
	w, err := cluster.WhereOf(j.Where.Nodes, j.Where.Exclude, j.Where.Features, j.Where.Whole, j.Where.Reservation, j.Where.Switches)
	if err != nil {
		return err
	}
	if w.Named() && int64(w.Nodes.Len()) > max(1, j.Nodes) && j.Nodes == 0 {
		j.Nodes = int64(w.Nodes.Len())
	}
	j.Spec.Where, j.Spec.Nodes, j.Spec.Tasks = w, int(j.Nodes), int(j.Tasks)
	return nil
}

// ReadScript reads a script, up to one byte too many, by name or from
// standard input, and returns its absolute name.
func ReadScript(c *Caller, name string, read func(name string, most int64) ([]byte, error), stdin io.Reader) (data []byte, path string, err error) {
	if name == "-" {
		data, err = io.ReadAll(io.LimitReader(stdin, cluster.MaxScript+1))
		return data, "sbatch", err // as Slurm calls it
	}
	if data, err = read(name, cluster.MaxScript); err != nil {
		return nil, "", err
	}
	if filepath.IsAbs(name) {
		return data, filepath.Clean(name), nil
	}
	wd, err := c.Getwd()
	if err != nil {
		return nil, "", misplaced("this directory cannot be named (%w); go to another one", err)
	}
	return data, filepath.Join(wd, name), nil
}

package tracer

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-scheduler/berth/model/graph"
)

//go:embed recorder.py
var recorderSource string

//go:embed trace.py
var traceSource string

// boot runs the source that is open as file 3, under a name for Python's error
// messages.
const boot = `import os; s = os.fdopen(3).read(); exec(compile(s, "<berth trace>", "exec"), {"__name__": "berth_trace"})`

// The child's file descriptors after standard error.
const (
	sourceFD = 3 + iota
	resultFD
	lifeFD
)

// Bounds of a Config.
const (
	MinTimeout = time.Second
	MaxTimeout = 24 * time.Hour
	MinMemory  = int64(256) << 20
	maxTail    = 4 << 10
	// grace is how long pipes may stay open after the group was killed: processes
	// that left the group may hold them.
	grace = time.Second
)

// Config says what to trace.
type Config struct {
	// Python is the interpreter, a path or a name on PATH.
	Python string
	// Target is a script; or, with Factory, "module:function" or
	// "file.py:function", which returns (model, inputs[, loss_fn[, optimizer]]).
	Target  string
	Factory bool
	Args    []string // the script's, or the function's positional ones
	// Dir is the working directory, Env the whole environment.
	Dir string
	Env []string
	// Inference ends the trace after the first forward pass.
	Inference bool
	// Values computes with numbers even if shapes would do (Factory only).
	Values bool
	// Batch, SeqLen, Precision and Optimizer override what was seen, unless 0 or
	// empty.
	Batch, SeqLen int64
	Precision     graph.Precision
	Optimizer     graph.Optimizer
	// Timeout ends the trace; MemBytes limits each process's address space, 0 for
	// no limit.
	Timeout  time.Duration
	MemBytes int64
	// Output gets what the program writes, if not nil.
	Output io.Writer
}

// Validate names the first field out of range.
func (c *Config) Validate() error {
	switch {
	case c.Python == "":
		return errors.New("python: it is empty; name an interpreter such as python3")
	case c.Target == "":
		return errors.New("what to trace is missing; name a script, or module:function with --factory")
	case c.Factory && !strings.Contains(strings.Trim(c.Target, ":"), ":"):
		return fmt.Errorf("factory %q: want module:function or file.py:function", c.Target)
	case c.Timeout < MinTimeout || c.Timeout > MaxTimeout:
		return fmt.Errorf("timeout %v: want %v to %v", c.Timeout, MinTimeout, MaxTimeout)
	case c.MemBytes != 0 && c.MemBytes < MinMemory:
		return fmt.Errorf("memory of %d MiB: want at least %d MiB, or 0 for no bound", c.MemBytes>>20, MinMemory>>20)
	case c.Batch < 0 || c.Batch > graph.MaxBatch:
		return fmt.Errorf("batch %d: want 1 to %d", c.Batch, graph.MaxBatch)
	case c.SeqLen < 0 || c.SeqLen > graph.MaxBatch:
		return fmt.Errorf("sequence length %d: want 1 to %d", c.SeqLen, graph.MaxBatch)
	}
	if len(c.Target) > 4096 || strings.ContainsRune(c.Target, 0) {
		return errors.New("what to trace: its name is too long, or holds a zero byte")
	}
	return nil
}

// settings is Config in the form that the Python side reads.
type settings struct {
	Target      string   `json:"target"`
	Factory     bool     `json:"factory"`
	Args        []string `json:"args"`
	Inference   bool     `json:"inference"`
	Fake        bool     `json:"fake"`
	Batch       int64    `json:"batch"`
	SeqLen      int64    `json:"seq_len"`
	Precision   string   `json:"precision"`
	Optimizer   string   `json:"optimizer"`
	MemoryBytes int64    `json:"memory_bytes"`
	ResultFD    int      `json:"result_fd"`
	LifeFD      int      `json:"life_fd"`
}

// Run traces the program and returns what it found. It blocks until the
// program and all that it started in its process group are dead, at most a
// few seconds longer than the timeout. The error is a *ProgramError if the
// program is to blame, and the context's if that ended first.
func Run(ctx context.Context, cfg Config) (Report, error) {
	if err := cfg.Validate(); err != nil {
		return Report{}, err
	}
	if !cfg.Factory {
		if err := readable(cfg.Dir, cfg.Target); err != nil {
			return Report{}, err
		}
	}
	p, err := start(&cfg)
	if err != nil {
		return Report{}, err
	}
	return p.wait(ctx, &cfg)
}

// readable fails early if the script does not exist.
func readable(dir, name string) error {
	if !filepath.IsAbs(name) {
		name = filepath.Join(dir, name)
	}
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("script: %w", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return fmt.Errorf("script: %w", err)
	}
	if !st.Mode().IsRegular() {
		return fmt.Errorf("script %s: is not a regular file", name)
	}
	return nil
}

// process is a started program.
type process struct {
	cmd    *exec.Cmd
	result *os.File // read end
	life   *os.File // write end: its closing, also by our death, kills the group
	errs   tail
	outs   tail
}

func start(cfg *Config) (*process, error) {
	arg, err := json.Marshal(settings{
		Target: cfg.Target, Factory: cfg.Factory, Args: append([]string{}, cfg.Args...), Inference: cfg.Inference, Fake: !cfg.Values,
		Batch: cfg.Batch, SeqLen: cfg.SeqLen, Precision: string(cfg.Precision), Optimizer: string(cfg.Optimizer),
		MemoryBytes: cfg.MemBytes, ResultFD: resultFD, LifeFD: lifeFD,
	})
	if err != nil {
		return nil, fmt.Errorf("settings of the tracer: %w", err)
	}
	source, err := sourceFile()
	if err != nil {
		return nil, err
	}
	defer source.Close()
	resultR, resultW, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("pipe for the answer: %w", err)
	}
	defer resultW.Close()
	lifeR, lifeW, err := os.Pipe()
	if err != nil {
		resultR.Close()
		return nil, fmt.Errorf("pipe for the end: %w", err)
	}
	defer lifeR.Close()
	p := &process{result: resultR, life: lifeW}
	if cfg.Output != nil {
		both := &shared{w: cfg.Output}
		p.errs.also, p.outs.also = both, both
	}
	p.cmd = exec.Command(cfg.Python, "-c", boot, string(arg))
	p.cmd.Dir, p.cmd.Env = cfg.Dir, environment(cfg.Env)
	p.cmd.Stdout, p.cmd.Stderr = &p.outs, &p.errs
	p.cmd.ExtraFiles = []*os.File{source, resultW, lifeR}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.WaitDelay = grace
	if err := p.cmd.Start(); err != nil {
		resultR.Close()
		lifeW.Close()
		return nil, &ProgramError{Kind: KindPython, Detail: fmt.Sprintf("python cannot be started: %v", err)}
	}
	return p, nil
}

// sourceFile returns the Python side in an unnamed file.
func sourceFile() (*os.File, error) {
	f, err := os.CreateTemp("", "berth-trace-")
	if err != nil {
		return nil, fmt.Errorf("write the tracer to a temporary file: %w", err)
	}
	_ = os.Remove(f.Name()) // it exists for as long as it is open
	if _, err = f.WriteString(recorderSource + "\n" + traceSource); err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("write the tracer to a temporary file: %w", err)
	}
	return f, nil
}

// environment is the user's, without GPUs, and with settings that keep programs
// from reporting home, opening windows and leaving compiled files behind.
func environment(env []string) []string {
	return append(append([]string{}, env...),
		"CUDA_VISIBLE_DEVICES=", "HIP_VISIBLE_DEVICES=", "ROCR_VISIBLE_DEVICES=", "WANDB_MODE=disabled", "MPLBACKEND=Agg",
		"PYTHONDONTWRITEBYTECODE=1", "PYTHONUNBUFFERED=1", "TOKENIZERS_PARALLELISM=false", "BERTH_TRACE=1")
}

// answer is what came through the pipe.
type answer struct {
	line []byte
	err  error
}

// wait returns when everything is dead.
func (p *process) wait(ctx context.Context, cfg *Config) (Report, error) {
	pid := p.cmd.Process.Pid
	answers, ended := make(chan answer, 1), make(chan struct{})
	go func() { answers <- readLine(p.result) }()
	go func() {
		defer close(ended)
		// The leader stays a zombie, so that its group's number cannot be reused
		// before the group is killed.
		for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
		}
	}()
	timer := time.NewTimer(cfg.Timeout)
	defer timer.Stop()
	var got answer
	var have, late bool
	select {
	case got = <-answers:
		have = true
	case <-ended:
	case <-timer.C:
		late = true
	case <-ctx.Done():
	}
	_ = syscall.Kill(-pid, syscall.SIGKILL) // the leader at least exists
	<-ended
	_ = syscall.Kill(-pid, syscall.SIGKILL) // processes forked meanwhile
	werr := p.cmd.Wait()
	p.life.Close()
	_ = p.result.SetReadDeadline(time.Now().Add(grace)) // processes that left the group may hold the pipe
	if !have {
		got = <-answers
	}
	p.result.Close()
	return p.conclude(ctx, cfg, got, late, werr)
}

// conclude turns how a program ended into a report or an error. An answer counts,
// however the process ended after it.
func (p *process) conclude(ctx context.Context, cfg *Config, got answer, late bool, werr error) (Report, error) {
	if got.err == nil {
		r, err := parse(got.line)
		var program *ProgramError
		switch {
		case errors.As(err, &program):
			program.Output = p.words(program.Kind)
		case err != nil:
			err = &ProgramError{Kind: KindGarbage, Detail: err.Error(), Output: p.words(KindGarbage)}
		}
		return r, err
	}
	if err := context.Cause(ctx); err != nil {
		return Report{}, err
	}
	e := &ProgramError{Kind: KindExit, Output: p.words(KindExit)}
	switch {
	case late:
		e.Kind, e.Detail = KindTimeout, fmt.Sprintf("no step was done after %v", cfg.Timeout)
	case errors.Is(got.err, errLong):
		e.Kind, e.Detail = KindGarbage, fmt.Sprintf("the answer is not a line of at most %d bytes", MaxLine)
	default:
		e.Detail = "python ended without an answer"
		if werr != nil {
			e.Detail = fmt.Sprintf("python ended without an answer (%v)", werr)
		}
	}
	return Report{}, e
}

// words is the end of the program's output. A crash already names its line.
func (p *process) words(k Kind) string {
	if k == KindCrash || k == KindNoTorch || k == KindFactory {
		return ""
	}
	if s := p.errs.text(); s != "" {
		return s
	}
	return p.outs.text()
}

var errLong = errors.New("too long")

// readLine reads up to the first line end, and at most MaxLine bytes.
func readLine(r io.Reader) answer {
	b, err := bufio.NewReaderSize(r, MaxLine).ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		err = errLong
	}
	return answer{bytes.TrimSuffix(b, []byte("\n")), err}
}

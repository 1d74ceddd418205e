// Package step runs the tasks of a job step on one node: a process inside the job, with its
// user and limits, that starts them and carries their input, output and signals to and from
// srun. It ends with its tasks, and they with it.
package step

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Arg is the first argument of a process that runs Main.
const Arg = "step-tasks"

// Config says what to run. Values that may contain any bytes are passed as such.
type Config struct {
	// Args is the command, looked up in the tasks' PATH.
	Args [][]byte
	// Env are variables that override this process's own environment.
	Env [][]byte
	// Dir is the directory to run in; one that cannot be entered is replaced by /tmp, as in
	// Slurm. "" means the current one.
	Dir []byte
	// Node is the node's name, for messages.
	Node  string
	Tasks []Task
	// Umask is the file mode mask; -1 leaves it unchanged.
	Umask int
}

// Task is one process.
type Task struct {
	// Args is the task's own command; empty means the step's.
	Args [][]byte `json:",omitempty"`
	// Env are variables that override those of the step.
	Env [][]byte
	// Reads reports whether it gets the input; others read /dev/null.
	Reads bool
	// GPUs are the positions of the job's GPUs on the node that it may see; nil means all.
	GPUs []int `json:",omitempty"`
}

const (
	// killWait is the time between SIGTERM and SIGKILL for tasks whose srun has gone.
	killWait = 5 * time.Second
	// drainIdle is how long outputs may pause after their task has ended: what it left behind
	// may keep them open.
	drainIdle = 500 * time.Millisecond
)

// Main runs a step whose frames arrive on stdin and are sent to stdout, and returns the exit
// code of the process, which says nothing about the tasks'.
func Main(stdin io.Reader, stdout, stderr io.Writer) int {
	// A child gets SIGKILL when the thread that created it ends.
	runtime.LockOSThread()
	f, err := Read(stdin)
	var cfg Config
	if err == nil {
		err = json.Unmarshal(f.Data, &cfg)
	}
	if err != nil || f.Kind != Begin || len(cfg.Args) == 0 || len(cfg.Tasks) == 0 {
		fmt.Fprintf(stderr, "berth: step: started with the wrong words; it is for srun to start: %v\n", err)
		return 125
	}
	s := &runner{cfg: &cfg, out: NewWriter(stdout)}
	s.run(stdin)
	return 0
}

type runner struct {
	cfg   *Config
	out   *Writer
	env   []string
	prog  string
	tasks []*task

	mu   sync.Mutex // guards each task's running
	wait sync.WaitGroup
}

type task struct {
	no      uint32
	cmd     *exec.Cmd
	running bool
	stdin   *os.File
	input   chan []byte
	outputs sync.WaitGroup
	files   []*os.File
}

func (s *runner) run(control io.Reader) {
	s.prepare()
	for i := range s.cfg.Tasks {
		s.start(uint32(i))
	}
	over := make(chan struct{})
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGCONT, syscall.SIGXCPU)
	var passing sync.WaitGroup
	passing.Go(func() { s.pass(signals, over) })
	go s.control(control, over) // its read ends with the process
	s.wait.Wait()
	close(over)
	signal.Stop(signals)
	passing.Wait()
}

// pass forwards the signals that this process receives to the tasks: input that is not read
// does not delay them.
func (s *runner) pass(signals <-chan os.Signal, over <-chan struct{}) {
	for {
		select {
		case <-over:
			return
		case sig := <-signals:
			if sig, ok := sig.(syscall.Signal); ok {
				s.signal(sig)
			}
		}
	}
}

// words sends a message for the user.
func (s *runner) words(format string, args ...any) {
	s.send(Frame{Kind: Words, Data: fmt.Appendf(nil, "slurmstepd-%s: error: %s\n", s.cfg.Node, fmt.Sprintf(format, args...))})
}

// send ignores errors: control notices when srun has gone.
func (s *runner) send(f Frame) { _ = s.out.Write(f) }

// prepare sets up what all tasks have in common.
func (s *runner) prepare() {
	s.env = overlay(os.Environ(), s.cfg.Env)
	if s.cfg.Umask >= 0 {
		syscall.Umask(s.cfg.Umask)
	}
	if dir := string(s.cfg.Dir); dir != "" {
		if err := os.Chdir(dir); err != nil {
			s.words("couldn't chdir to `%s': %s: going to /tmp instead", dir, words(err))
			_ = os.Chdir("/tmp") // otherwise it stays where it is
		}
	}
	s.prog = find(string(s.cfg.Args[0]), s.env)
}

// words returns an error in the C library's words.
func words(err error) string {
	var no syscall.Errno
	if !errors.As(err, &no) {
		return err.Error()
	}
	text := no.Error()
	return strings.ToUpper(text[:1]) + text[1:]
}

// overlay overrides variables of an environment.
func overlay(env []string, lines [][]byte) []string {
	out := append([]string(nil), env...)
	at := make(map[string]int, len(out))
	for i, line := range out {
		name, _, _ := strings.Cut(line, "=")
		at[name] = i
	}
	for _, l := range lines {
		name, _, ok := strings.Cut(string(l), "=")
		if !ok || name == "" {
			continue
		}
		if i, have := at[name]; have {
			out[i] = string(l)
			continue
		}
		at[name] = len(out)
		out = append(out, string(l))
	}
	return out
}

// gpusOf limits a task to some of the job's GPUs.
func gpusOf(env []string, places []int) (lines [][]byte) {
	if places == nil {
		return nil
	}
	var all []string
	for _, line := range env {
		if list, ok := strings.CutPrefix(line, "CUDA_VISIBLE_DEVICES="); ok && list != "" {
			all = strings.Split(list, ",")
		}
	}
	var seen, nos []string
	for _, i := range places {
		if i >= 0 && i < len(all) {
			seen, nos = append(seen, all[i]), append(nos, strconv.Itoa(i))
		}
	}
	for name, list := range map[string][]string{"CUDA_VISIBLE_DEVICES": seen, "GPU_DEVICE_ORDINAL": nos, "SLURM_STEP_GPUS": nos} {
		lines = append(lines, []byte(name+"="+strings.Join(list, ",")))
	}
	return lines
}

// find looks up a program in the PATH of env; a name that is not found is returned as it is, and
// fails.
func find(name string, env []string) string {
	if strings.Contains(name, "/") {
		return name
	}
	for _, line := range env {
		path, ok := strings.CutPrefix(line, "PATH=")
		for _, dir := range filepath.SplitList(path) {
			p := filepath.Join(dir, name)
			if !filepath.IsAbs(p) {
				p = "./" + p
			}
			if st, err := os.Stat(p); ok && err == nil && st.Mode().IsRegular() && unix.Access(p, unix.X_OK) == nil {
				return p
			}
		}
	}
	return name
}

// start runs one task; if it cannot start, it ends as in Slurm, with the error number.
func (s *runner) start(no uint32) {
	t := &task{no: no, input: make(chan []byte, 64)}
	s.tasks = append(s.tasks, t)
	if err := s.launch(t); err != nil {
		var errno syscall.Errno
		code := byte(1)
		if errors.Is(err, exec.ErrNotFound) {
			err = syscall.ENOENT
		}
		if errors.As(err, &errno) && errno < 256 {
			code = byte(errno)
		}
		s.words("execve(): %s: %s", s.args(no)[0], words(err))
		s.send(Frame{Kind: Exit, Task: no, Data: []byte{code, 0, 0}})
	}
	for _, f := range t.files {
		_ = f.Close() // the task's own ends
	}
}

// args returns the words of a task's command.
func (s *runner) args(no uint32) [][]byte {
	if own := s.cfg.Tasks[no].Args; len(own) > 0 {
		return own
	}
	return s.cfg.Args
}

func (s *runner) launch(t *task) error {
	cfg := s.cfg.Tasks[t.no]
	prog := s.prog
	if len(cfg.Args) > 0 {
		prog = find(string(cfg.Args[0]), s.env)
	}
	t.cmd = &exec.Cmd{Path: prog, Env: overlay(overlay(s.env, gpusOf(s.env, cfg.GPUs)), cfg.Env), SysProcAttr: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}}
	for _, a := range s.args(t.no) {
		t.cmd.Args = append(t.cmd.Args, string(a))
	}
	if cfg.Reads {
		r, w, err := os.Pipe()
		if err != nil {
			return err
		}
		t.cmd.Stdin, t.stdin, t.files = r, w, append(t.files, r)
	}
	var near []*os.File
	for range 2 {
		r, w, err := os.Pipe()
		if err != nil {
			return err
		}
		near, t.files = append(near, r), append(t.files, w)
	}
	n := len(t.files)
	t.cmd.Stdout, t.cmd.Stderr = t.files[n-2], t.files[n-1]
	if err := t.cmd.Start(); err != nil {
		for _, f := range near {
			_ = f.Close() // nothing was read from it
		}
		return err
	}
	t.running = true
	ended := make(chan struct{})
	for i, kind := range []Kind{Stdout, Stderr} {
		t.outputs.Go(func() { s.carry(t, near[i], kind, ended) })
	}
	if t.stdin != nil {
		go t.feed(ended)
	}
	s.wait.Go(func() { s.reap(t, near, ended) })
	return nil
}

// carry sends the output of a task.
func (s *runner) carry(t *task, f *os.File, kind Kind, ended <-chan struct{}) {
	defer f.Close()
	buf := make([]byte, MaxData)
	for {
		select {
		case <-ended:
			if f.SetReadDeadline(time.Now().Add(drainIdle)) != nil {
				return
			}
		default:
		}
		n, err := f.Read(buf)
		if n > 0 {
			s.send(Frame{Kind: kind, Task: t.no, Data: buf[:n]})
		}
		if err != nil {
			return
		}
	}
}

// feed passes input to a task.
func (t *task) feed(ended <-chan struct{}) {
	defer t.stdin.Close()
	for {
		select {
		case <-ended:
			return
		case data, more := <-t.input:
			if !more {
				return
			}
			if _, err := t.stdin.Write(data); err != nil {
				return // it no longer reads
			}
		}
	}
}

// reap waits for a task, kills what it left in its process group, and reports how it ended once
// all of its output was sent.
func (s *runner) reap(t *task, near []*os.File, ended chan struct{}) {
	pid := t.cmd.Process.Pid
	// It is not reaped until nothing can signal its pid any more.
	for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == syscall.EINTR {
	}
	s.mu.Lock()
	t.running = false
	s.mu.Unlock()
	_ = syscall.Kill(-pid, syscall.SIGKILL) // most leave nothing
	err := t.cmd.Wait()
	close(ended)
	for _, f := range near {
		_ = f.SetReadDeadline(time.Now().Add(drainIdle)) // it may be at its end
	}
	t.outputs.Wait()
	data := []byte{0, 0, 0}
	if ws, ok := t.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		data[0], data[1] = byte(128+int(ws.Signal())), byte(ws.Signal())
		if ws.CoreDump() {
			data[2] = 1
		}
	} else if ok {
		data[0] = byte(ws.ExitStatus())
	} else if err != nil {
		data[0] = 1
	}
	s.send(Frame{Kind: Exit, Task: t.no, Data: data})
}

// control carries out srun's requests. When srun has gone, all tasks end.
func (s *runner) control(from io.Reader, over <-chan struct{}) {
	open := true
	end := func() {
		for _, t := range s.tasks {
			if open {
				close(t.input)
			}
		}
		open = false
	}
	for {
		f, err := Read(from)
		if err != nil {
			break
		}
		switch f.Kind {
		case Input:
			for _, t := range s.tasks {
				if open && t.stdin != nil {
					select {
					case t.input <- f.Data:
					case <-over:
						return
					}
				}
			}
		case InputEnd:
			end()
		case Signal:
			if len(f.Data) == 1 {
				s.signal(syscall.Signal(f.Data[0]))
			}
		}
	}
	end()
	s.signal(syscall.SIGTERM)
	s.signal(syscall.SIGCONT)
	select {
	case <-over:
	case <-time.After(killWait):
		s.signal(syscall.SIGKILL)
	}
}

func (s *runner) signal(sig syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tasks {
		if t.running {
			_ = syscall.Kill(-t.cmd.Process.Pid, sig) // it may have ended, unreaped
		}
	}
}

package sruncmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/berth-scheduler/berth/agent/step"
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/outputpath"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/sbatch"
	"github.com/berth-scheduler/berth/cmd/internal/slurm"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

const srunExamples = "  berth srun -G 1 -n 1 nvidia-smi\n" +
	"  ln -s /usr/bin/berth /usr/local/bin/srun && srun -n 4 python train.py"

const srunHelp = `Usage: srun [OPTIONS...] COMMAND [ARGS...]

Inside a job, runs COMMAND as a step: once per task, on the job's nodes. Outside, submits a job
for COMMAND and shows its output. The options are those of Slurm's srun 22.05; docs/slurm.md
says how each is handled.
`

// NewSrunCmd returns srun.
func NewSrunCmd(e *console.Env, c *client.Client) *cobra.Command {
	return &cobra.Command{
		Use: "srun [OPTIONS…] COMMAND [ARG…]", Short: "Run a job step, or a job, like Slurm's srun", Example: srunExamples,
		Hidden: true, DisableFlagParsing: true, Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			e.Prog = "srun"
			return asSlurm(e, runSrun(cmd.Context(), e, c, args))
		},
	}
}

// asSlurm gives failures the exit codes and the words of Slurm's commands.
func asSlurm(e *console.Env, err error) error {
	var exit *console.ExitError
	var opt optionError
	var usage *console.UsageError
	switch {
	case err == nil, errors.Is(err, console.ErrQuiet), errors.As(err, &exit) && exit.Err == nil:
		return err
	case errors.As(err, &opt):
		fmt.Fprintf(e.Stderr, "%s: %s\nTry \"%s --help\" for more information\n", e.Prog, opt, e.Prog)
		return &console.ExitError{Code: 255}
	case errors.As(err, &usage):
		err = usage.Err
	case errors.As(err, &exit):
		err = exit.Err
	}
	return &console.ExitError{Code: console.ExitFailed, Err: err}
}

// told reports whether the options ask only for help or the version, which it
// prints.
func (o *options) told(e *console.Env, help, examples string) bool {
	switch {
	case o.has("help") || o.has("usage"):
		e.Printf("%s\n%sExamples:\n%s\n", help, optionsHelp(), examples)
	case o.has("version"):
		e.Printf("%s\n", slurm.Versioned)
	default:
		return false
	}
	return true
}

func runSrun(ctx context.Context, e *console.Env, c *client.Client, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	if o.told(e, srunHelp, srunExamples) {
		return nil
	}
	if done, err := mpiType(e, o); done || err != nil {
		return err
	}
	if len(o.command) == 0 {
		fmt.Fprintln(e.Stderr, "srun: fatal: No command given to execute.")
		return &console.ExitError{Code: console.ExitFailed}
	}
	id := o.values["jobid"]
	if id == "" {
		id = e.Getenv("SLURM_JOB_ID")
	}
	if id == "" {
		return runOutside(ctx, e, c, o)
	}
	j, err := jobOf(ctx, e, c, id)
	if err != nil {
		return err
	}
	return runInside(ctx, e, c, o, j)
}

// jobOf returns the job that a step belongs to: that of the environment, or
// another one of the user's, looked up at the coordinators.
func jobOf(ctx context.Context, e *console.Env, c *client.Client, id string) (*job, error) {
	if id == e.Getenv("SLURM_JOB_ID") && e.Getenv("SLURM_JOB_NODELIST") != "" {
		return jobFrom(e.Getenv)
	}
	n, err := strconv.ParseUint(id, 10, 63)
	if err != nil {
		return nil, slurmWords("Invalid job id specified: %s", id)
	}
	have, err := c.GetJob(ctx, n)
	if err != nil {
		return nil, err
	}
	return jobOfView(have)
}

// runInside runs a step of a job.
func runInside(ctx context.Context, e *console.Env, c *client.Client, o *options, j *job) error {
	o.take(e.Getenv)
	l, err := lay(o, j)
	if err != nil {
		return err
	}
	set, err := settle(o, e.Getenv)
	if err != nil {
		return err
	}
	if err := o.programs(l.tasks); err != nil {
		return err
	}
	for _, w := range l.warnings {
		if !set.quiet {
			fmt.Fprintln(e.Stderr, "srun: "+w)
		}
	}
	count := openCounter(e.Getenv("BERTH_STEPS"))
	defer runtime.KeepAlive(count) // it holds the step's locks
	number, err := count.next()
	if err != nil {
		return err
	}
	waited := false
	gpus, err := count.takeAll(ctx, l, j, func() {
		waited = true
		word(e, o, "Job %d step creation temporarily disabled, retrying (Requested nodes are busy)", j.id)
	})
	if err != nil {
		return err
	}
	if waited {
		word(e, o, "Step created for job %d", j.id)
	}
	s := &stepRun{e: e, c: c, o: o, j: j, l: l, number: number, gpus: gpus, env: stepEnv(l, j, number, l.cpus)}
	if o.has("pty") {
		return s.pty(ctx)
	}
	return s.run(ctx, set)
}

// settle reads the options that say how a step behaves, and the variables in
// their place.
func settle(o *options, getenv func(string) string) (settings, error) {
	set := settings{quit: o.has("quit-on-interrupt"), quiet: o.has("quiet"), input: o.values["input"]}
	if getenv("SLURM_LABELIO") != "" && !o.has("label") {
		o.values["label"] = ""
	}
	bad, given := o.values["kill-on-bad-exit"]
	if !given {
		bad, given = getenv("SLURM_KILL_BAD_EXIT"), getenv("SLURM_KILL_BAD_EXIT") != ""
	}
	set.killOnBad = given && bad != "0"
	mode, given := o.values["open-mode"]
	if !given {
		mode, given = getenv("SLURM_OPEN_MODE"), getenv("SLURM_OPEN_MODE") != ""
	}
	if given {
		truncate, err := sbatch.ParseOpenMode(mode)
		if err != nil {
			return set, err
		}
		set.appends = !truncate
	}
	wait := o.values["wait"]
	if wait == "" {
		wait = getenv("SLURM_WAIT")
	}
	if wait != "" {
		n, err := strconv.Atoi(wait)
		if err != nil || n < 0 {
			return set, slurmWords("Invalid numeric value \"%s\" for --wait.", wait)
		}
		set.wait = time.Duration(n) * time.Second
	}
	return set, nil
}

// stepRun is one step in progress.
type stepRun struct {
	e      *console.Env
	c      *client.Client
	o      *options
	j      *job
	l      *layout
	number int
	gpus   [][]int
	env    []string
}

// run runs the tasks and ends with their code.
func (s *stepRun) run(ctx context.Context, set settings) error {
	if err := s.e.Flush(); err != nil {
		return err
	}
	r := &running{e: s.e, l: s.l, set: set, id: fmt.Sprintf("%d.%d", s.j.id, s.number)}
	r.outs = newOutputs(s.o, s.l.tasks, s.e.Stdout, s.e.Stderr, s.patterns(set))
	var configs []*step.Config
	for i, p := range s.l.places {
		cfg := s.config(i)
		for t := range cfg.Tasks {
			only, err := strconv.Atoi(set.input)
			if o := s.o; o.each != nil {
				cfg.Tasks[t].Args = apiconv.Texts[[]byte](o.each[p.first+t])
			}
			cfg.Tasks[t].Reads = set.input != "none" && (err != nil || only == p.first+t)
		}
		configs = append(configs, cfg)
	}
	code, err := r.runStep(ctx, configs, s.open)
	if cerr := r.outs.close(); err == nil {
		err = cerr
	}
	if errors.Is(err, syscall.EPIPE) {
		err = console.ErrQuiet // its reader went away
	}
	if err == nil && code != 0 {
		return &console.ExitError{Code: code}
	}
	return err
}

func (s *stepRun) patterns(set settings) patterns {
	at := func(task int) (string, int) {
		for _, p := range s.l.places {
			if task < p.first+p.tasks {
				return p.node, p.id
			}
		}
		return "", 0
	}
	get := s.e.Getenv
	n := outputpath.Names{Job: cluster.JobID(s.j.id), Step: &s.number, User: get("USER"), Name: get("SLURM_JOB_NAME")}
	if array, err := strconv.ParseUint(get("SLURM_ARRAY_JOB_ID"), 10, 64); err == nil {
		n.Array = cluster.JobID(array)
	}
	if task, err := strconv.ParseUint(get("SLURM_ARRAY_TASK_ID"), 10, 32); err == nil {
		n.Task = new(uint32(task))
	}
	return patterns{names: n, nodeOf: at, openTruncate: !set.appends}
}

// here reports whether a place is the node that this runs on.
func (s *stepRun) here(i int) bool { return s.j.here != "" && s.l.places[i].node == s.j.here }

func (s *stepRun) config(i int) *step.Config {
	env := s.env
	if !s.here(i) {
		env = append(exported(s.e.Environ(), s.o.values["export"]), env...)
	}
	cfg := config(s.l, s.l.places[i], s.o.command, env, s.gpus[i])
	if dir := s.o.values["chdir"]; dir != "" {
		cfg.Dir = []byte(dir)
	} else if wd, err := s.e.Getwd(); err == nil && !s.here(i) {
		cfg.Dir = []byte(wd)
	}
	if !s.here(i) {
		cfg.Umask = umask()
	}
	return cfg
}

// open starts the tasks of a place.
func (s *stepRun) open(ctx context.Context, i int) (node, error) {
	if s.here(i) {
		return openLocal(ctx, selfEnv(s.o.values["export"]), s.e.Stderr)
	}
	return openRemote(ctx, s.c, s.j.id, s.l.places[i].node)
}

// pty runs the first task alone at this terminal.
func (s *stepRun) pty(ctx context.Context) error {
	cfg := s.config(0)
	if !s.here(0) {
		return s.remotePty(ctx, cfg)
	}
	cmd := exec.Command(s.o.command[0], s.o.command[1:]...)
	cmd.Env = append(selfEnv(s.o.values["export"]), s.env...)
	cmd.Env = append(cmd.Env, "SLURM_PROCID=0", "SLURM_LOCALID=0", "SLURM_NODEID=0", "SLURM_GTIDS=0")
	cmd.Dir = string(cfg.Dir)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	signal.Ignore(syscall.SIGINT, syscall.SIGQUIT) // they are for the command
	err := cmd.Run()
	return s.ptyEnd(cmd.ProcessState, err)
}

// ptyEnd returns how the command of a terminal ended.
func (s *stepRun) ptyEnd(ps *os.ProcessState, err error) error {
	if ps == nil {
		var errno syscall.Errno
		if errors.Is(err, exec.ErrNotFound) {
			errno = syscall.ENOENT
		} else if !errors.As(err, &errno) {
			return err
		}
		text := errno.Error()
		fmt.Fprintf(s.e.Stderr, "slurmstepd-%s: error: execve(): %s: %s\n", s.l.places[0].node, s.o.command[0], strings.ToUpper(text[:1])+text[1:])
		return s.taskEnd(ended{code: byte(errno)})
	}
	ws, ok := ps.Sys().(syscall.WaitStatus)
	if ok && ws.Signaled() {
		return s.taskEnd(ended{code: byte(128 + int(ws.Signal())), signal: byte(ws.Signal())})
	}
	return s.taskEnd(ended{code: byte(ps.ExitCode())})
}

// taskEnd returns the result of a step with one task.
func (s *stepRun) taskEnd(how ended) error {
	if how.code == 0 {
		return nil
	}
	fmt.Fprintf(s.e.Stderr, "%s: error: %s: task 0: %s\n", s.e.Name(), s.l.places[0].node, how.text())
	return &console.ExitError{Code: int(how.code)}
}

// umask reads the file mask, which can only be read by setting it.
func umask() int {
	m := unix.Umask(0o077)
	unix.Umask(m)
	return m
}

// Package hooks runs an operator's programs before and after each attempt of a job on a node,
// as root: a prolog that prepares the node, and an epilog that cleans it up.
//
// A hook gets a fixed environment with nothing of the user's in it, and the job as JSON on its
// standard input. It has a deadline, its output goes to the agent's log, and what it leaves
// running is killed. A hook during which the agent was killed runs again: hooks must be
// idempotent.
package hooks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/berth-scheduler/berth/agent/cgroup"
)

// Config names the hooks of a node.
type Config struct {
	// Prolog and Epilog are absolute paths; "" for none.
	Prolog, Epilog string
	// Timeout is how long one run may take.
	Timeout time.Duration
	// CgroupParent is the control group below which each run gets its own, whose name differs
	// from that of a job's.
	CgroupParent string
	Log          *slog.Logger
}

// Runner runs hooks; it is safe for concurrent use.
type Runner struct {
	cfg    Config
	groups cgroup.Hierarchy
	noCaps error // why there are no control groups
}

// Limits on what is kept of a hook's output.
const (
	maxOutput = 64 << 10
	maxLines  = 100
	maxLine   = 1000
)

// Open checks the programs. Without control groups, it cannot find what a hook leaves behind in
// a session of its own.
func Open(cfg Config) (*Runner, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	for _, p := range []string{cfg.Prolog, cfg.Epilog} {
		if p == "" {
			continue
		}
		if err := Check(p); err != nil {
			return nil, err
		}
	}
	if cfg.Timeout <= 0 {
		return nil, fmt.Errorf("hooks: a timeout of %s", cfg.Timeout)
	}
	r := &Runner{cfg: cfg}
	if r.groups, r.noCaps = cgroup.Detect(); r.noCaps == nil && os.Getuid() != 0 {
		r.noCaps = errors.New("not root")
	}
	return r, nil
}

// Has implements agent.Hooks.
func (r *Runner) Has(k Kind) bool { return r.program(k) != "" }

func (r *Runner) program(k Kind) string {
	if k == Prolog {
		return r.cfg.Prolog
	}
	return r.cfg.Epilog
}

// Run implements agent.Hooks. When ctx ends first, the hook is killed.
func (r *Runner) Run(ctx context.Context, k Kind, job *Job) error {
	prog := r.program(k)
	if prog == "" {
		return nil
	}
	if err := Check(prog); err != nil { // it may have changed
		return err
	}
	input, err := json.Marshal(job)
	if err != nil {
		return err
	}
	began := time.Now()
	out, err := r.run(ctx, prog, environment(k, job), append(input, '\n'), job.Attempt+"-"+string(k))
	log := r.cfg.Log.With("hook", string(k), "attempt", job.Attempt)
	last := logLines(ctx, log, out)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil && last != "":
		err = fmt.Errorf("%w: %s", err, last)
	}
	log.InfoContext(ctx, "hook has run", "dur", time.Since(began), "err", err)
	return err
}

// logLines logs a hook's output, bounded, and returns the last line.
func logLines(ctx context.Context, log *slog.Logger, out string) (last string) {
	n := 0
	for line := range strings.Lines(out) {
		line = strings.ToValidUTF8(strings.TrimSpace(line), "?")
		if line == "" {
			continue
		}
		if len(line) > maxLine {
			line = strings.ToValidUTF8(line[:maxLine], "") + "…"
		}
		if last = line; n < maxLines {
			log.InfoContext(ctx, "hook says", "line", line)
		}
		n++
	}
	if n > maxLines {
		log.WarnContext(ctx, "more of a hook's output is left out", "count", n-maxLines)
	}
	return last
}

// gate runs in the hook's place until its process is in its control group: it waits for a line,
// and then execs the hook. If the agent dies meanwhile, nothing is left running.
const gate = `read go <&3 || exit 125; exec 3<&-; exec "$0"`

// run starts a program and waits until it and everything that it started have ended.
func (r *Runner) run(ctx context.Context, prog string, env []string, input []byte, name string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, r.cfg.Timeout, errTimeout)
	defer cancel()
	g, err := r.group(name)
	if err != nil {
		return "", err
	}
	// The parent-death signal is tied to the thread that starts the process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	open, hold, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer hold.Close()
	out := &head{most: maxOutput}
	cmd := exec.Command("/bin/sh", "-c", gate, prog)
	cmd.Dir, cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = "/", env, bytes.NewReader(input), out, out
	cmd.ExtraFiles, cmd.WaitDelay = []*os.File{open}, time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	err = cmd.Start()
	open.Close()
	if err != nil {
		return "", fmt.Errorf("start %s: %w", prog, err)
	}
	killed := context.AfterFunc(ctx, func() { r.kill(cmd.Process, g) })
	if g != nil {
		err = g.Add(cmd.Process.Pid)
	}
	if err == nil {
		_, err = hold.WriteString("go\n")
	}
	if err != nil {
		r.kill(cmd.Process, g)
	}
	werr := cmd.Wait()
	killed()
	r.kill(cmd.Process, g) // what it left behind
	if g != nil {
		err = errors.Join(err, g.Remove())
	}
	return out.String(), errors.Join(err, verdict(ctx, prog, werr, r.cfg.Timeout))
}

var errTimeout = errors.New("hook timed out")

// verdict says how a hook ended.
func verdict(ctx context.Context, prog string, err error, limit time.Duration) error {
	var exit *exec.ExitError
	switch {
	case errors.Is(err, exec.ErrWaitDelay): // it succeeded, and something that it left held its output open
		return nil
	case err == nil:
		return nil
	case errors.Is(context.Cause(ctx), errTimeout):
		return fmt.Errorf("%s took longer than %s (jobs.hook_timeout) and was killed", prog, limit)
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		return fmt.Errorf("%s ended with exit code %d", prog, exit.ExitCode())
	case errors.As(err, &exit):
		return fmt.Errorf("%s was ended by a signal (%s)", prog, exit)
	}
	return fmt.Errorf("%s: %w", prog, err)
}

// group creates the control group of a run, emptied of what a run left during which the agent
// was killed; nil without control groups.
func (r *Runner) group(name string) (*cgroup.Group, error) {
	if r.noCaps != nil {
		return nil, nil
	}
	g := r.groups.Open(path.Join("/", r.cfg.CgroupParent, "hooks", name))
	if err := errors.Join(g.Kill(), g.Remove(), g.Create(cgroup.Limits{})); err != nil {
		return nil, fmt.Errorf("control group of a hook: %w", err)
	}
	return g, nil
}

// kill kills a hook and everything that it started. By then the hook may have ended and its pid
// may be another process's, or another group's: with a control group, no pid is used. Without
// one, as when not root, there is no other way, and no other user's process to hit.
func (r *Runner) kill(hook *os.Process, g *cgroup.Group) {
	var err error
	if g == nil {
		if err = syscall.Kill(-hook.Pid, syscall.SIGKILL); errors.Is(err, syscall.ESRCH) {
			err = nil
		}
	} else if err = hook.Kill(); err == nil || errors.Is(err, os.ErrProcessDone) {
		err = g.Kill()
	}
	if err != nil {
		r.cfg.Log.Warn("cannot end a hook, or what it left behind", "err", err)
	}
}

// environment returns all that a hook is told besides the JSON: nothing in it is the user's but
// the names of job and user.
func environment(k Kind, j *Job) []string {
	var uuids []string
	for _, g := range j.GPUs {
		uuids = append(uuids, g.UUID)
	}
	id, uid, gid := strconv.FormatUint(j.Job, 10), strconv.FormatUint(uint64(j.UID), 10), strconv.FormatUint(uint64(j.GID), 10)
	env := []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8",
		"BERTH_HOOK=" + string(k), "BERTH_JOB_ID=" + id, "BERTH_ATTEMPT=" + j.Attempt, "BERTH_JOB_NAME=" + j.Name,
		"BERTH_JOB_USER=" + j.User, "BERTH_JOB_UID=" + uid, "BERTH_JOB_GID=" + gid, "BERTH_JOB_PARTITION=" + j.Partition,
		"BERTH_NODE=" + j.Node, "BERTH_GPU_UUIDS=" + strings.Join(uuids, ","),
		"BERTH_RESTART_COUNT=" + strconv.FormatUint(uint64(j.Restarts), 10),
		// What hooks written for Slurm read.
		"SLURM_JOB_ID=" + id, "SLURM_JOBID=" + id, "SLURM_JOB_USER=" + j.User, "SLURM_JOB_UID=" + uid, "SLURM_JOB_GID=" + gid,
		"SLURM_JOB_PARTITION=" + j.Partition, "SLURM_JOB_NODELIST=" + j.Node, "SLURMD_NODENAME=" + j.Node,
		"SLURM_SCRIPT_CONTEXT=" + string(k) + "_slurmd",
	}
	if e := j.End; e != nil {
		env = append(env, "BERTH_JOB_STATE="+e.State, "BERTH_JOB_EXIT_CODE="+strconv.Itoa(int(e.ExitCode)), "BERTH_JOB_SIGNAL="+strconv.Itoa(int(e.Signal)),
			"SLURM_JOB_EXIT_CODE2="+strconv.Itoa(int(e.ExitCode))+":"+strconv.Itoa(int(e.Signal)))
	}
	return env
}

// head keeps the first bytes written to it.
type head struct {
	buf  bytes.Buffer
	most int
}

// Write implements io.Writer; it never fails.
func (h *head) Write(p []byte) (int, error) {
	h.buf.Write(p[:min(len(p), max(0, h.most-h.buf.Len()))])
	return len(p), nil
}

// String returns what was kept.
func (h *head) String() string { return h.buf.String() }

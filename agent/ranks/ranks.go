// Package ranks runs several processes of one attempt on a node. It is the attempt's first
// process, so that the runtime records its end like any other, whatever is restarted meanwhile.
package ranks

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/berth-scheduler/berth/agent/hold"
	"github.com/berth-scheduler/berth/agent/launch"
)

// Main runs the processes described by args, those after launch.RanksArg, and returns the exit
// code of the first process that failed, or 0. One ended by a signal counts as 128 plus its
// number, as in a shell. The processes inherit its environment and standard files; only the
// first of them gets the input.
func Main(args []string, stderr io.Writer) int {
	var cfg launch.Ranks
	if len(args) < 3 || args[1] != "--" || json.Unmarshal([]byte(args[0]), &cfg) != nil || cfg.Tasks < 1 {
		fmt.Fprintln(stderr, "berth: ranks: started with the wrong arguments; it is for the agent to start")
		return 125
	}
	if cfg.Hold != nil {
		return hold.Run(*cfg.Hold, os.Getenv(hold.Variable), stderr)
	}
	// A child gets SIGKILL when the thread that created it ends.
	runtime.LockOSThread()
	g := group{cfg: cfg, argv: args[2:], ended: make(chan end, cfg.Tasks), stderr: stderr}
	return g.run()
}

type end struct{ local, code int }

type group struct {
	cfg    launch.Ranks
	argv   []string
	procs  []*exec.Cmd
	ended  chan end
	stderr io.Writer
}

// run starts all processes and waits until they have ended.
func (g *group) run() int {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGXCPU, syscall.SIGCONT)
	defer signal.Stop(signals)
	code := 0
	for local := range g.cfg.Tasks {
		if code = g.start(local); code != 0 {
			break
		}
	}
	left := len(g.procs)
	var kill <-chan time.Time
	if code != 0 {
		kill = g.end()
	}
	for left > 0 {
		select {
		case sig := <-signals:
			g.signal(sig)
		case <-kill:
			g.signal(syscall.SIGKILL)
		case e := <-g.ended:
			g.procs[e.local] = nil
			if left--; e.code != 0 && code == 0 {
				code = e.code
				if left > 0 {
					fmt.Fprintf(g.stderr, "berth: rank %d ended with code %d; the others end\n", g.cfg.First+e.local, e.code)
				}
				kill = g.end()
			}
		}
	}
	return code
}

// start runs the process of a local rank; the code is not 0 when it cannot.
func (g *group) start(local int) int {
	rank := g.cfg.First + local
	cmd := exec.Command(g.argv[0], g.argv[1:]...)
	cmd.Args[0] = g.argv[0]
	cmd.Env = append(os.Environ(), Env(rank, local, g.cfg.Slurm)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if local == 0 {
		cmd.Stdin = os.Stdin
	}
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	files, err := g.redirect(cmd, rank)
	if err == nil {
		err = cmd.Start()
	}
	for _, f := range files {
		_ = f.Close() // nothing was written through it here
	}
	if err != nil {
		fmt.Fprintf(g.stderr, "berth: rank %d: %v\n", rank, err)
		return launchCode(err)
	}
	g.procs = append(g.procs, cmd)
	go func() { g.ended <- end{local, wait(cmd)} }()
	return 0
}

// Env returns the variables that tell a process its rank among all, and among those of its
// node.
func Env(rank, local int, slurm bool) []string {
	r, l := strconv.Itoa(rank), strconv.Itoa(local)
	env := []string{"RANK=" + r, "LOCAL_RANK=" + l, "BERTH_RANK=" + r, "BERTH_LOCAL_RANK=" + l}
	if slurm {
		env = append(env, "SLURM_PROCID="+r, "SLURM_LOCALID="+l)
	}
	return env
}

// redirect gives the process its own files where configured.
func (g *group) redirect(cmd *exec.Cmd, rank int) (files []*os.File, err error) {
	open := func(pattern []byte) (*os.File, error) {
		path := strings.ReplaceAll(string(pattern), launch.RankMark, strconv.Itoa(rank))
		f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND|syscall.O_NONBLOCK, 0o644)
		if err == nil {
			files = append(files, f)
		}
		return f, err
	}
	if len(g.cfg.Stdout) > 0 {
		f, err := open(g.cfg.Stdout)
		if err != nil {
			return files, err
		}
		cmd.Stdout, cmd.Stderr = f, f
	}
	if len(g.cfg.Stderr) > 0 {
		f, err := open(g.cfg.Stderr)
		if err != nil {
			return files, err
		}
		cmd.Stderr = f
	}
	return files, nil
}

func (g *group) signal(sig os.Signal) {
	for _, p := range g.procs {
		if p != nil {
			_ = p.Process.Signal(sig) // it may have ended meanwhile
		}
	}
}

// end asks all to end, and returns a channel that says when to kill them.
func (g *group) end() <-chan time.Time {
	g.signal(syscall.SIGTERM)
	return time.After(g.cfg.Grace)
}

func wait(cmd *exec.Cmd) int {
	err := cmd.Wait()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			return 128 + int(ws.Signal())
		}
		return exit.ExitCode()
	}
	return 125
}

// launchCode returns a shell's exit code for a program that does not start.
func launchCode(err error) int {
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return 127
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.ENOEXEC):
		return 126
	}
	return 125
}

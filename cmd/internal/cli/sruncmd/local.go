package sruncmd

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"github.com/berth-scheduler/berth/agent/jobside"
	"github.com/berth-scheduler/berth/agent/step"
	"github.com/berth-scheduler/berth/cmd/internal/programs"
)

// localNode is the node that this runs on, inside the job: the tasks are
// children of a child.
type localNode struct {
	cmd *exec.Cmd
	to  *step.Writer
	in  io.WriteCloser
	out io.Reader
	end sync.Once
}

// openLocal starts it. Its environment is that of the tasks.
func openLocal(_ context.Context, env []string, stderr io.Writer) (node, error) {
	cmd := exec.Command(jobProgram(), step.Arg)
	cmd.Args[0] = "srun"
	cmd.Env, cmd.Stderr = env, stderr
	// An interrupt key is for srun alone.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	n := &localNode{cmd: cmd}
	var err error
	if n.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if n.out, err = cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	n.to = step.NewWriter(n.in)
	return n, cmd.Start()
}

// jobProgram returns berth-job: next to this program, or where an agent
// mounted it. An agent of a release with a single program mounted that.
func jobProgram() string {
	if path, err := programs.Path(programs.Job); err == nil {
		return path
	}
	if _, err := os.Stat(jobside.Binary); err == nil {
		return jobside.Binary
	}
	return "/proc/self/exe"
}

// Send implements node.
func (n *localNode) Send(f step.Frame) error { return n.to.Write(f) }

// Recv implements node.
func (n *localNode) Recv() (step.Frame, error) {
	f, err := step.Read(n.out)
	if errors.Is(err, os.ErrClosed) {
		err = io.EOF
	}
	return f, err
}

// Signal implements node.
func (n *localNode) Signal(s syscall.Signal) { _ = n.cmd.Process.Signal(s) } // it may have ended

// Close implements node.
func (n *localNode) Close() {
	n.end.Do(func() {
		_ = n.in.Close() // this ends what it runs
		_ = n.cmd.Wait() // how the tasks ended was reported before
	})
}

// selfEnv returns this process's environment for local tasks, as --export says.
func selfEnv(export string) []string {
	if export == "" || export == "ALL" {
		return os.Environ()
	}
	return append(ownVars(os.Environ()), exported(os.Environ(), export)...)
}

// ownVars returns the variables that describe the job's resources: they
// are passed with any --export.
func ownVars(environ []string) []string {
	var out []string
	for _, line := range environ {
		for _, prefix := range []string{"SLURM", "BERTH_", "CUDA_VISIBLE_DEVICES=", "GPU_DEVICE_ORDINAL=", "NVIDIA_", "HOME=", "USER=", "LOGNAME=", "SHELL="} {
			if len(line) > len(prefix) && line[:len(prefix)] == prefix {
				out = append(out, line)
				break
			}
		}
	}
	return out
}

package faulttest

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/berth-scheduler/berth/agent"
	"github.com/berth-scheduler/berth/agent/agenttest"
	"github.com/berth-scheduler/berth/agent/containerdrt"
	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/agent/launcher"
	"github.com/berth-scheduler/berth/agent/processrt"
	"github.com/berth-scheduler/berth/agent/runtime"
	"github.com/berth-scheduler/berth/agent/runtimetest"
	"github.com/berth-scheduler/berth/cluster"
)

// TestMain makes the test binary its own agent and keeper of processes.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		var play func() error
		switch os.Args[1] {
		case "play-agent":
			play = func() error { return playAgent(os.Args[2]) }
		case "process-keeper":
			fs := flag.NewFlagSet("process-keeper", flag.ExitOnError)
			dir, parent := fs.String("dir", "", ""), fs.String("cgroup", "", "")
			_ = fs.Parse(os.Args[2:]) // exits on an error
			play = func() error { return processrt.KeeperMain(context.Background(), *dir, *parent, "") }
		}
		if play != nil {
			if err := play(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			return
		}
	}
	os.Exit(runtimetest.WithJobProgram(m.Run))
}

// part is what an agent of a test is told.
type part struct {
	Dir, Leader string // state; the leader's socket
	Containerd  string // its socket; "" runs plain processes
	Cgroup      string
	Namespace   string // of its containers; runc's notes on all containerds' are in one place
	// CrashAt names a step, see step; the process kills itself there, the
	// first time.
	CrashAt string
}

func (p part) open(ctx context.Context, log *slog.Logger) (runtime.Runtime, func() error, error) {
	if p.Containerd == "" {
		rt, err := processrt.Open(ctx, processrt.Config{
			Dir: p.Dir + "/rt", Exe: []string{os.Args[0], "process-keeper"}, CgroupParent: p.Cgroup, Log: log,
		})
		if err != nil {
			return nil, nil, err
		}
		return rt, rt.Close, nil
	}
	rt, err := containerdrt.Open(ctx, containerdrt.Config{
		Address: p.Containerd, Namespace: p.Namespace, Dir: p.Dir + "/rt", CgroupParent: p.Cgroup, Inside: runtimetest.JobProgram(), Log: log,
	})
	if err != nil {
		return nil, nil, err
	}
	return rt, rt.Close, nil
}

type nobody struct{}

func (nobody) Resolve(_, gid uint32, name string) (launcher.User, error) {
	return launcher.User{Name: name, Home: "/", Shell: "/bin/sh", Groups: []uint32{gid}}, nil
}

// playAgent is an agent until it is killed.
func playAgent(form string) error {
	var p part
	if err := json.Unmarshal([]byte(form), &p); err != nil {
		return err
	}
	ctx, log := context.Background(), slog.New(slog.NewTextHandler(os.Stderr, nil))
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		// Containerd may be away just now: systemd would start the agent again.
		var a *agent.Agent
		if a, err = p.agent(ctx, log); err == nil {
			return a.Run(ctx)
		}
		log.Warn("the agent does not start", "err", err)
	}
	return err
}

// agent opens one, with what it runs jobs by.
func (p part) agent(ctx context.Context, log *slog.Logger) (*agent.Agent, error) {
	rt, done, err := p.open(ctx, log)
	if err != nil {
		return nil, err
	}
	a, err := agent.New(ctx, agent.Config{
		Node: "n1", BootID: "boot", Dir: p.Dir, Coordinators: []string{p.Leader},
		Dial: func(addr string) (*grpc.ClientConn, error) { return agenttest.DialSocket(addr) },
		Host: crashing{rt, p.step}, Users: nobody{}, CPUMilli: 64_000, MemMiB: 1 << 20, Grace: 200 * time.Millisecond, Heartbeat: time.Second,
		Failpoint: p.step, Log: log,
	})
	if err != nil {
		return nil, errors.Join(err, done())
	}
	return a, nil
}

// step ends the process as kill -9 does, if it is to end there.
func (p part) step(name string) {
	if p.CrashAt == name {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // until the signal is there
	}
}

// crashing is a runtime with a step before and after each call that changes
// something.
type crashing struct {
	runtime.Runtime
	step func(string)
}

func (c crashing) around(name string, call func() error) error {
	c.step("before " + name)
	err := call()
	c.step("after " + name)
	return err
}

// Create implements runtime.Runtime.
func (c crashing) Create(ctx context.Context, l *launch.Launch) error {
	return c.around("create", func() error { return c.Runtime.Create(ctx, l) })
}

// Start implements runtime.Runtime.
func (c crashing) Start(ctx context.Context, id cluster.AttemptID) error {
	return c.around("start", func() error { return c.Runtime.Start(ctx, id) })
}

// Signal implements runtime.Runtime.
func (c crashing) Signal(ctx context.Context, id cluster.AttemptID, sig syscall.Signal) error {
	return c.around("signal", func() error { return c.Runtime.Signal(ctx, id, sig) })
}

// Delete implements runtime.Runtime.
func (c crashing) Delete(ctx context.Context, id cluster.AttemptID) error {
	return c.around("delete", func() error { return c.Runtime.Delete(ctx, id) })
}

// steps are all the places to crash at, in the order of an attempt's life.
var steps = strings.Split("before journal I,within journal I,after journal I,before create,after create,before start,after start,"+
	"before signal,after signal,before journal E,within journal E,after journal E,before delete,after delete,before journal F,after journal F", ",")

var errNever = errors.New("not reached")

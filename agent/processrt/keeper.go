package processrt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path"
	"path/filepath"
	"runtime/debug"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/berth-scheduler/berth/agent/asuser"
	"github.com/berth-scheduler/berth/agent/cgroup"
	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/agent/runtime"
	"github.com/berth-scheduler/berth/cluster"
)

// keeper forks and reaps the tasks of one state directory.
type keeper struct {
	dir    string
	parent string
	inside string // runs the ranks of an attempt, and our processes inside it
	groups cgroup.Hierarchy
	noCaps error // why control groups cannot be used, nil if they can
	log    *slog.Logger
	spawn  *spawner
	record *taskLog
	waits  asuser.Waits
	look   func(*launch.Launch) (opened, error) // lookAt, but in tests

	mu       sync.Mutex
	tasks    map[cluster.AttemptID]*task
	watchers map[chan runtime.Task]struct{}
	quit     chan struct{}
	quitting sync.Once
	reapers  sync.WaitGroup
	starts   sync.WaitGroup
	closing  bool
}

// task is one attempt. Its launch never changes; the rest is guarded by keeper.mu.
type task struct {
	launch *launch.Launch
	state  runtime.Task
	// starting keeps a second call from starting the task again: the agent may have given
	// up on the first, which waits for a file server. It is also set while the task is
	// being recorded.
	starting bool
	// exited is set before the process is reaped: after that its pid may be reused.
	exited bool
	// entries are processes that users started inside it; entering is how many more are
	// being started.
	entries  []*entry
	entering int
}

// KeeperMain is the keeper's process: it serves until it is told to shut down or another
// keeper holds the directory. Signals that end an agent do not end it, so that jobs survive
// a stop of the service. inside is the path of the program berth-job, "" for the running
// one.
func KeeperMain(_ context.Context, dir, parent, inside string) error {
	logFile, err := os.OpenFile(filepath.Join(dir, logName), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer logFile.Close()
	log := slog.New(slog.NewTextHandler(logFile, nil))
	// Live data is only a few launches, and each collection has to stop all threads.
	debug.SetGCPercent(400)
	if err := inherit(); err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(dir, "keeper.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("another keeper holds %s: %w", dir, err)
	}
	if inside, err = hold(inside); err != nil {
		return err
	}
	k := &keeper{
		dir: dir, parent: parent, inside: inside, log: log, look: lookAt,
		watchers: map[chan runtime.Task]struct{}{}, quit: make(chan struct{}),
	}
	if k.groups, k.noCaps = k.probe(); k.noCaps != nil {
		log.Warn("jobs run without control groups", "err", k.noCaps)
	}
	k.spawn = newSpawner(k.hierarchy())
	if err := k.load(); err != nil {
		return err
	}
	sock := filepath.Join(dir, socketName)
	if err := os.Remove(sock); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	ln, err := net.Listen("unix", sock)
	if err != nil {
		return err
	}
	if err := os.Chmod(sock, 0o600); err != nil {
		return err
	}
	go func() {
		<-k.quit
		ln.Close()
	}()
	for {
		c, err := ln.Accept()
		if err != nil {
			break
		}
		go k.serve(c)
	}
	k.reapers.Wait()
	return k.record.close()
}

// load finds the tasks of an earlier keeper, and ends what is left of those that were
// running when it died.
func (k *keeper) load() error {
	var err error
	path := filepath.Join(k.dir, "tasks.log")
	k.record, k.tasks, err = openTaskLog(path, func(line int) {
		// Only ends are synced: a machine that lost power has damaged lines, but none of
		// their processes.
		k.log.Error("a line of the tasks' record is damaged and does not count", "file", path, "line", line)
	})
	if err != nil {
		return err
	}
	for id, t := range k.tasks {
		if t.state.Phase == runtime.Lost {
			k.killGroup(id)
		}
	}
	return nil
}

// hierarchy returns where control groups are created, nil where they cannot be.
func (k *keeper) hierarchy() *cgroup.Hierarchy {
	if k.noCaps != nil {
		return nil
	}
	return &k.groups
}

func (k *keeper) group(id cluster.AttemptID) *cgroup.Group {
	return k.groups.Open(path.Join(k.parent, id.String()))
}

func (k *keeper) killGroup(id cluster.AttemptID) {
	if k.noCaps != nil {
		return
	}
	if err := k.group(id).Kill(); err != nil {
		k.log.Error("cannot kill what is left of a task", "task", id.String(), "err", err)
	}
}

// serve answers requests on one connection until it ends.
func (k *keeper) serve(c net.Conn) {
	defer c.Close()
	for {
		var req request
		body, err := readBody(c)
		if err != nil || json.Unmarshal(body, &req) != nil {
			return
		}
		switch req.Op {
		case opWatch:
			k.watch(c)
			return
		case opExec:
			k.enter(c, req)
			return
		}
		resp := k.handle(req, body)
		if err := writeFrame(c, resp); err != nil {
			return
		}
		if req.Op == opShutdown {
			k.quitting.Do(func() { close(k.quit) })
			return
		}
	}
}

func (k *keeper) handle(req request, body []byte) *response {
	resp := &response{}
	var err error
	switch req.Op {
	case opCreate, opCreateAlone:
		err = k.create(req, body)
	case opStart:
		err = k.start(req.ID)
	case opSignal:
		err = k.signal(req.ID, req.Signal)
	case opBroadcast:
		err = k.broadcast(req.ID, req.Signal, req.To)
	case opDelete:
		err = k.delete(req.ID)
	case opList:
		resp.Tasks = k.list()
	case opInspect:
		k.mu.Lock()
		if t := k.tasks[req.ID]; t != nil {
			resp.Tasks = []runtime.Task{t.state}
		}
		k.mu.Unlock()
	case opShutdown:
		err = k.shutdown()
	default:
		err = fmt.Errorf("unknown operation %q", req.Op)
	}
	if err != nil {
		resp.fail(err)
	}
	return resp
}

func (k *keeper) list() []runtime.Task {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := make([]runtime.Task, 0, len(k.tasks))
	for _, t := range k.tasks {
		out = append(out, t.state)
	}
	return out
}

// create creates the control group of a task and records it: body is the request.
func (k *keeper) create(req request, body []byte) error {
	l := req.Launch
	if l == nil || l.ID.Job == 0 || len(l.Args) == 0 {
		return errors.New("create: the launch is incomplete")
	}
	k.mu.Lock()
	known := k.tasks[l.ID] != nil
	k.mu.Unlock()
	if known {
		return nil
	}
	if k.noCaps == nil {
		if err := k.group(l.ID).Create(cgroup.Limits{MemBytes: l.MemBytes, CPUMilli: l.CPUMilli, Pids: pidsLimit}); err != nil {
			return err
		}
	} else if err := k.uncapped(req); err != nil {
		return err
	}
	t := &task{launch: l, state: runtime.Task{ID: l.ID, Token: l.Token, Phase: runtime.Created}, starting: true}
	k.mu.Lock()
	if k.tasks[l.ID] != nil { // another call was first
		k.mu.Unlock()
		return nil
	}
	k.tasks[l.ID] = t
	k.mu.Unlock()
	err := k.record.create(l.ID, body)
	k.mu.Lock()
	defer k.mu.Unlock()
	if t.starting = false; err != nil {
		delete(k.tasks, l.ID)
	}
	return err
}

// start forks the first process of a task.
func (k *keeper) start(id cluster.AttemptID) error {
	t, err := k.claim(id)
	if t == nil || err != nil {
		return err
	}
	defer k.starts.Done()
	p, err := k.launch(t.launch)
	k.mu.Lock()
	defer k.mu.Unlock()
	t.starting = false
	if err != nil {
		return err
	}
	t.state.Phase, t.state.PID, t.state.Started = runtime.Running, p.pid, p.began
	k.reapers.Go(func() { k.reap(t, p) })
	return nil
}

// claim returns a task to the caller that is to start it, nil when it has been started.
func (k *keeper) claim(id cluster.AttemptID) (*task, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	t := k.tasks[id]
	switch {
	case k.closing:
		return nil, errors.New("start: the keeper is shutting down")
	case t == nil:
		return nil, fmt.Errorf("start: there is no task %s", id)
	case t.starting:
		return nil, fmt.Errorf("start: task %s is being started", id)
	case t.state.Phase != runtime.Created:
		return nil, nil
	}
	t.starting = true
	k.starts.Add(1)
	return t, nil
}

func (k *keeper) delete(id cluster.AttemptID) error {
	k.mu.Lock()
	t := k.tasks[id]
	if t == nil {
		k.mu.Unlock()
		return nil
	}
	if t.starting || t.entering > 0 || t.state.Phase == runtime.Running {
		k.mu.Unlock()
		return fmt.Errorf("delete: task %s runs", id)
	}
	lost := t.state.Phase == runtime.Lost
	k.mu.Unlock()
	if lost {
		k.killGroup(id)
	}
	if k.noCaps == nil {
		if err := k.group(id).Remove(); err != nil {
			return err
		}
	}
	k.mu.Lock()
	delete(k.tasks, id)
	k.mu.Unlock()
	return k.record.forget(id)
}

func (k *keeper) watch(c net.Conn) {
	ch := make(chan runtime.Task, exitsQueue)
	k.mu.Lock()
	k.watchers[ch] = struct{}{}
	k.mu.Unlock()
	defer func() {
		k.mu.Lock()
		delete(k.watchers, ch)
		k.mu.Unlock()
	}()
	if writeFrame(c, response{}) != nil { // from now on no end is missed
		return
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		var b [1]byte
		_, _ = c.Read(b[:]) // returns when the agent has gone
	}()
	for {
		select {
		case <-gone:
			return
		case <-k.quit:
			return
		case end := <-ch:
			if writeFrame(c, response{Ended: &end.ID, Tasks: []runtime.Task{end}}) != nil {
				return
			}
		}
	}
}

// shutdown ends all tasks and removes their control groups.
func (k *keeper) shutdown() error {
	k.mu.Lock()
	k.closing = true
	k.mu.Unlock()
	k.starts.Wait()
	var errs []error
	for _, t := range k.list() {
		if t.Phase == runtime.Running {
			errs = append(errs, k.signal(t.ID, syscall.SIGKILL))
		}
	}
	k.reapers.Wait()
	for _, t := range k.list() {
		errs = append(errs, k.delete(t.ID))
	}
	if k.noCaps == nil {
		errs = append(errs, k.groups.Open(k.parent).RemoveUp())
	}
	return errors.Join(errs...)
}

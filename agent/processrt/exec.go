package processrt

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-scheduler/berth/agent/pty"
	"github.com/berth-scheduler/berth/agent/runtime"
	"github.com/berth-scheduler/berth/cluster"
)

// Exec implements runtime.Executor. The keeper forks the process, as it does jobs, and
// hangs up on it when this end of the connection closes: it ends with the agent that
// requested it.
func (r *Runtime) Exec(ctx context.Context, id cluster.AttemptID, x *runtime.Exec) (*runtime.Process, error) {
	p := &execed{done: make(chan struct{})}
	near, far, err := p.files(x)
	if err != nil {
		return nil, err
	}
	defer closeAll(far)
	if err := p.begin(ctx, r, id, x, far); err != nil {
		closeAll([]*os.File{near.Stdin, near.Stdout, near.Stderr})
		return nil, err
	}
	near.ProcessControl = p
	return near, nil
}

func closeAll(files []*os.File) {
	var last *os.File
	for _, f := range files {
		if f != nil && f != last {
			f.Close() // nothing is buffered
		}
		last = f
	}
}

// execed is a process inside one of the keeper's tasks.
type execed struct {
	conn     *net.UnixConn
	terminal *os.File // near end, nil without one
	writing  sync.Mutex
	done     chan struct{} // closed once end or err is known
	end      runtime.ProcessEnd
	err      error
	closing  sync.Once
	closed   error
}

// files creates the near and far ends of the process's files.
func (p *execed) files(x *runtime.Exec) (near *runtime.Process, far []*os.File, err error) {
	if x.Terminal {
		// It belongs to us: the keeper gives it to the user once it knows the user.
		master, tty, err := pty.Open(uint32(os.Getuid()))
		if err != nil {
			return nil, nil, err
		}
		p.terminal = master
		if x.Window.Rows > 0 && x.Window.Columns > 0 {
			err = pty.Resize(master, x.Window.Rows, x.Window.Columns)
		}
		return &runtime.Process{Stdin: master, Stdout: master}, []*os.File{tty}, err
	}
	var made []*os.File
	for range 3 {
		r, w, err := os.Pipe()
		if err != nil {
			closeAll(made)
			return nil, nil, fmt.Errorf("make a pipe: %w", err)
		}
		made = append(made, r, w)
	}
	return &runtime.Process{Stdin: made[1], Stdout: made[2], Stderr: made[4]}, []*os.File{made[0], made[3], made[5]}, nil
}

// begin asks the keeper for the process and passes it the far ends.
func (p *execed) begin(ctx context.Context, rt *Runtime, id cluster.AttemptID, x *runtime.Exec, far []*os.File) error {
	conn, err := net.Dial("unix", rt.socket())
	if err != nil {
		return fmt.Errorf("keeper: %w", err)
	}
	p.conn = conn.(*net.UnixConn)
	stop := context.AfterFunc(ctx, func() { p.conn.Close() })
	var fds []int
	for _, f := range far {
		fds = append(fds, int(f.Fd()))
	}
	req := request{Op: opExec, ID: id, Exec: newExecRequest(x)}
	var resp response
	if err = writeFrame(p.conn, req); err == nil {
		if _, _, err = p.conn.WriteMsgUnix([]byte{byte(len(fds))}, unix.UnixRights(fds...), nil); err == nil {
			err = readFrame(p.conn, &resp)
		}
	}
	if err == nil {
		err = resp.error()
	} else {
		err = fmt.Errorf("keeper: %w", err)
	}
	if resp.NotRunning {
		err = runtime.ErrNotRunning
	}
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		p.conn.Close()
		return err
	}
	rt.wg.Go(func() {
		defer context.AfterFunc(rt.life, func() { p.conn.Close() })()
		p.await()
	})
	return nil
}

// await receives how the process ended.
func (p *execed) await() {
	defer close(p.done)
	var resp response
	if err := readFrame(p.conn, &resp); err != nil {
		p.err = fmt.Errorf("keeper: %w", err)
		return
	}
	if resp.ExecEnd == nil {
		p.err = errors.New("keeper: it does not say how the process ended")
		return
	}
	p.end = *resp.ExecEnd
}

// Signal implements runtime.ProcessControl.
func (p *execed) Signal(_ context.Context, sig syscall.Signal) error {
	select {
	case <-p.done:
		return nil
	default:
	}
	p.writing.Lock()
	defer p.writing.Unlock()
	return writeFrame(p.conn, request{Op: opSignal, Signal: sig})
}

// Resize implements runtime.ProcessControl.
func (p *execed) Resize(_ context.Context, w runtime.Window) error {
	if p.terminal == nil {
		return nil
	}
	return pty.Resize(p.terminal, w.Rows, w.Columns)
}

// Wait implements runtime.ProcessControl.
func (p *execed) Wait(ctx context.Context) (runtime.ProcessEnd, error) {
	select {
	case <-ctx.Done():
		return runtime.ProcessEnd{}, ctx.Err()
	case <-p.done:
		return p.end, p.err
	}
}

// Close implements runtime.ProcessControl.
func (p *execed) Close() error {
	p.closing.Do(func() {
		// Half closed: the keeper hangs up, and replies when that is done.
		err := p.conn.CloseWrite()
		if errors.Is(err, net.ErrClosed) || errors.Is(err, syscall.ENOTCONN) {
			err = nil // it has ended
		}
		t := time.NewTimer(runtime.HangUpGrace + closeWait)
		defer t.Stop()
		select {
		case <-p.done:
		case <-t.C:
			err = errors.New("keeper: it does not say that the process has ended")
		}
		if cerr := p.conn.Close(); !errors.Is(cerr, net.ErrClosed) {
			err = errors.Join(err, cerr)
		}
		p.closed = err
	})
	return p.closed
}

// closeWait is how long the keeper may take to end a process, beyond the grace.
const closeWait = 10 * time.Second

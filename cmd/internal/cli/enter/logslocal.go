package enter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/berth-scheduler/berth/agent/tail"
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/wait"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// logReader copies one output file to standard output.
type logReader struct {
	env  *console.Env
	c    *client.Client
	o    logsOptions
	job  *apiv1.Job
	name string
	file *os.File
}

func (l *logReader) open() error {
	if l.file != nil {
		return nil
	}
	f, err := console.OpenRegular(l.name)
	if err != nil {
		return err
	}
	from := l.o.offset
	if l.o.tail >= 0 {
		var st os.FileInfo
		if st, err = f.Stat(); err == nil {
			from, err = tail.Offset(f, st.Size(), l.o.tail)
		}
	}
	if err == nil {
		_, err = f.Seek(from, io.SeekStart)
	}
	if err != nil {
		f.Close()
		return err
	}
	l.file = f
	return nil
}

// here reads the file on this machine.
func (l *logReader) here(ctx context.Context) error {
	if l.o.follow {
		return l.followFile(ctx)
	}
	if err := l.open(); err != nil {
		return l.explain(err)
	}
	return l.copy()
}

// cut starts again when the file became shorter than what was read of it.
func (l *logReader) cut() error {
	st, err := l.file.Stat()
	if err != nil {
		return err
	}
	at, err := l.file.Seek(0, io.SeekCurrent)
	if err != nil || st.Size() >= at {
		return err
	}
	l.env.Warnf("%s was truncated to %d bytes; from its beginning:", l.name, st.Size())
	_, err = l.file.Seek(0, io.SeekStart)
	return err
}

func (l *logReader) close() {
	if l.file != nil {
		l.file.Close()
	}
}

// copy writes what is available and not yet written.
func (l *logReader) copy() error {
	if _, err := io.Copy(l.env.Out, l.file); err != nil {
		if ferr := l.env.Flush(); ferr != nil {
			return ferr
		}
		return fmt.Errorf("read %s: %w", l.name, err)
	}
	return l.env.Flush()
}

// How often a followed file and its job are polled.
const (
	fileEvery = 200 * time.Millisecond
	jobEvery  = 2 * time.Second
)

// followFile copies until the job has ended. It queries the job before it
// reads the file, so that the last lines are not missed.
func (l *logReader) followFile(ctx context.Context) error {
	asked := time.Time{}
	for {
		ended := false
		if now := time.Now(); now.Sub(asked) >= jobEvery {
			j, err := client.Again(ctx, l.c, l.job)
			if err != nil {
				return err
			}
			l.job, asked, ended = j, now, console.Terminal(j.GetState())
		}
		err := l.open()
		switch {
		case err == nil:
			if err := l.cut(); err != nil {
				return err
			}
			if err := l.copy(); err != nil {
				return err
			}
		case ended || !errors.Is(err, fs.ErrNotExist):
			return l.explain(err)
		case l.elsewhere() && time.Since(l.job.GetStarted().AsTime()) > jobEvery && l.job.GetStarted() != nil:
			return l.explain(err)
		}
		if ended {
			return nil
		}
		if !wait.Sleep(ctx, fileEvery) {
			return context.Cause(ctx)
		}
	}
}

// elsewhere reports whether the job's node has another name than this machine.
func (l *logReader) elsewhere() bool {
	host, err := l.env.Hostname()
	return err == nil && host != l.job.GetNode()
}

// explain says what to do about a file that cannot be read.
func (l *logReader) explain(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist) && l.elsewhere():
		return cluster.Errorf(cluster.CodeNotFound, "job %s ran on node %s, and its output file %s is not on this machine; read it there, or use a directory that all machines share",
			client.JobLabel(l.job), l.job.GetNode(), l.name)
	case errors.Is(err, fs.ErrNotExist):
		return cluster.Errorf(cluster.CodeNotFound, "job %s: its output file %s does not exist (yet); it may have been removed", client.JobLabel(l.job), l.name)
	default:
		return fmt.Errorf("job %s: its output: %w", client.JobLabel(l.job), err)
	}
}

package relay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/berth-scheduler/berth/agent/asuser"
	"github.com/berth-scheduler/berth/agent/tail"
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/wait"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

const (
	// pollEvery is how often a followed file is checked: file servers do not announce that it
	// has grown.
	pollEvery = 100 * time.Millisecond
	// settleFor is how long the output of an image job must be unchanged after its end: another
	// process writes it.
	settleFor = 300 * time.Millisecond
)

// logs shows an output file.
func (s *Server) logs(ctx context.Context, ln *link, v *Visit, ask *apiv1.AttachLogs) error {
	path := v.Launch.Stdout
	if ask.GetStderr() {
		path = v.Launch.Stderr
	}
	f, err := s.awaitFile(ctx, ln, v, path, ask.GetFollow())
	if err != nil {
		return err
	}
	defer f.Close()
	r := &reader{ln: ln, v: v, f: f, path: path}
	if err := r.begin(ask); err != nil {
		return err
	}
	if err := ln.opened(v, path, r.off); err != nil {
		return err
	}
	return r.run(ctx, ask.GetFollow())
}

// awaitFile opens the file with the user's rights: links work only where the user may go.
func (s *Server) awaitFile(ctx context.Context, ln *link, v *Visit, path string, follow bool) (*os.File, error) {
	said := false
	for {
		over := closed(v.Over)
		f, err := asuser.Await(&s.waits, asuser.User(v.Launch), func() (*os.File, error) { return s.open(path) }, func(f *os.File) { f.Close() })
		switch {
		case err == nil:
			return f, nil
		case errors.Is(err, errNotRegular):
			return nil, cluster.Errorf(cluster.CodeConflict, "%s on node %s is not a regular file; only those can be shown", path, v.Node)
		case errors.Is(err, fs.ErrPermission):
			return nil, cluster.Errorf(cluster.CodeDenied, "the job's user may not read %s on node %s", path, v.Node)
		case !errors.Is(err, fs.ErrNotExist):
			return nil, &cluster.Error{Code: cluster.CodeConflict, Msg: fmt.Sprintf("the output %s on node %s: %v", path, v.Node, err)}
		case over:
			return nil, cluster.Errorf(cluster.CodeNotFound, "the output file %s is not on node %s: it was removed, or never made", path, v.Node)
		case !follow:
			return nil, cluster.Errorf(cluster.CodeNotFound, "the output file %s is not on node %s yet; --follow waits for it", path, v.Node)
		}
		if !said {
			said = true
			if err := ln.notice("%s is not on node %s yet; waiting", path, v.Node); err != nil {
				return nil, err
			}
		}
		if !wait.Sleep(ctx, pollEvery) {
			return nil, ctx.Err()
		}
	}
}

var errNotRegular = errors.New("not a regular file")

// openRegular opens a regular file for reading without ever blocking, as it would for a FIFO.
func openRegular(path string) (*os.File, error) {
	f, err := asuser.Open(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if !st.Mode().IsRegular() {
		return nil, errors.Join(errNotRegular, f.Close())
	}
	return f, nil
}

// reader sends one file from an offset on.
type reader struct {
	ln   *link
	v    *Visit
	f    *os.File
	path string
	off  int64
}

// begin finds out where to start.
func (r *reader) begin(ask *apiv1.AttachLogs) error {
	st, err := r.f.Stat()
	if err != nil {
		return err
	}
	if ask.TailLines != nil {
		r.off, err = tail.Offset(r.f, st.Size(), ask.GetTailLines())
		return err
	}
	r.off = ask.GetOffset()
	if before := ask.GetBefore(); len(before) > 0 {
		have := make([]byte, len(before))
		if _, err := r.f.ReadAt(have, r.off-int64(len(before))); err != nil && err != io.EOF {
			return err
		}
		if !bytes.Equal(have, before) {
			r.off = 0
			return r.ln.notice("%s on node %s is another file than before, or was written anew; from its beginning:", r.path, r.v.Node)
		}
	}
	if r.off > st.Size() {
		r.off = st.Size()
		return r.ln.notice("%s has %d bytes, fewer than the offset asked for", r.path, st.Size())
	}
	return nil
}

// run sends what is there, and if it follows, what is added until the attempt is over.
func (r *reader) run(ctx context.Context, follow bool) error {
	buf := make([]byte, apiconv.FrameData)
	grew := time.Now()
	for {
		// Checked before the file: what was written before the end is read.
		over := closed(r.v.Over)
		n, err := r.f.ReadAt(buf, r.off)
		if n > 0 {
			if err := r.chunk(buf[:n]); err != nil {
				return err
			}
			grew = time.Now()
			continue
		}
		if err != nil && err != io.EOF {
			return &cluster.Error{Code: cluster.CodeConflict, Msg: "read the output on node " + string(r.v.Node) + ": " + err.Error()}
		}
		if cut, err := r.cut(); err != nil || cut {
			if err != nil {
				return err
			}
			continue
		}
		if !follow || over && (r.v.Launch.Image == "" || time.Since(grew) > settleFor) {
			return r.ln.ended(&apiv1.AttachEnded{Complete: over})
		}
		if !r.await(ctx, over) {
			return ctx.Err()
		}
	}
}

func (r *reader) chunk(data []byte) error {
	err := r.ln.send(&apiv1.AttachResponse{Kind: &apiv1.AttachResponse_Log{Log: &apiv1.LogChunk{Offset: r.off, Data: bytes.Clone(data)}}})
	r.off += int64(len(data))
	return err
}

// cut reports whether the file became shorter than what was read of it.
func (r *reader) cut() (bool, error) {
	st, err := r.f.Stat()
	if err != nil || st.Size() >= r.off {
		return false, err
	}
	r.off = 0
	return true, r.ln.notice("%s was truncated to %d bytes; from its beginning:", r.path, st.Size())
}

// await waits until it is time to look again; false when ctx ended.
func (r *reader) await(ctx context.Context, over bool) bool {
	if over {
		return wait.Sleep(ctx, pollEvery)
	}
	t := time.NewTimer(pollEvery)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
	case <-r.v.Over:
	}
	return true
}

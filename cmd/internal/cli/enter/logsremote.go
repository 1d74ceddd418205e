package enter

import (
	"context"
	"errors"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/wait"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

// remote shows the file as sent by the agent of the job's node.
func (l *logReader) remote(ctx context.Context) error {
	r := &remoteLog{logReader: l, off: l.o.offset, ask: &apiv1.AttachLogs{Stderr: l.o.stderr, Follow: l.o.follow}}
	if l.o.tail >= 0 {
		r.ask.TailLines = &l.o.tail
	}
	for {
		complete, err := r.attempt(ctx)
		if err != nil {
			if errors.Is(err, client.ErrOldCoordinator) {
				return l.here(ctx)
			}
			if r.began || !r.unreachable(err) || l.open() != nil {
				return err
			}
			l.env.Warnf("%s; showing the file of that name on this machine", console.Escape(err.Error()))
			return l.here(ctx)
		}
		if !complete || !l.o.follow {
			return nil
		}
		if more, err := r.next(ctx); err != nil || !more {
			return err
		}
	}
}

// remoteLog is the position of the reading.
type remoteLog struct {
	*logReader
	ask *apiv1.AttachLogs
	// off is the offset of the next byte, and tail the bytes right before it:
	// by those the node knows whether its file is the one that was read.
	off   int64
	tail  []byte
	began bool
	no    uint32 // the last attempt that was shown
}

// unreachable reports whether the node is missing rather than the file.
func (r *remoteLog) unreachable(err error) bool {
	var ce *cluster.Error
	return errors.As(err, &ce) && (client.Indefinite(ce) || ce.Code == cluster.CodeExhausted)
}

// attempt shows the output of one attempt, over as many streams as that takes.
func (r *remoteLog) attempt(ctx context.Context) (complete bool, err error) {
	patience := client.AttachPatience
	for {
		if r.began {
			r.ask.TailLines, r.ask.Offset, r.ask.Before = nil, r.off, r.tail
			patience = max(patience, r.c.Timeout)
		} else {
			r.ask.Offset = r.off
		}
		a, err := r.c.Attach(ctx, client.Reads, min(patience, r.c.Timeout), &apiv1.AttachOpen{
			Job: r.job.GetId(), Attempt: r.no, What: &apiv1.AttachOpen_Logs{Logs: r.ask},
		})
		if err != nil {
			return false, err
		}
		ended, err := r.read(a)
		a.Close()
		switch {
		case ended != nil:
			return ended.GetComplete(), nil
		case ctx.Err() != nil:
			return false, context.Cause(ctx)
		}
		var ce *cluster.Error
		if !errors.As(err, &ce) || !client.Indefinite(ce) {
			return false, err
		}
		// The next leader continues at the same byte.
		if !wait.Sleep(ctx, client.FirstWait) {
			return false, context.Cause(ctx)
		}
	}
}

// read copies one stream to its end.
func (r *remoteLog) read(a *client.Attachment) (*apiv1.AttachEnded, error) {
	for {
		m, err := a.Recv()
		if err != nil {
			return nil, err
		}
		switch k := m.GetKind().(type) {
		case *apiv1.AttachResponse_Opened:
			r.seek(k.Opened.GetOffset())
			r.no = k.Opened.GetAttempt()
		case *apiv1.AttachResponse_Notice:
			r.env.Warnf("%s", console.Escape(k.Notice))
		case *apiv1.AttachResponse_Log:
			if err := r.take(k.Log); err != nil {
				return nil, err
			}
		case *apiv1.AttachResponse_Ended:
			return k.Ended, nil
		}
	}
}

// take writes a chunk and remembers the position.
func (r *remoteLog) take(k *apiv1.LogChunk) error {
	data := k.GetData()
	if _, err := r.env.Out.Write(data); err != nil {
		return r.env.Flush()
	}
	if err := r.env.Flush(); err != nil {
		return err
	}
	r.seek(k.GetOffset())
	r.off += int64(len(data))
	r.tail = append(r.tail, data[max(0, len(data)-apiconv.MaxBefore):]...)
	r.tail = r.tail[max(0, len(r.tail)-apiconv.MaxBefore):]
	return nil
}

// seek sets where the node continues.
func (r *remoteLog) seek(off int64) {
	if off != r.off {
		r.off, r.tail = off, nil
	}
	r.began = true
}

// next waits for the job's next attempt; false when the job has ended.
func (r *remoteLog) next(ctx context.Context) (bool, error) {
	over := false
	err := r.c.WatchJobs(ctx, []uint64{r.job.GetId()}, func(news []*apiv1.Job) bool {
		for _, j := range news {
			last := uint32(len(j.GetAttempts()))
			for _, a := range j.GetAttempts() {
				last = max(last, a.GetNo())
			}
			if j.GetId() == r.job.GetId() && (console.Terminal(j.GetState()) || last > r.no) {
				over = last <= r.no
				return true
			}
		}
		return false
	})
	if err != nil || over {
		return false, err
	}
	r.no = 0
	return true, nil
}

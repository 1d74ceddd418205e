package coordinator

import (
	"bufio"
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/backup"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// backupChunk is how much of a file goes into one message.
const backupChunk = 256 << 10

// backupServer hands out copies of the state.
type backupServer struct {
	apiv1.UnimplementedBackupServiceServer
	c *Coordinator
}

type backupStream = grpc.ServerStreamingServer[apiv1.SaveBackupResponse]

// SaveBackup streams the leader's state; any other coordinator passes on what
// the leader sends.
func (s *backupServer) SaveBackup(req *apiv1.SaveBackupRequest, stream backupStream) error {
	if err := s.save(req, stream); err != nil {
		return toStatus(stream.Context(), s.c.log, err)
	}
	return nil
}

func (s *backupServer) save(req *apiv1.SaveBackupRequest, stream backupStream) error {
	ctx, who := stream.Context(), callerOf(stream.Context())
	if err := s.c.authorize(who, actAdmin, nil); err != nil {
		return err
	}
	md, _ := metadata.FromIncomingContext(ctx)
	forwarded := len(md.Get(mdForwarded)) > 0
	for deadline := time.Now().Add(s.c.cfg.Waits.Leader); ; {
		if s.c.leading() != nil {
			return s.lead(ctx, who, stream)
		}
		if id, addr := s.c.raft.Leader(); !forwarded && addr != "" && id != s.c.cfg.ID {
			return s.follow(ctx, addr, who, req, stream)
		}
		if time.Now().After(deadline) || forwarded && time.Until(deadline) < s.c.cfg.Waits.Leader-time.Second {
			return errNoLeader
		}
		if !sleep(ctx, 50*time.Millisecond) {
			return ctx.Err()
		}
	}
}

// lead sends the state as it is now: all that was acknowledged before the call
// is in it.
func (s *backupServer) lead(ctx context.Context, who caller, stream backupStream) error {
	if err := s.c.current(ctx); err != nil {
		return err
	}
	began, capture := time.Now(), s.c.fsm.Capture()
	out := &backupWriter{stream: stream}
	buf := bufio.NewWriterSize(out, backupChunk)
	err := backup.Write(buf, backup.Header{
		ClusterID: s.c.cfg.ClusterID, ClusterName: s.c.cfg.ClusterName, Version: s.c.cfg.Version, Saved: s.c.cfg.Clock().UTC().Truncate(time.Millisecond),
	}, capture)
	if err = errors.Join(err, buf.Flush()); err != nil {
		return err
	}
	s.c.log.InfoContext(ctx, "state saved for an administrator", "uid", who.uid, "user", who.name, "index", capture.Index, "bytes", out.sent, "dur", time.Since(began))
	return nil
}

// backupWriter sends what is written to it.
type backupWriter struct {
	stream backupStream
	sent   int64
}

// Write implements io.Writer.
func (w *backupWriter) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		n := min(len(rest), backupChunk)
		if err := w.stream.Send(&apiv1.SaveBackupResponse{Data: rest[:n]}); err != nil {
			return len(p) - len(rest), err
		}
		rest, w.sent = rest[n:], w.sent+int64(n)
	}
	return len(p), nil
}

// follow passes on what the leader sends.
func (s *backupServer) follow(ctx context.Context, addr string, who caller, req *apiv1.SaveBackupRequest, stream backupStream) error {
	conn, err := s.c.peers.get(addr)
	if err != nil {
		return &cluster.Error{Code: cluster.CodeUnavailable, Msg: "cannot reach the leader", Err: err}
	}
	ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(ctx, s.c.onBehalf(who)))
	defer cancel()
	far, err := apiv1.NewBackupServiceClient(conn).SaveBackup(ctx, req)
	for err == nil {
		var m *apiv1.SaveBackupResponse
		if m, err = far.Recv(); err == nil {
			err = stream.Send(m)
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

package admin

import (
	"bufio"
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/wait"
	"github.com/berth-scheduler/berth/coordinator/api/authorize"
	"github.com/berth-scheduler/berth/coordinator/backup"
	"github.com/berth-scheduler/berth/coordinator/office"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
)

// backupChunk is how much of a file goes into one message.
const backupChunk = 256 << 10

// backupServer serves copies of the state.
type backupServer struct {
	apirpc.UnimplementedBackupServiceServer
	c *Admin
}

type backupStream = grpc.ServerStreamingServer[apiv1.SaveBackupResponse]

// SaveBackup streams the leader's state; any other coordinator forwards what the
// leader sends.
func (s *backupServer) SaveBackup(req *apiv1.SaveBackupRequest, stream backupStream) error {
	ctx, who := stream.Context(), authorize.CallerOf(stream.Context())
	if err := s.c.auth.May(who, authorize.Admin, nil); err != nil {
		return err
	}
	forwarded := authorize.Forwarded(ctx)
	for deadline := time.Now().Add(s.c.cfg.LeaderWait); ; {
		if s.c.office.Term() != nil {
			return s.lead(ctx, who, stream)
		}
		if id, addr := s.c.office.Leader(); !forwarded && addr != "" && id != s.c.cfg.ID {
			return s.follow(ctx, addr, who, req, stream)
		}
		if time.Now().After(deadline) || forwarded && time.Until(deadline) < s.c.cfg.LeaderWait-time.Second {
			return office.ErrNoLeader
		}
		if !wait.Sleep(ctx, 50*time.Millisecond) {
			return ctx.Err()
		}
	}
}

// lead sends the current state: everything acknowledged before the call is in it.
func (s *backupServer) lead(ctx context.Context, who authorize.Caller, stream backupStream) error {
	if err := s.c.office.Verify(ctx); err != nil {
		return err
	}
	began, capture := time.Now(), s.c.fsm.Capture()
	out := &backupWriter{stream: stream}
	buf := bufio.NewWriterSize(out, backupChunk)
	err := backup.Write(buf, backup.Header{
		ClusterID: s.c.cfg.ClusterID, ClusterName: s.c.cfg.ClusterName, Version: s.c.cfg.Version, Saved: s.c.clock().UTC().Truncate(time.Millisecond),
	}, capture)
	if err = errors.Join(err, buf.Flush()); err != nil {
		return err
	}
	s.c.log.InfoContext(ctx, "state saved for an administrator", "uid", who.UID, "user", who.Name, "index", capture.Index, "bytes", out.sent, "dur", time.Since(began))
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

// follow forwards what the leader sends.
func (s *backupServer) follow(ctx context.Context, addr string, who authorize.Caller, req *apiv1.SaveBackupRequest, stream backupStream) error {
	conn, err := s.c.peers.Get(addr)
	if err != nil {
		return &cluster.Error{Code: cluster.CodeUnavailable, Msg: "cannot reach the leader", Err: err}
	}
	ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(ctx, s.c.auth.OnBehalf(who)))
	defer cancel()
	far, err := apirpc.NewBackupServiceClient(conn).SaveBackup(ctx, req)
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

package backupcmd_test

import (
	"bytes"
	"crypto/sha256"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/raft"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/berth-scheduler/berth/cmd/internal/cli/backupcmd"
	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	"github.com/berth-scheduler/berth/cmd/internal/cli/frame"
	"github.com/berth-scheduler/berth/coordinator/backup"
	"github.com/berth-scheduler/berth/fsm"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// saver sends a file in small pieces.
type saver struct {
	apirpc.UnimplementedBackupServiceServer
	file []byte
}

func (s *saver) SaveBackup(_ *apiv1.SaveBackupRequest, out grpc.ServerStreamingServer[apiv1.SaveBackupResponse]) error {
	for rest := s.file; len(rest) > 0; {
		n := min(len(rest), 100)
		if err := out.Send(&apiv1.SaveBackupResponse{Data: rest[:n]}); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

func serveBackups(w *clitest.World, socket string, s *saver) {
	l, srv := bufconn.Listen(1<<20), grpc.NewServer()
	apirpc.RegisterBackupServiceServer(srv, s)
	var wg sync.WaitGroup
	wg.Go(func() { _ = srv.Serve(l) })
	w.T.Cleanup(func() { srv.Stop(); wg.Wait() })
	w.Sockets[socket] = l
}

// backupOf is a file of cluster id.
func backupOf(t *testing.T, id string) []byte {
	t.Helper()
	f := fsm.New(fsm.Options{Version: "0.9"})
	data, err := fsm.EncodeEntry(1, 2, 1_700_000_000_000_000, []*logv1.Command{{Kind: &logv1.Command_RemoveNode{RemoveNode: &logv1.RemoveNode{Node: "n"}}}})
	if err != nil {
		t.Fatal(err)
	}
	f.Apply(&raft.Log{Index: 7, Term: 2, Data: data})
	var b bytes.Buffer
	if err := backup.Write(&b, backup.Header{ClusterID: id, ClusterName: "lab\x1b[31m", Version: "0.9", Saved: clitest.Now}, f.Capture()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestSnapshotIsSavedAndRestored: what comes is checked before it replaces
// anything, and becomes a coordinator's directory only where nothing is lost.
func TestSnapshotIsSavedAndRestored(t *testing.T) {
	t.Parallel()
	w, s := clitest.NewWorld(t, commands...), &saver{file: backupOf(t, "hpc")}
	serveBackups(w, "/a", s)
	dir := t.TempDir()
	file, data := filepath.Join(dir, "b.snap"), filepath.Join(dir, "data")
	want := func(code int, words string, args ...string) {
		t.Helper()
		if got := w.Run(args...); got != code || !strings.Contains(w.Out.String()+w.Errs.String(), words) {
			t.Errorf("berth %s: exit code %d, want %d and %q:\n%s%s", strings.Join(args, " "), got, code, words, &w.Out, &w.Errs)
		}
	}
	want(0, "cluster hpc, index 7, term 2", "cluster", "snapshot", "save", file)
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 || info.Size() != int64(len(s.file)) {
		t.Fatalf("saved %v, %v", info, err)
	}
	whole := s.file
	body := bytes.Clone(whole[:len(whole)-sha256.Size])
	body[len(body)-5] ^= 1 // in the state, under a right checksum
	sum := sha256.Sum256(body)
	s.file = append(body, sum[:]...)
	want(1, "cannot be restored", "cluster", "snapshot", "save", file)
	bad := filepath.Join(t.TempDir(), "bad.snap")
	if err := os.WriteFile(bad, s.file, 0o600); err != nil {
		t.Fatal(err)
	}
	want(1, "cannot be restored", "cluster", "snapshot", "show", bad)
	s.file = whole[:len(whole)-5]
	want(1, "damaged", "cluster", "snapshot", "save", file)
	want(2, "not a regular file", "cluster", "snapshot", "save", dir)
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("a failed copy left %v, %v", left, err)
	}
	want(0, `lab\x1b[31m (hpc)`, "cluster", "snapshot", "show", file)
	want(0, `"next_job": 1`, "cluster", "snapshot", "show", file, "-o", "json")

	restore := func(extra ...string) []string {
		return append([]string{"cluster", "snapshot", "restore", file, "--config", "../../../../deploy/coordinator.yaml", "--data", data}, extra...)
	}
	want(0, "the next job is 501", restore("--skip-jobs", "500")...)
	want(1, "is not empty", restore()...)
	if err := os.WriteFile(file, backupOf(t, "other"), 0o600); err != nil {
		t.Fatal(err)
	}
	data = filepath.Join(dir, "elsewhere")
	want(1, `belongs to cluster "other"`, restore()...)
	if err := os.WriteFile(file, whole[:60], 0o600); err != nil {
		t.Fatal(err)
	}
	want(1, "damaged", restore()...)
	want(1, "damaged", "cluster", "snapshot", "show", file)
	if _, err := os.Stat(data); err == nil {
		t.Error("a refused restore made the directory")
	}
}

// commands are those of these tests.
var commands = []frame.Command{{Name: "cluster", New: backupcmd.NewClusterCmd}, {Name: "coordinator", New: frame.Local(backupcmd.NewCoordinatorCmd)}}

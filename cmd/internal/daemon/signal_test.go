package daemon

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-scheduler/berth/cmd/internal/config"
)

// TestASignalThatIsNoFile: what would block its reader, or never end, is refused.
func TestASignalThatIsNoFile(t *testing.T) {
	t.Parallel()
	fifo := filepath.Join(t.TempDir(), "signal")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{fifo, "/dev/zero", t.TempDir()} {
		data, err := energySignalOf(&config.EnergySignal{Source: path}).Read(t.Context())
		if err == nil || !strings.Contains(err.Error(), "is not a regular file") {
			t.Errorf("%s: got %d bytes, %v", path, len(data), err)
		}
	}
	sparse := filepath.Join(t.TempDir(), "sparse")
	if err := os.WriteFile(sparse, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(sparse, 1<<40); err != nil {
		t.Skip(err) // a file system may not have such files
	}
	if data, err := energySignalOf(&config.EnergySignal{Source: sparse}).Read(t.Context()); err != nil || len(data) > 16<<20 {
		t.Errorf("a sparse file: got %d bytes, %v", len(data), err)
	}
}

// TestASignalThatHangs: nobody waits for a file system that does not answer, the next
// reading does not begin before the last one has ended, and then all is well again.
func TestASignalThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan struct{})
		var reads atomic.Int32
		read := apart("/nfs/signal", func(string) ([]byte, error) {
			reads.Add(1)
			<-answer
			return []byte("x"), nil
		})
		for _, want := range []string{"cannot be read: context deadline exceeded", "its file system hangs"} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := read(ctx)
			cancel()
			if err == nil || !strings.Contains(err.Error(), want) || reads.Load() != 1 {
				t.Errorf("after %d readings got %v, want %q", reads.Load(), err, want)
			}
		}
		close(answer)
		synctest.Wait()
		if data, err := read(t.Context()); err != nil || string(data) != "x" {
			t.Errorf("once it answers: got %q, %v", data, err)
		}
	})
}

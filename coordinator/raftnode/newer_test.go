package raftnode

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestNewerDataIsLeftAlone: a program that cannot read what a newer one wrote, in an
// entry or in a snapshot, says so and does not start; the newer one then does, with
// all that was there.
func TestNewerDataIsLeftAlone(t *testing.T) {
	t.Parallel()
	older := errors.New("version 13, this berth reads 1 to 12")
	var old bool
	c := newCluster(t, 1, func(cfg *Config) {
		cfg.SnapshotThreshold, cfg.TrailingLogs = 1<<20, 1
		cfg.Reads.Entry = func(data []byte) error {
			if old && string(data) == "newer" {
				return older
			}
			return nil
		}
		cfg.Reads.State = func(r io.Reader) error {
			if state, err := io.ReadAll(r); err != nil || old && strings.Contains(string(state), "newer") {
				return errors.Join(err, older)
			}
			return nil
		}
	})
	m := c.members[0]
	refused := func(what string) {
		t.Helper()
		kill(t, m)
		before, err := os.ReadFile(filepath.Join(m.dir, logFile))
		if err != nil {
			t.Fatal(err)
		}
		old = true
		n, err := Open(c.config(m, listen(t, m.addr)))
		if err == nil {
			_ = n.Close()
		}
		if !errors.Is(err, ErrNewer) || !errors.Is(err, older) || !strings.Contains(err.Error(), what) {
			t.Errorf("opened with %v, want a refusal that names the %s", err, what)
		}
		if after, err := os.ReadFile(filepath.Join(m.dir, logFile)); err != nil || string(after) != string(before) {
			t.Errorf("the log is another one (%v)", err)
		}
		old = false
		c.restart(m)
		c.agree([]string{"a", "newer", "b"})
	}
	for _, op := range []string{"a", "newer", "b"} {
		propose(t, c.leader(), op)
	}
	refused("log entry")
	if err := m.raft.Snapshot().Error(); err != nil {
		t.Fatal(err)
	}
	refused("snapshot that ends at")
}

package raftnode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// onSmallDisk makes a cluster of one whose directory is a file system of 4 MiB.
func onSmallDisk(t *testing.T) (*testCluster, *member) {
	t.Helper()
	mounted := false
	return solo(t, func(cfg *Config) {
		if mounted {
			return
		}
		mounted = true
		if err := os.Mkdir(cfg.Dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("none", cfg.Dir, "tmpfs", 0, "size=4m,mode=0700"); err != nil {
			if os.Geteuid() == 0 && os.Getenv("CI") != "" {
				t.Fatalf("cannot mount a small disk: %v", err)
			}
			t.Skipf("needs to mount a small disk: %v", err)
		}
		t.Cleanup(func() { _ = unix.Unmount(cfg.Dir, unix.MNT_DETACH) })
	})
}

// fill takes all room of dir but for some, and returns a function that gives it
// back.
func fill(t *testing.T, dir string, leave uint64) (empty func()) {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	ballast := filepath.Join(dir, "ballast")
	free := st.Bavail * uint64(st.Bsize)
	if free < leave {
		t.Fatalf("%d bytes are free, %d are to be left", free, leave)
	}
	if err := os.WriteFile(ballast, make([]byte, free-leave), 0o600); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
	}
}

func large(i int) string { return fmt.Sprintf("op%03d-%s", i, strings.Repeat("x", 10<<10)) }

// stopped waits until a node says that it must end.
func stopped(t *testing.T, m *member) error {
	t.Helper()
	select {
	case err := <-m.fatal:
		return err
	case <-time.After(2 * time.Minute):
		t.Fatal("the node says nothing")
		return nil
	}
}

// untilStopped proposes until the node says that it must end, and returns what it
// acknowledged meanwhile.
func untilStopped(t *testing.T, m *member) (acked []string, err error) {
	t.Helper()
	for i := 1000; i < 100_000; i++ {
		select {
		case err := <-m.fatal:
			return acked, err
		default:
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		_, _, err := m.Propose(ctx, []byte(large(i)))
		cancel()
		if err == nil {
			acked = append(acked, large(i))
		} else {
			time.Sleep(time.Millisecond) // it does not lead yet, or any more
		}
	}
	return acked, stopped(t, m)
}

// TestFullLog: a node whose log does not fit on the disk ends with what is wrong and
// what to do, again at each start without room, and has all that it acknowledged
// once there is some.
func TestFullLog(t *testing.T) {
	t.Parallel()
	c, m := onSmallDisk(t)
	lead := c.leader()
	propose(t, lead, "first")
	empty := fill(t, m.dir, 256<<10)
	acked := []string{"first"}
	for i := 0; ; i++ {
		if i == 1000 {
			t.Fatal("10 MiB fit into 256 KiB")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		_, _, err := lead.Propose(ctx, []byte(large(i)))
		cancel()
		if err != nil {
			break
		}
		acked = append(acked, large(i))
	}
	err := stopped(t, m)
	for _, want := range []string{filepath.Join(m.dir, logFile), "no space left", "make room", "start this coordinator again"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v: does not say %q", err, want)
		}
	}
	if !NoRoom(err) || len(acked) < 5 {
		t.Errorf("%v after %d entries", err, len(acked))
	}
	kill(t, m)

	grown := fillRest(t, m.dir)
	again := c.config(m, listen(t, m.addr))
	n, err := Open(again)
	if err == nil {
		m.Node = n
		go func() {
			for range n.LeaderChanges() {
			}
		}()
		// The pages that its log has free may do for a while.
		var more []string
		more, err = untilStopped(t, m)
		acked = append(acked, more...)
		kill(t, m)
	}
	if !NoRoom(err) {
		t.Errorf("without room it starts, or says: %v", err)
	}

	grown()
	empty()
	m.fatal = make(chan error, 1)
	c.restart(m)
	lead = c.leader()
	have := lead.fsm.list()
	found := 0
	for _, entry := range have { // others may lie between, of which it could not say what became
		if found < len(acked) && entry == acked[found] {
			found++
		}
	}
	if found < len(acked) {
		t.Errorf("%d of %d entries that were acknowledged are there, in their order", found, len(acked))
	}
	propose(t, lead, "after")
}

// fillRest takes what room is left, to the last page.
func fillRest(t *testing.T, dir string) (empty func()) {
	t.Helper()
	path := filepath.Join(dir, "rest")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	return func() {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// TestNoRoomForASnapshot: the node goes on with its log, leaves nothing of the
// snapshot, and makes it when there is room.
func TestNoRoomForASnapshot(t *testing.T) {
	t.Parallel()
	c, m := onSmallDisk(t)
	lead := c.leader()
	var want []string
	for i := range 60 {
		propose(t, lead, large(i))
		want = append(want, large(i))
	}
	empty := fill(t, m.dir, 300<<10)
	free := func() uint64 {
		var st unix.Statfs_t
		if err := unix.Statfs(m.dir, &st); err != nil {
			t.Fatal(err)
		}
		return st.Bavail * uint64(st.Bsize)
	}
	for range 3 {
		if err := lead.raft.Snapshot().Error(); err == nil || !strings.Contains(err.Error(), "no space left") {
			t.Fatalf("a snapshot of 600 KiB on 300 KiB: %v", err)
		}
		if n := free(); n < 290<<10 {
			t.Fatalf("%d bytes are free after a snapshot that was given up, 300 KiB before", n)
		}
	}
	select {
	case err := <-m.fatal:
		t.Fatalf("the node must end: %v", err)
	default:
	}
	propose(t, lead, "meanwhile")
	want = append(want, "meanwhile")
	left, err := filepath.Glob(filepath.Join(m.dir, snapshotDir, "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("of the snapshots are left: %v, %v", left, err)
	}
	empty()
	if err := lead.raft.Snapshot().Error(); err != nil {
		t.Fatal(err)
	}
	kill(t, m)
	c.restart(m)
	c.leader()
	c.agree(want)
}

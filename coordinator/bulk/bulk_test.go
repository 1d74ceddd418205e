package bulk

import (
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-scheduler/berth/cluster"
)

func open(t *testing.T) *Store {
	t.Helper()
	dir := t.TempDir()
	s, err := Open(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Fatalf("the directory holds %v, %v", left, err)
	}
	return s
}

func TestWhatIsKeptIsReadBack(t *testing.T) {
	s := open(t)
	type content struct {
		env    []string
		script []byte
	}
	contents := []content{{[]string{"A=1", "", "B=" + strings.Repeat("x", 100_000)}, []byte("#!/bin/sh\n")}, {nil, []byte{0}}, {[]string{"A=1"}, nil}, {}}
	var held []cluster.Bulk
	for _, c := range contents {
		held = append(held, s.Keep(c.env, c.script))
	}
	for i, c := range contents {
		env, script := held[i].Load()
		if !slices.Equal(env, c.env) || !slices.Equal(script, c.script) {
			t.Errorf("%d: %d lines and %d bytes", i, len(env), len(script))
		}
		if held[i].Sum() != cluster.BulkSum(c.env, c.script) || held[i].Scripted() != (len(c.script) > 0) {
			t.Errorf("%d: another content", i)
		}
		if again := s.Keep(c.env, c.script); again != held[i] {
			t.Errorf("%d: equal content is kept twice", i)
		}
	}
}

func blocks(t *testing.T, s *Store) int64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(int(s.file.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks * 512
}

// TestRoomIsGivenBack when nobody holds a content any more, and that of others
// stays whole.
func TestRoomIsGivenBack(t *testing.T) {
	s := open(t)
	const each = 1 << 20
	line := func(i int) []string { return []string{strings.Repeat(string(rune('a'+i)), each)} }
	stays := s.Keep(line(0), nil)
	var goes []cluster.Bulk
	for i := 1; i < 20; i++ {
		goes = append(goes, s.Keep(line(i), nil))
	}
	if got := blocks(t, s); got < 20*each {
		t.Fatalf("%d bytes on the disk, want 20 MiB", got)
	}
	runtime.KeepAlive(goes)
	clear(goes)
	for deadline := time.Now().Add(2 * time.Minute); blocks(t, s) >= 3*each; time.Sleep(time.Millisecond) {
		runtime.GC()
		if time.Now().After(deadline) {
			t.Fatalf("%d bytes are on the disk after all but one were forgotten", blocks(t, s))
		}
	}
	s.mu.Lock()
	n := len(s.items)
	s.mu.Unlock()
	if n != 1 {
		t.Errorf("%d contents are remembered, want 1", n)
	}
	if env, _ := stays.Load(); !slices.Equal(env, line(0)) {
		t.Error("what is held was lost")
	}
}

// TestLostContentEndsTheProcess: a state that cannot be read must not be guessed.
func TestLostContentEndsTheProcess(t *testing.T) {
	s := open(t)
	it := s.Keep([]string{strings.Repeat("x", 5000)}, nil)
	if _, err := s.file.WriteAt([]byte("y"), 100); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if recover() == nil {
			t.Error("a changed byte was not noticed")
		}
	}()
	it.Load()
}

// TestNoRoom: contents stay in memory while the disk has none.
func TestNoRoom(t *testing.T) {
	s := open(t)
	file := s.file
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	s.file = full
	if it := s.Keep([]string{"A=1"}, nil); it != nil {
		t.Error("a full disk took it")
	}
	s.file = file
	it := s.Keep([]string{"A=1"}, nil)
	if env, _ := it.Load(); len(env) != 1 {
		t.Errorf("read back %v", env)
	}
}

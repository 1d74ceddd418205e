package launcher

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-scheduler/berth/agent/launch"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/conv"
	"github.com/berth-scheduler/berth/proto/conv/plainconv"
)

// roomy makes a launcher whose attempts have rooms, where this test may mount.
func roomy(t *testing.T) *Launcher {
	t.Helper()
	scripts := filepath.Join(t.TempDir(), "scripts")
	if err := CanRoom(scripts); errors.Is(err, unix.EPERM) {
		t.Skip("file systems may not be mounted here")
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := LeaveRooms(scripts); err != nil {
			t.Error(err)
		}
	})
	return &Launcher{cfg: Config{Scripts: scripts, Rooms: true}}
}

func assigned(t *testing.T, job uint64) *nodev1.Assignment {
	t.Helper()
	packed, err := plainconv.PackScript([]byte("#!/bin/sh\n"))
	if err != nil {
		t.Fatal(err)
	}
	return &nodev1.Assignment{Job: job, Attempt: 1, Uid: 1001, Gid: 1001, Script: packed, Credential: "secret"}
}

func place(t *testing.T, la *Launcher, as *nodev1.Assignment) string {
	t.Helper()
	l := &launch.Launch{ID: conv.AttemptOf(as), UID: as.Uid, GID: as.Gid}
	if err := errors.Join(la.placeScript(l, as), la.placeCredential(l, as), la.placeProgress(l, as)); err != nil {
		t.Fatal(err)
	}
	return la.scriptDir(l.ID)
}

// TestNobodyFillsTheScriptsOfOthers: a job that lets its files grow fills its own room alone,
// and there is nothing of that when it is over, though somebody has a file open.
func TestNobodyFillsTheScriptsOfOthers(t *testing.T) {
	t.Parallel()
	la := roomy(t)
	greedy, honest := assigned(t, 1), assigned(t, 2)
	dir := place(t, la, greedy)
	for _, name := range []string{progressName, credentialName, scriptName} {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_APPEND, 0) // whose owner may
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(f, io.LimitReader(zeros{}, 4*RoomMiB<<20))
		if n > RoomMiB<<20 || !errors.Is(err, unix.ENOSPC) {
			t.Errorf("%s holds %d MiB: %v", name, n>>20, err)
		}
		defer f.Close()
	}
	if st, err := os.Lstat(dir); err != nil || st.Mode() != 0o711|os.ModeDir {
		t.Errorf("the room: %v, %v", st.Mode(), err)
	}
	other := place(t, la, honest)
	if text, err := os.ReadFile(filepath.Join(other, scriptName)); err != nil || string(text) != "#!/bin/sh\n" {
		t.Errorf("the other's script: %q, %v", text, err)
	}
	// What a crash left is replaced, and one room is enough.
	if again := place(t, la, greedy); again != dir {
		t.Error(again)
	}
	if text, err := os.ReadFile(filepath.Join(dir, scriptName)); err != nil || string(text) != "#!/bin/sh\n" {
		t.Errorf("its script again: %q, %v", text, err)
	}
	for _, as := range []*nodev1.Assignment{greedy, honest} {
		if err := la.Remove(conv.AttemptOf(as)); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(la.scriptDir(conv.AttemptOf(as))); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("there is something left: %v", err)
		}
	}
	if mountedBelow(t, la.cfg.Scripts+"/") {
		t.Error("rooms of ended attempts are left")
	}
}

func mountedBelow(t *testing.T, path string) bool {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Contains(mounts, []byte(path))
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// TestLeaveRooms takes away those that are left, and says nothing where there are none.
func TestLeaveRooms(t *testing.T) {
	t.Parallel()
	la := roomy(t)
	place(t, la, assigned(t, 3))
	for range 2 {
		if err := LeaveRooms(la.cfg.Scripts); err != nil {
			t.Error(err)
		}
	}
	if mountedBelow(t, la.cfg.Scripts) {
		t.Error("something is mounted there")
	}
	if err := LeaveRooms(filepath.Join(la.cfg.Scripts, "none")); err != nil {
		t.Error(err)
	}
	la.cfg.Rooms = false
	dir := place(t, la, assigned(t, 4))
	if there, err := isRoom(dir); there || err != nil {
		t.Errorf("a room is there where none is to be: %v, %v", there, err)
	}
}

// TestScriptsLieInMemory: the directories of attempts lie in memory, but where there is
// something on the disk already, which is not hidden.
func TestScriptsLieInMemory(t *testing.T) {
	t.Parallel()
	la := roomy(t)
	var at unix.Statfs_t
	if err := unix.Statfs(la.cfg.Scripts, &at); err != nil || at.Type != unix.TMPFS_MAGIC {
		t.Errorf("scripts lie on a file system of kind %x: %v", at.Type, err)
	}
	taken := t.TempDir()
	earlier := filepath.Join(taken, "j1-a1")
	if err := errors.Join(os.Mkdir(earlier, 0o711), CanRoom(taken)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(earlier); err != nil {
		t.Errorf("what was there is hidden: %v", err)
	}
}

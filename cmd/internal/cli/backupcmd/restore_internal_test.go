package backupcmd

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestGiveStaysInTheDirectory lets the owner of a data directory put a link to
// elsewhere in the place of a directory in it, over and over, while root gives
// it what is there.
func TestGiveStaysInTheDirectory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root gives files away")
	}
	t.Parallel()
	dir, elsewhere := t.TempDir(), t.TempDir()
	sub, link, loot := filepath.Join(dir, "history"), filepath.Join(dir, "link"), filepath.Join(elsewhere, "segment")
	for _, err := range []error{
		os.Mkdir(sub, 0o700), os.Symlink(elsewhere, link),
		os.WriteFile(filepath.Join(sub, "segment"), nil, 0o600), os.WriteFile(loot, nil, 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	before, err := ownerOf(loot)
	if err != nil {
		t.Fatal(err)
	}
	end, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-end:
				ended <- nil
				return
			default:
			}
			if err := unix.Renameat2(unix.AT_FDCWD, sub, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE); err != nil {
				ended <- err
				return
			}
		}
	}()
	who := owner{uid: 1234, gid: 1234}
	for range 2000 {
		_ = who.give(dir) // it may well fail, half way through an exchange
		if is, err := ownerOf(loot); err != nil || is != before {
			t.Errorf("a file elsewhere is %+v's, %v", is, err)
			break
		}
	}
	close(end)
	if err := <-ended; errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINVAL) {
		t.Skipf("no exchange of names here: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	if err := who.give(dir); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{dir, sub, link} {
		if is, err := lownerOf(p); err != nil || is != who {
			t.Errorf("%s is %+v's, %v", p, is, err)
		}
	}
}

func lownerOf(path string) (owner, error) {
	var st unix.Stat_t
	err := unix.Lstat(path, &st)
	return owner{int(st.Uid), int(st.Gid)}, err
}

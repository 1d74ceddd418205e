package asuser

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// TestDoHasNoneOfRootsRights: what a file server is told is the user's number,
// and what root may do with others' files it may not do here. So a home on NFS
// with root_squash opens, and nobody else's does.
func TestDoHasNoneOfRootsRights(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs root, to become other users")
	}
	const uid, gid = 65533, 65532
	// Over files: CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, FSETID, MKNOD,
	// MAC_OVERRIDE, LINUX_IMMUTABLE is root's but not among those.
	const overFiles = 1<<0 | 1<<1 | 1<<2 | 1<<3 | 1<<4 | 1<<27 | 1<<32
	err := Do(ID{UID: uid, GID: gid, Groups: []uint32{gid, 4711}}, func() error {
		status, err := os.ReadFile("/proc/thread-self/status")
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(status)) {
			f := strings.Fields(line)
			switch f[0] {
			case "Uid:":
				if f[4] != strconv.Itoa(uid) {
					t.Errorf("file system uid is %s", f[4])
				}
			case "Gid:":
				if f[4] != strconv.Itoa(gid) {
					t.Errorf("file system gid is %s", f[4])
				}
			case "Groups:":
				if strings.Join(f[1:], " ") != "4711 65532" {
					t.Errorf("groups are %q", f[1:])
				}
			case "CapEff:":
				caps, err := strconv.ParseUint(f[1], 16, 64)
				if err != nil || caps&overFiles != 0 {
					t.Errorf("capabilities %s (%v) hold some over files", f[1], err)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

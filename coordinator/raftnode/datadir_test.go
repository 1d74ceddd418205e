package raftnode

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// solo makes a cluster of one, which elects itself.
func solo(t *testing.T, tune func(*Config)) (*testCluster, *member) {
	t.Helper()
	c := newCluster(t, 1, tune)
	return c, c.members[0]
}

// openErr tries to open m's directory, changed by tune, and returns the error.
func openErr(t *testing.T, c *testCluster, m *member, tune func(*Config)) error {
	t.Helper()
	cfg := c.config(m, listen(t, "127.0.0.1:0"))
	cfg.Advertise = m.addr
	tune(&cfg)
	n, err := Open(cfg)
	if err == nil {
		_ = n.Close()
		t.Fatal("opened")
	}
	if _, aerr := m.layer.Accept(); !errors.Is(aerr, net.ErrClosed) {
		t.Errorf("the stream layer is still open: %v", aerr)
	}
	return err
}

func TestDirectoryIsRefused(t *testing.T) {
	t.Parallel()
	c, m := solo(t, nil)
	propose(t, c.leader(), "x")
	err := openErr(t, c, m, func(*Config) {})
	requireParts(t, err, []string{"in use by another process"})
	m.fsm = nil
	kill(t, m)
	for _, tc := range []struct {
		name string
		tune func(*Config)
		want string
	}{
		{"another cluster's", func(cfg *Config) { cfg.ClusterID = "other" }, `belongs to cluster "test", this is "other"`},
		{"another node's", func(cfg *Config) { cfg.ID, cfg.Bootstrap[0].ID = "zz", "zz" }, `belongs to coordinator "c0"`},
		{"symbolic link", func(cfg *Config) {
			link := filepath.Join(t.TempDir(), "link")
			if err := os.Symlink(cfg.Dir, link); err != nil {
				t.Fatal(err)
			}
			cfg.Dir = link
		}, "symbolic link"},
		{"file", func(cfg *Config) { cfg.Dir = filepath.Join(cfg.Dir, logFile) }, "is not a directory"},
		{"parent missing", func(cfg *Config) { cfg.Dir = filepath.Join(cfg.Dir, "no", "such") }, "no such file"},
		{"identity lost", func(cfg *Config) { move(t, filepath.Join(cfg.Dir, identityFile)) }, "holds Raft state but no cluster-id"},
		{"identity damaged", func(cfg *Config) { write(t, filepath.Join(cfg.Dir, identityFile), "cluster") }, "should be two lines"},
		{"log lost", func(cfg *Config) {
			write(t, filepath.Join(cfg.Dir, identityFile), "cluster test\nnode c0\n")
			move(t, filepath.Join(cfg.Dir, logFile))
		}, "it rejoins by snapshot"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			requireParts(t, openErr(t, c, m, tc.tune), []string{tc.want})
		})
	}
}

func move(t *testing.T, name string) {
	t.Helper()
	if err := os.Rename(name, name+".away"); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestDirectoryIsMade(t *testing.T) {
	t.Parallel()
	c, m := solo(t, nil)
	propose(t, c.leader(), "x")
	info, err := os.Stat(m.dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode %v, err %v", info.Mode(), err)
	}
	kill(t, m)
	if err := os.Chmod(m.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	c.restart(m)
	c.agree([]string{"x"})
	if info, err = os.Stat(m.dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode %v after the second start, err %v", info.Mode(), err)
	}
}

// TestUnfinishedStart leaves a directory as a crash within its first start
// would: the log is made, the identity is not.
func TestUnfinishedStart(t *testing.T) {
	t.Parallel()
	c, m := solo(t, nil)
	kill(t, m)
	if err := os.RemoveAll(m.dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(m.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	bolt, err := openBolt(filepath.Join(m.dir, logFile), readWrite)
	if err != nil {
		t.Fatal(err)
	}
	s := newStore(bolt, logFile, "")
	if err := errors.Join(s.SetUint64([]byte(keyTerm), 1), s.Close()); err != nil {
		t.Fatal(err)
	}
	c.restart(m)
	propose(t, c.leader(), "x")
	c.agree([]string{"x"})
}

func TestNetworkFilesystems(t *testing.T) {
	t.Parallel()
	for name, magic := range map[string]int64{"NFS": 0x6969, "CIFS": 0xFF534D42, "SMB": 0xFE534D42, "Lustre": 0x0BD00BD0, "CephFS": 0x00C36400} {
		err := checkFilesystem("/d", func(_ string, st *unix.Statfs_t) error { st.Type = magic; return nil })
		if err == nil || !strings.Contains(err.Error(), "/d is on "+name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, magic := range map[string]int64{"ext4": unix.EXT4_SUPER_MAGIC, "xfs": unix.XFS_SUPER_MAGIC, "tmpfs": unix.TMPFS_MAGIC} {
		if err := checkFilesystem("/d", func(_ string, st *unix.Statfs_t) error { st.Type = magic; return nil }); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
